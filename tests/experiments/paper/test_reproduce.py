"""The pages of `reproduce` on a small grid: what they say, what they leave out, what they remember."""

import json
import shutil
from pathlib import Path

import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpStudy
from portfolio_sdpo.experiments.engine.folders import write_json
from portfolio_sdpo.experiments.engine.grid import Outcome
from portfolio_sdpo.experiments.paper.reproduce import parse_questions, reproduce
from portfolio_sdpo.experiments.study import Study


@pytest.fixture
def study(tiny: CmdpExperiment, tiny_run, tmp_path: Path) -> CmdpStudy:
    """The finished grid, to be changed."""
    shutil.copytree(tiny_run[0], tmp_path / "tiny")
    return CmdpStudy(tiny, "a test", home=tmp_path)


def answer(study: Study, out: Path, scale="laptop", make=None):
    (found,) = reproduce(["A"], scale, out, make, plan=lambda key: [study])
    return found


def test_a_page_and_its_record_say_what_the_runs_say(study: CmdpStudy, tmp_path: Path):
    out = tmp_path / "pages"
    found = answer(study, out)
    record, page = json.loads((out / "a.json").read_text()), (out / "a.html").read_text()
    assert record == json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert {path.name for path in out.iterdir()} == {"a.json", "a.html", "index.html"}
    (told,) = record["studies"]
    assert (told["finished"], told["wanted"], told["failed"], told["foreign"]) == (4, 4, {}, 0)
    (judged,) = record["claims"]
    assert [each["key"] for each in judged["judgements"]] == [f"A{n}" for n in range(1, 8)]
    # Two runs can show nothing, and no run of a rival is there.
    assert {each["verdict"] for each in judged["judgements"]} == {"cannot tell from these runs"}
    assert page.count("<img") == 4 and "no runs of PD-CVaR or PD-VAR" in page and "Smoke." not in page
    assert "http://" not in page and "https://" not in page  # needs nothing but itself
    index = (out / "index.html").read_text()
    assert "4 of 4 runs of tiny" in index and "Not yet run at this scale: question B, C, D." in index


def test_smoke_says_so_on_every_page(study: CmdpStudy, tmp_path: Path):
    found = answer(study, tmp_path / "pages", "smoke")
    assert {each.verdict for judged in found.judged for each in judged.judgements} == {"cannot tell: smoke"}
    assert "They prove nothing" in (tmp_path / "pages" / "a.html").read_text()


def test_nothing_made_yet(tiny: CmdpExperiment, tmp_path: Path):
    found = answer(CmdpStudy(tiny, "a test", home=tmp_path), tmp_path / "pages")
    assert (found.judged, found.results[0].finished) == ((), 0)
    assert "No run is finished yet" in (tmp_path / "pages" / "a.html").read_text()
    assert "No run is finished yet" in (tmp_path / "pages" / "index.html").read_text()


def test_what_failed_or_does_not_count_is_told_and_not_shown(study: CmdpStudy, tmp_path: Path):
    config = tmp_path / "tiny" / "sdpo-12-1" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"fingerprint": "another"}))

    def make(each: Study) -> list[Outcome]:
        return each.run()

    found = answer(study, tmp_path / "pages", make=make)
    (result,) = found.results
    assert (result.finished, result.foreign, result.seconds) == (3, 1, 0.0)  # nothing was made
    assert [each.run for each in result.failed] == ["sdpo-12-1"]
    page = (tmp_path / "pages" / "a.html").read_text()
    assert "holds a run with other settings: add --restart" in page and "1 run in its folder has other settings" in page


def test_time_adds_up_over_calls_that_made_something(study: CmdpStudy, tmp_path: Path):
    shutil.rmtree(tmp_path / "tiny" / "ppo-12-1")

    def make(each: Study) -> list[Outcome]:
        return each.run()

    first = answer(study, tmp_path / "pages", make=make).results[0]
    assert first.seconds > 0 and first.finished == 4
    assert answer(study, tmp_path / "pages", make=make).results[0].seconds == first.seconds


def test_a_folder_has_pages_of_one_scale(study: CmdpStudy, tmp_path: Path):
    write_json(tmp_path / "pages" / "b.json", {"question": "B", "scale": "laptop"})
    with pytest.raises(SettingsError, match=r"--out: .*pages has pages of scale laptop; choose another folder\.$"):
        answer(study, tmp_path / "pages", "paper")


def test_questions_are_letters():
    assert parse_questions(None) == ("A", "B", "C", "D") and parse_questions("c,a") == ("A", "C")
    with pytest.raises(SettingsError, match=r"--question: the paper has no question 'E'; choose from A, B, C and D\."):
        parse_questions("A,E")
