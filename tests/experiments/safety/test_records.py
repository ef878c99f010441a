"""A record stands for a run: the same tables and figures come from it as from the run's folder."""

import json
from pathlib import Path

import pytest

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.figures import make_safety_figures
from portfolio_sdpo.experiments.safety.records import find_runs, hash_declared, hash_settings, write_records
from portfolio_sdpo.experiments.safety.study import SafetyRun, SafetyStudy
from portfolio_sdpo.experiments.safety.summary import summarise_safety
from portfolio_sdpo.rl import TrainSettings

from .safety_toys import make_up, toy, write_log


@pytest.fixture
def experiment() -> SafetyExperiment:
    """Bound 2."""
    return toy(iterations=6).with_changes(algorithms=("ppo", "sdpo"))


@pytest.fixture
def folders(experiment: SafetyExperiment, tmp_path: Path) -> Path:
    """Runs in their folders, the second one longer than declared."""
    root = tmp_path / "home" / experiment.name
    ppo = write_log([0, 1, 2, 3, 4, 5], [0, 8, 8, 8, 8, 8])
    sdpo = write_log([0, 1 / 3, 2, 2, 2, 2, 9, 10], [1, 1, 1, 1, 1.123456, 4, 1, 0])
    make_up(experiment, root, {"ppo-0": ppo, "sdpo-0": sdpo})
    return root


def test_records_give_the_same_summary_and_the_same_figures(experiment: SafetyExperiment, folders: Path, tmp_path):
    files = SafetyStudy(experiment, home=folders.parent).record(tmp_path / "records")
    assert [file.name for file in files] == ["ppo-0.json", "sdpo-0.json"]
    again = SafetyStudy(experiment, home=tmp_path / "records", output=tmp_path / "figures")
    there, here = summarise_safety(experiment, folders).to_json(), again.summarise().to_json()
    for key in ("equal_steps", "constraints", "outdated", "unfinished", "failures"):
        assert there[key] == here[key]
    for one, other in zip(there["runs"], here["runs"], strict=True):
        assert one["label"] == other["label"] and one["steps_per_second"] == other["steps_per_second"]
        for at in ("equal", "end"):
            assert one[at]["episode_return"] == pytest.approx(other[at]["episode_return"], rel=1e-4)
            assert one[at]["risks"][0] == pytest.approx(other[at]["risks"][0], rel=1e-4)
    assert [file.parent for file in again.draw()] == 4 * [tmp_path / "figures"]
    assert len(make_safety_figures(experiment, folders)) == 4
    # Nothing is written among records.
    assert sorted(path.name for path in (tmp_path / "records" / experiment.name).iterdir()) == [
        "ppo-0.json",
        "sdpo-0.json",
    ]


def test_a_record_is_small_and_says_where_it_comes_from(experiment: SafetyExperiment, folders: Path, tmp_path: Path):
    (path,) = write_records(experiment, folders, ["sdpo-0"], tmp_path)
    record = json.loads(path.read_text())
    assert path.stat().st_size < 2000
    assert record["command"] == "portfolio-sdpo experiment run safety-toy --algorithms sdpo --seeds 0 --iterations 8"
    assert (record["task"], record["steps"], record["batch"]) == ("PointGoal1", 320, 40)
    assert record["settings"] == hash_declared(experiment, "sdpo") and record["version"]
    ((name, end),) = record["end"]["constraints"].items()
    assert name == "expectation of cost <= 2"
    assert end == {"risk": 1.4247, "share_over": 0.125, "worst_excess": 2.0, "cumulated": 20.247}
    assert record["columns"]["risk_empirical_0"] == [1, 1, 1, 1, 1.1235, 4, 1, 0]
    assert record["columns"]["episode_return"][1] == 0.33333


def test_a_folder_counts_more_than_a_record(experiment: SafetyExperiment, folders: Path):
    write_records(experiment, folders, None, folders.parent)
    assert (folders / "ppo-0.json").exists()
    (folders / "ppo-0" / "final.json").unlink()
    ppo, sdpo = find_runs(experiment, folders)
    assert (ppo.name, ppo.finished) == ("ppo-0", False) and sdpo.finished


def test_only_finished_runs_with_the_declared_settings_are_recorded(experiment: SafetyExperiment, folders: Path):
    (folders / "ppo-0" / "final.json").unlink()
    with pytest.raises(RunError, match=r"no run in .* is finished with the declared settings: see `portfolio-sdpo"):
        write_records(experiment, folders, ["ppo-0"], folders.parent)
    with pytest.raises(RunError, match="is finished with the declared settings"):
        write_records(experiment.with_changes(lane=1), folders, None, folders.parent)


def test_what_is_no_record_is_named(experiment: SafetyExperiment, folders: Path, tmp_path: Path):
    (path,) = write_records(experiment, folders, ["sdpo-0"], tmp_path)
    broken = json.loads(path.read_text())
    for change in ({"columns": {}}, {"experiment": "safety-c"}, {"columns": {"episode_return": []}}):
        path.write_text(json.dumps(broken | change))
        with pytest.raises(RunError, match=r"sdpo-0\.json is not a record of a run of safety-toy"):
            find_runs(experiment, path.parent)


def test_the_digest_is_of_everything_but_length_seed_and_fields_added_later(experiment: SafetyExperiment):
    settings = SafetyRun(experiment, "sdpo", 0, Path()).settings()
    digest = hash_settings(settings)
    assert hash_settings(settings.model_copy(update={"iterations": 99, "seed": 7})) == digest
    assert hash_settings(settings.model_copy(update={"lane": 1})) != digest
    written = settings.model_dump(mode="json")
    del written["algorithm"]["backup"]
    assert hash_settings(TrainSettings.model_validate(written)) == digest
