"""Figures by hand: what a made-up log sums up to."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, SafeStart
from portfolio_sdpo.experiments.cmdp.references import Reference, References, compute_references
from portfolio_sdpo.experiments.cmdp.report import render_cmdp
from portfolio_sdpo.experiments.cmdp.study import list_cmdp_runs
from portfolio_sdpo.experiments.cmdp.summary import RunRisk, Spread, summarise_cmdp, summarise_risk
from portfolio_sdpo.experiments.engine.folders import write_json
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.metrics import write_rows

VARIANCE = Constraint.from_spec("variance of reward <= 4")
CVAR = Constraint.from_spec("cvar(0.1) of reward >= 10")


def log(sampled, exact, phases=None, **more):
    phases = phases or [2.0] * len(sampled)
    return [
        {"iteration": float(i), "true_risk_0": t, "exact_risk_0": e, "phase": p, **more}
        for i, (t, e, p) in enumerate(zip(sampled, exact, phases, strict=True))
    ]


def test_one_constraint_of_one_run():
    rows = log(sampled=[3.0, 4.5, 5.0, 3.9], exact=[3.0, 4.0, 4.25, 3.9])
    final = {"true_risk_0": 3.5, "exact_risk_0": 3.75}
    assert summarise_risk(VARIANCE, 0, rows, final) == RunRisk(
        final_sampled=3.5,
        final_sharp=3.75,
        breaks_sampled=0.5,
        breaks_sharp=0.25,
        worst_excess_sampled=1.0,
        worst_excess_sharp=0.25,
    )


def test_phase_one_does_not_count():
    rows = log(sampled=[9.0, 8.0, 3.0, 5.0], exact=[9.0, 8.0, 3.0, 3.0], phases=[1.0, 1.0, 2.0, 2.0])
    risk = summarise_risk(VARIANCE, 0, rows, {"true_risk_0": 3.0, "exact_risk_0": 3.0})
    assert (risk.breaks_sampled, risk.breaks_sharp) == (0.5, 0.0)
    assert (risk.worst_excess_sampled, risk.worst_excess_sharp) == (1.0, 0.0)


def test_a_run_that_never_left_phase_one_has_no_share():
    rows = log(sampled=[9.0], exact=[9.0], phases=[1.0])
    assert summarise_risk(VARIANCE, 0, rows, {"true_risk_0": 9.0, "exact_risk_0": 9.0}).breaks_sampled is None


def test_lower_bounds_are_broken_from_below_and_cvar_has_an_integrated_risk():
    rows = [{"true_risk_0": t, "integrated_risk_0": e} for t, e in ((9.0, 10.5), (11.0, 9.75))]
    risk = summarise_risk(CVAR, 0, rows, {"true_risk_0": 12.0, "integrated_risk_0": 11.5})
    assert risk == RunRisk(12.0, 11.5, 0.5, 0.5, 1.0, 0.25)


def test_without_a_sharp_risk_only_the_sampled_one_is_reported():
    risk = summarise_risk(CVAR, 0, [{"true_risk_0": 9.0}], {"true_risk_0": 9.0})
    assert (risk.final_sharp, risk.breaks_sharp, risk.worst_excess_sharp) == (None, None, None)


def test_spread():
    assert Spread.of([1.0, None, 3.0]) == Spread(2.0, 2.0**0.5)
    assert Spread.of([1.0]) == Spread(1.0, None)
    assert Spread.of([None]) is None


def test_share_of_gain():
    known = References(Reference(10.0, (3.0,)), Reference(40.0, (9.0,)), Reference(30.0, (4.0,)), 31.0)
    assert known.share_of_gain(25.0) == 0.75
    assert known.share_of_gain(25.0, start=20.0) == 0.5
    assert References(known.uniform, known.unconstrained, None, None).share_of_gain(25.0) is None


def test_references_are_in_order(tiny: CmdpExperiment):
    known = compute_references(tiny.cmdp.draw(11), tiny.problem)
    assert known.optimum is not None and known.upper_bound is not None
    assert known.uniform.mean < known.optimum.mean <= known.upper_bound <= known.unconstrained.mean + 1e-9
    assert known.optimum.risks[0] <= 4.0 + 1e-9 < known.unconstrained.risks[0]


@pytest.fixture
def made_up(tiny: CmdpExperiment, tmp_path: Path) -> Path:
    """Two SDPO runs, one PPO run, one that failed and one that is not finished."""
    returns = {"sdpo-11-0": 25.0, "sdpo-12-1": 20.0, "ppo-11-0": 35.0}
    for case in list_cmdp_runs(tiny, tmp_path):
        case.folder.mkdir()
        settings = {
            "algorithm": tiny.algorithms[case.label].model_dump(mode="json"),
            "problem": tiny.problem.model_dump(mode="json"),
        }
        write_json(case.folder / "config.json", {"fingerprint": "", "settings": settings})
        if case.name in returns:
            broken = 4.5 if case.label == "ppo" else 3.5
            more = {"suboptimality_bound": 0.5} if case.label == "sdpo" else {}
            more["exact_return"] = returns[case.name]
            write_rows(case.folder / "metrics.parquet", log([broken] * 4, [broken] * 4, **more))
            figures = {"exact_return": returns[case.name], "true_risk_0": broken, "exact_risk_0": broken}
            case.record(figures)
    for seed, best in ((11, 30.0), (12, 20.0)):
        record = {
            "fingerprint": "",
            "uniform": {"mean": 10.0, "risks": [3.0]},
            "unconstrained": {"mean": 40.0, "risks": [9.0]},
            "optimum": {"mean": best, "risks": [4.0]},
            "upper_bound": best,
        }
        write_json(tmp_path / f"references-{seed}.json", record)
    return tmp_path


def test_an_experiment_sums_up(tiny: CmdpExperiment, made_up: Path):
    summary = summarise_cmdp(tiny, made_up)
    sdpo, ppo = summary.algorithms["sdpo"], summary.algorithms["ppo"]
    assert (sdpo.runs, sdpo.final_return, sdpo.suboptimality_bound) == (2, Spread(22.5, 12.5**0.5), 0.5)
    # (25 − 10) / (30 − 10) and (20 − 10) / (20 − 10)
    assert sdpo.share_of_gain == Spread(0.875, pytest.approx(0.25 / 2**0.5))
    assert sdpo.risks[0]["breaks_sharp"] == Spread(0.0, 0.0)
    assert (ppo.runs, ppo.final_return, ppo.share_of_gain) == (1, Spread(35.0, None), Spread(1.25, None))
    assert (ppo.risks[0]["breaks_sampled"], ppo.risks[0]["worst_excess_sharp"]) == (Spread(1.0, None), 0.5)
    assert ppo.suboptimality_bound is None
    assert summary.references["optimum"]["return"] == Spread(25.0, 50**0.5)
    assert summary.unfinished == ("ppo-12-1",)
    assert (summary.sharp, summary.outdated, summary.failures) == (("exact",), (), {})
    assert json.loads((made_up / "summary.json").read_text())["algorithms"]["ppo"]["runs"] == 1


def test_what_phase_one_earned_is_told_apart(tiny: CmdpExperiment, made_up: Path):
    """All start at 15: of the 15 to the optimum at 30 that leaves, SDPO has earned 10."""
    safe_start = SafeStart(algorithm=tiny.algorithms["sdpo"], iterations=5, episodes=2, bounds=(3.0,))
    started = CmdpExperiment(**{**dict(tiny), "safe_start": safe_start})
    figures = {"exact_return": 15.0, "true_risk_0": 2.5, "exact_risk_0": 2.0}
    for name in ("start-11-0", "start-12-1"):
        (made_up / name).mkdir()
        write_json(made_up / name / "config.json", {"fingerprint": "", "settings": {}})
        write_json(made_up / name / "final.json", {"label": "start", "figures": figures})
        write_rows(made_up / name / "metrics.parquet", log([3.0], [3.0]))
    summary = summarise_cmdp(started, made_up)
    by_name = {f"{run.label}-{run.cmdp_seed}-{run.seed}": run for run in summary.runs}
    assert by_name["sdpo-11-0"].share_from_start == pytest.approx((25 - 15) / (30 - 15))
    assert by_name["ppo-11-0"].share_from_start == pytest.approx((35 - 15) / (30 - 15))
    assert summary.references["start"]["return"] == Spread(15.0, 0.0)
    assert summary.references["start"]["risk_0"] == Spread(2.0, 0.0)
    console = Console(record=True, width=200)
    console.print(render_cmdp(summary))
    assert "from" in (page := console.export_text()) and "start" in page


def test_theorem_1_stands_only_where_no_barrier_ended_on_its_tangent(tiny: CmdpExperiment, made_up: Path):
    folder = made_up / "sdpo-12-1"
    more = {"exact_return": 20.0, "suboptimality_bound": 0.5, "regime_0": "margin"}
    write_rows(folder / "metrics.parquet", log([3.5] * 4, [3.5] * 4, **more))
    summary = summarise_cmdp(tiny, made_up)
    assert [run.suboptimality_bound for run in summary.runs if run.label == "sdpo"] == [0.5, None]
    assert summary.algorithms["sdpo"].suboptimality_bound is None


def test_failed_and_outdated_runs_are_named(tiny: CmdpExperiment, made_up: Path):
    (case,) = (case for case in list_cmdp_runs(tiny, made_up) if case.name == "ppo-12-1")
    case.record_failure(RunError("it fell over."))
    config = json.loads((made_up / "sdpo-11-0" / "config.json").read_text())
    config["settings"]["algorithm"]["clip"] = 0.3
    write_json(made_up / "sdpo-11-0" / "config.json", config)
    summary = summarise_cmdp(tiny, made_up)
    assert summary.failures == {"ppo-12-1": "it fell over."}
    assert summary.outdated == ("sdpo-11-0",)


def test_only_some_runs(tiny: CmdpExperiment, made_up: Path):
    selected = tiny.with_changes(seeds=(0,))
    summary = summarise_cmdp(selected, made_up, only=[run.name for run in list_cmdp_runs(selected, made_up)])
    assert [(run.label, run.seed) for run in summary.runs] == [("ppo", 0), ("sdpo", 0)]


def test_nothing_there_yet(tiny: CmdpExperiment, tmp_path: Path):
    with pytest.raises(RunError, match=r"holds no such runs yet: start them with .*experiment run tiny"):
        summarise_cmdp(tiny, tmp_path)


def test_the_real_thing(tiny: CmdpExperiment, tiny_run):
    summary = summarise_cmdp(tiny, tiny_run[0])
    assert {label: algorithm.runs for label, algorithm in summary.algorithms.items()} == {"ppo": 2, "sdpo": 2}
    assert summary.algorithms["sdpo"].suboptimality_bound is None  # after four iterations a barrier is on its tangent
    assert all(run.share_of_gain is not None for run in summary.runs)
    json.dumps(summary.to_json(), allow_nan=False)
