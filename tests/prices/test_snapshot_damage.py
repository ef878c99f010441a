"""Damage to a snapshot is found; kills and rivals leave the store whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portfolio_sdpo.errors import SnapshotError
from portfolio_sdpo.prices.snapshots import Store, content_hash
from tests.prices.snapshot_examples import NEW, OLD, files, put, save

# A folder that cannot be used


def test_folder_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "snapshots")
    for action in (store.list, store.verify, lambda: store.open("n"), lambda: save(store, "n", OLD)):
        with pytest.raises(SnapshotError, match=r"file/snapshots.*(Not a directory).*PORTFOLIO_SDPO_HOME"):
            action()


def test_files_that_cannot_be_read(store: Store):
    save(store, "n", OLD)
    [path] = files(store, "parquet")
    path.unlink()
    path.mkdir()
    with pytest.raises(SnapshotError, match="cannot be read"):
        store.open("n")
    assert [bool(check.problem) for check in store.verify("n")] == [True]
    pointer = store.root / "names" / "n"
    pointer.unlink()
    pointer.mkdir()
    with pytest.raises(SnapshotError, match="cannot be read"):
        store.open("n")


def test_verify_knows_the_name_or_says_so(store: Store):
    save(store, "n", OLD)
    with pytest.raises(SnapshotError, match=r"no snapshot x \(known: n\)"):
        store.verify("x")


# Damage


def flipped(path: Path, offset: int) -> bytes:
    """Flip one bit of the file; returns what it was."""
    content = path.read_bytes()
    changed = bytearray(content)
    changed[offset] ^= 1 << offset % 8
    path.write_bytes(changed)
    return content


@pytest.mark.parametrize("kind", ["parquet", "json", "pointer"])
def test_a_flipped_bit_is_refused_wherever_it_is(store: Store, kind: str):
    save(store, "n", OLD)
    save(store, "other", NEW)
    manifest = store.open("n").manifest
    path = {
        "parquet": store.root / "objects" / manifest.file_sha256[:2] / f"{manifest.file_sha256}.parquet",
        "json": next(path for path in files(store, "json") if manifest.file_sha256 in path.read_text()),
        "pointer": store.root / "names" / "n",
    }[kind]
    size = path.stat().st_size
    for offset in {*range(0, size, max(1, size // 100)), size - 1, size - 5, size - 9}:
        content = flipped(path, offset)
        with pytest.raises(SnapshotError, match=r"Snapshot n is damaged: .*; (restore|import)"):
            store.open("n")
        [good, bad] = sorted(store.verify(), key=lambda check: bool(check.problem))
        assert good.problem is None and good.name == "other"
        assert bad.name == "n" and (str(path) in bad.problem or kind == "pointer")
        path.write_bytes(content)
    assert store.open("n").manifest == manifest and not any(check.problem for check in store.verify())


@pytest.mark.parametrize("suffix", ["parquet", "json"])
@pytest.mark.parametrize("fault", ["missing", "empty", "longer"])
def test_other_damage(store: Store, suffix: str, fault: str):
    save(store, "n", OLD)
    [path] = files(store, suffix)
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if fault == "empty" else path.read_bytes() + b"\n")
    with pytest.raises(SnapshotError, match="is damaged"):
        store.open("n")
    assert [bool(check.problem) for check in store.verify("n")] == [True]


def test_damage_to_an_older_version_is_found_and_spares_the_current_one(store: Store):
    save(store, "n", OLD)
    [path] = files(store, "parquet")
    save(store, "n", NEW)
    flipped(path, 100)
    assert store.open("n").manifest.sha256 == content_hash(NEW)
    with pytest.raises(SnapshotError, match="is damaged"):
        store.open(f"n@{content_hash(OLD)}")
    assert [(check.sha256, bool(check.problem)) for check in store.verify("n")] == [
        (content_hash(NEW), False),
        (content_hash(OLD), True),
    ]


def test_saving_the_same_prices_mends_a_damaged_file(store: Store):
    first = save(store, "n", OLD)
    flipped(files(store, "parquet")[0], 100)
    again = save(store, "n", OLD)
    assert not again.new and store.open("n").digest == first.snapshot.digest
    assert not any(check.problem for check in store.verify())


def test_the_remedy_for_a_damaged_manifest_works(store: Store):
    save(store, "n", OLD)
    flipped(files(store, "json")[0], 100)
    with pytest.raises(SnapshotError, match="remove") as caught:
        save(store, "n", OLD)
    pointer = str(caught.value).partition(" remove ")[2].partition(" and ")[0]
    Path(pointer).unlink()
    assert save(store, "n", OLD).new
    assert not any(check.problem for check in store.verify())


def test_a_manifest_that_lies_about_its_prices_is_found(store: Store):
    """Every file has its hash, and the prices are not those that the manifest names."""
    save(store, "n", OLD)
    record = json.loads(files(store, "json")[0].read_text()) | {"sha256": "0" * 64}
    pointer = store.root / "names" / "n"
    pointer.write_text(put(store, json.dumps(record).encode()) + "\n")
    [check] = store.verify()
    assert "does not hold the prices" in check.problem


@pytest.mark.parametrize("change", [{"format": 2}, {"news": 1}], ids=["format", "field"])
def test_manifest_of_another_version_of_the_package(store: Store, change: dict):
    save(store, "n", OLD)
    record = json.loads(files(store, "json")[0].read_text()) | change
    (store.root / "names" / "n").write_text(put(store, json.dumps(record).encode()) + "\n")
    with pytest.raises(SnapshotError, match="another version of portfolio_sdpo"):
        store.open("n")


def test_pointer_to_another_name_is_refused(store: Store):
    save(store, "n", OLD)
    (store.root / "names" / "m").write_bytes((store.root / "names" / "n").read_bytes())
    with pytest.raises(SnapshotError, match="leads to a snapshot called n"):
        store.open("m")


# Kills and rivals


def test_the_name_changes_last_and_only_when_everything_else_is_on_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """What a cut of the power may undo is what was not synced: nothing that the name leads to is among it."""
    events: list[int | Path] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        events.append(os.fstat(handle).st_ino)

    def watched_replace(source: Path, target: Path) -> None:
        events.append(Path(target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(store, "n", OLD)
    pointer = store.root / "names" / "n"
    objects = [*files(store, "parquet"), *files(store, "json")]
    names = [event for event in events if isinstance(event, Path)]
    assert names[-1] == pointer and sorted(names[:-1]) == sorted(objects)
    first, last = events.index(names[0]), events.index(pointer)
    assert {path.stat().st_ino for path in objects} <= set(events[:first])
    assert pointer.stat().st_ino in events[:last]
    folders = {folder for path in objects for folder in (path.parent, path.parent.parent, store.root)}
    assert {folder.stat().st_ino for folder in folders} <= set(events[events.index(names[-2]) : last])
    assert events[-1] == pointer.parent.stat().st_ino


def test_left_overs_of_killed_writers_are_ignored_and_swept(store: Store):
    save(store, "n", OLD)
    left_overs = [files(store, "parquet")[0].with_name(".x.parquet.abc"), store.root / "names" / ".n.abc"]
    for path in left_overs:
        path.write_bytes(b"half")
    assert store.list() == ("n",) and len(store.verify()) == 1
    save(store, "n", NEW)
    assert not any(path.exists() for path in left_overs)


def script(*arguments: object) -> list:
    """What `store_children.py` reports: it works in processes of its own."""
    result = subprocess.run(
        [sys.executable, Path(__file__).parent / "store_children.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("job", ["import", "fetch", "update"])
def test_sigkill_at_every_step_leaves_the_old_state_or_the_new_one(tmp_path: Path, job: str):
    states = script("kill", job, tmp_path)
    assert len(states) > 12
    assert all(state["sound"] for state in states), states
    current = [state["current"] for state in states]
    assert set(current) == {"old", "new"} and current == sorted(current, reverse=True)
    assert all(state["again"] == "new" for state in states[::3])


def test_processes_that_save_at_once_all_succeed(tmp_path: Path):
    """Four processes, six versions each of one name and six of a name of their own, half of them the same prices."""
    assert script("rivals", tmp_path) == [0, 0, 0, 0]
    store = Store(tmp_path)
    assert not any(check.problem for check in store.verify())
    assert store.list() == ("common", "own-0", "own-1", "own-2", "own-3")
    assert len(list(store.history("common"))) == len({manifest.sha256 for _, manifest in store.history("common")}) == 24
    assert all(len(list(store.history(f"own-{rival}"))) == 6 for rival in range(4))
    assert not list(store.root.rglob(".*.*"))
