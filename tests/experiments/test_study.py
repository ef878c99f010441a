"""Studies: found by name, narrowed down by what is asked for, and which of their runs count."""

import json
import shutil
from pathlib import Path

import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.catalogue import FAMILIES, NAMES, STUDIES, find_study, list_studies
from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpStudy
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
from portfolio_sdpo.experiments.stocks.declared import SENSITIVITIES, START_DATES
from portfolio_sdpo.experiments.study import Choice, FinishedRuns


def test_the_catalogue_names_what_the_families_declare():
    """Names are listed there once more, so that the shell's completion need not import the families."""
    stocks = tuple(each.name for each in (*START_DATES, *SENSITIVITIES))
    declared = [tuple(CMDP_EXPERIMENTS), tuple(SAFETY_EXPERIMENTS), stocks]
    assert list(FAMILIES.values()) == declared
    assert [study.name for study in list_studies()] == list(NAMES)


def test_an_unknown_name_is_one_sentence_with_a_suggestion():
    with pytest.raises(SettingsError, match=r"no experiment 'safety-d' \(did you mean 'safety-c'\?\); `portfolio-sdpo"):
        find_study("safety-d")


def test_a_study_of_another_package_is_found_by_its_name(tiny: CmdpExperiment, monkeypatch: pytest.MonkeyPatch):
    study = CmdpStudy(tiny, "a test")
    monkeypatch.setitem(STUDIES._items, "theirs", study)
    assert find_study("theirs") is study and list_studies()[-1] is study
    monkeypatch.setitem(STUDIES._items, "theirs", lambda: study)
    assert find_study("theirs") is study


def test_a_broken_study_of_another_package_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch):
    def broken() -> CmdpStudy:
        raise RuntimeError("no licence")

    monkeypatch.setitem(STUDIES._items, "theirs", broken)
    with pytest.warns(UserWarning, match="the study 'theirs' of another package cannot be made: no licence"):
        assert [study.name for study in list_studies()] == list(NAMES)


@pytest.mark.parametrize(
    ("name", "choice", "message"),
    [
        ("stocks", Choice(cmdp_seeds=(1,)), "--cmdp-seeds: stocks is on stocks and has no CMDP; leave it out."),
        ("safety-c", Choice(cmdp_seeds=(1,)), "--cmdp-seeds: safety-c is on Safety Gym and has no CMDP; leave it out."),
        ("cmdp-cvar", Choice(workers=1), "--workers: cmdp-cvar collects in the run's own process"),
        ("stocks", Choice(overlap=True), "--overlap: stocks collects in the run's own process"),
        ("stocks", Choice(seeds=(3, 3)), "--seeds: must be at least one number"),
        ("cmdp-cvar", Choice(cmdp_seeds=(-1,)), "--cmdp-seeds: must be at least one number"),
        ("safety-c", Choice(iterations=0), "--iterations: must be at least 1 (got 0)."),
        ("safety-c", Choice(algorithms=("cpo",)), "algorithms: safety-c has no 'cpo'"),
    ],
)
def test_what_a_study_does_not_have_cannot_be_selected(name, choice, message):
    with pytest.raises(SettingsError) as told:
        find_study(name).select(choice)
    assert message in str(told.value)


@pytest.mark.parametrize("name", ["cmdp-cvar", "safety-b-pointgoal1-short", "stocks"])
def test_selecting_nothing_changes_nothing_and_seeds_and_labels_count(name):
    study = find_study(name)
    assert study.select(Choice()).experiment == study.experiment and not Choice(iterations=2, workers=1).selects
    label = next(iter(study.experiment.algorithms))
    one = study.select(Choice(seeds=(4,), algorithms=(label,), iterations=3))
    assert one.choice.selects and one.planned_runs == 1 and len(one.runs()) == 1
    assert one.runs()[0].identity()["seed"] == 4


def test_runs_of_other_settings_do_not_count(tiny: CmdpExperiment, tiny_run, tmp_path: Path):
    shutil.copytree(tiny_run[0], tmp_path / "tiny")
    study = CmdpStudy(tiny, "a test", home=tmp_path)
    assert study.finished() == FinishedRuns(("ppo-11-0", "sdpo-11-0", "ppo-12-1", "sdpo-12-1"))
    assert len(study.evidence(study.finished()).runs) == 4 and len(study.draw(study.finished())) == 4
    (tmp_path / "tiny" / "ppo-12-1" / "final.json").unlink()  # not finished
    config = tmp_path / "tiny" / "sdpo-12-1" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"fingerprint": "another"}))
    found = study.finished()
    assert found == FinishedRuns(("ppo-11-0", "sdpo-11-0"), foreign=1)
    assert [(run.label, run.seed) for run in study.evidence(found).runs] == [("ppo", 0), ("sdpo", 0)]
    # Those of another length are foreign altogether.
    longer = CmdpStudy(CmdpExperiment(**{**dict(tiny), "iterations": 5}), "a test", home=tmp_path)
    assert longer.finished() == FinishedRuns((), foreign=4)
