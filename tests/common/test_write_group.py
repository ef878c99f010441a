import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from portfolio_sdpo.common.write_group import WriteGroup


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_published_files_have_their_content_and_nothing_else_is_left(tmp_path: Path):
    big = os.urandom(3_000_000)
    with ThreadPoolExecutor(2) as pool, WriteGroup(pool) as group:
        early = group.stage(tmp_path, big)
        files = {tmp_path / "ab" / "big": early, tmp_path / "cd" / "small": group.stage(tmp_path / "cd", b"small")}
        group.stage(tmp_path, b"never wanted")
        group.publish(files)
        assert (tmp_path / "ab" / "big").read_bytes() == big
    assert everything(tmp_path) == {"ab/big": big, "cd/small": b"small"}


def test_nothing_has_its_name_before_everything_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def watched_replace(source: Path, target: Path) -> None:
        replace(source, target)
        events.append("name")

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    with ThreadPoolExecutor(2) as pool, WriteGroup(pool, [tmp_path]) as group:
        group.publish({tmp_path / name / "file": group.stage(tmp_path / name, name.encode()) for name in "abc"})
        assert events == ["file"] * 3 + ["name"] * 3 + ["folder"] * 4


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str):
    (tmp_path / "file").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, full)
    with pytest.raises(OSError, match="No space left"), ThreadPoolExecutor(2) as pool, WriteGroup(pool) as group:
        group.publish({tmp_path / "file": group.stage(tmp_path, b"new")})
    assert everything(tmp_path) == {"file": b"old"}
