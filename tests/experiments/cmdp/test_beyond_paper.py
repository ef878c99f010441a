"""Past the paper: grids that change one part at a time, and an objective that is not the expectation."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from portfolio_sdpo.envs import RandomCmdpVectorEnv
from portfolio_sdpo.envs.exact import maximise_cvar, solve_cvar, solve_variance
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.cmdp.beyond_paper import BEYOND
from portfolio_sdpo.experiments.cmdp.declared import find_cmdp_experiment
from portfolio_sdpo.experiments.cmdp.experiment import TUNING_CMDP_SEED, CmdpExperiment
from portfolio_sdpo.experiments.cmdp.figures import make_cmdp_figures
from portfolio_sdpo.experiments.cmdp.references import compute_references
from portfolio_sdpo.experiments.cmdp.report import render_cmdp
from portfolio_sdpo.experiments.cmdp.study import list_cmdp_runs, run_cmdp
from portfolio_sdpo.experiments.cmdp.summary import collect_cmdp_evidence, summarise_cmdp
from portfolio_sdpo.experiments.style import algorithm_colour
from portfolio_sdpo.experiments.tables import NAMES, display_name
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.nn.quantiles import expect
from portfolio_sdpo.risk import Constraint, CVaR, Expectation
from portfolio_sdpo.rl import Problem
from portfolio_sdpo.rl.algorithms import build
from portfolio_sdpo.rl.metrics import read_rows
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

GRIDS = pytest.mark.parametrize("name", ["cmdp-variance-critics", "cmdp-cvar-critics"])


@GRIDS
def test_one_part_changes_at_a_time(name):
    algorithms = find_cmdp_experiment(name).algorithms

    def differing(one, other):
        """Fields that both have, and in which they differ."""
        shared = set(dict(algorithms[one])) & set(dict(algorithms[other]))
        return {field for field in shared if getattr(algorithms[one], field) != getattr(algorithms[other], field)}

    assert differing("sdpo", "sdpo-trajectory") == {"estimator"}
    assert differing("sdpo", "pd-sdpo") == {"kind"}
    assert differing("pd-sdpo", "pd-trajectory") == {"estimator"}
    assert differing("sdpo-trajectory", "pd-trajectory") == {"kind"}
    # A trust region sets its own step.
    assert differing("sdpo", "pcpo") == {"kind", "actor"}
    assert algorithms["pcpo"].critic == algorithms["sdpo"].critic
    assert algorithms["pcpo"].gae_lambda == algorithms["sdpo"].risk_lambda


def best(experiment: CmdpExperiment, constraint: Constraint) -> float:
    """The highest objective within another bound."""
    cmdp, problem = experiment.cmdp.draw(TUNING_CMDP_SEED), experiment.problem
    if isinstance(problem.objective, CVaR):
        return maximise_cvar(cmdp, problem.objective.alpha, (constraint,), problem.discount, episodes=5000).cvar
    if isinstance(constraint.measure, CVaR):
        return solve_cvar(cmdp, constraint.measure.alpha, constraint.bound, problem.discount).mean
    return solve_variance(cmdp, constraint.bound, problem.discount).mean


@pytest.mark.parametrize("experiment", BEYOND, ids=lambda experiment: experiment.name)
def test_the_bounds_bind(experiment: CmdpExperiment):
    """The best policy without them breaks them, and the best within them is right at them."""
    known = compute_references(experiment.cmdp.draw(TUNING_CMDP_SEED), experiment.problem)
    (constraint,) = experiment.problem.constraints
    assert known.optimum is not None
    assert constraint.slack(known.unconstrained.risks[0]) < 0
    assert 0 <= constraint.slack(known.optimum.risks[0]) < 0.05 * abs(constraint.bound)
    assert known.uniform.value < known.optimum.value < known.unconstrained.value
    # What a unit of the bound is worth, by tightening it by one, the barrier's largest price has to exceed.
    tighter = constraint.model_copy(update={"bound": constraint.bound - constraint.sign})
    worth = known.optimum.value - best(experiment, tighter)
    assert 1 / (constraint.eta_at(experiment.iterations) * constraint.margin) > 1.5 * worth > 0
    # A barrier needs a start inside, which the uniform policy is, or phase I has to find.
    needs_phase_one = constraint.slack(known.uniform.risks[0]) < 0
    assert needs_phase_one == any(getattr(settings, "phase_one", 0) for settings in experiment.algorithms.values())


@GRIDS
def test_critics_know_after_the_first_rollout_that_laws_narrow_to_the_end(name):
    """Else the risk advantage of every last step, by which the distribution ends, drowns all others."""
    experiment = find_cmdp_experiment(name)
    cmdp, settings = experiment.cmdp.draw(TUNING_CMDP_SEED), experiment.algorithms["sdpo"]
    env = RandomCmdpVectorEnv(cmdp, experiment.episodes)
    torch.manual_seed(0)
    codec = ObservationCodec(env.single_observation_space)
    learner = build(settings, experiment.problem, codec, env.single_action_space)
    rollout = Collector(env, ["reward"], experiment.cmdp.horizon, seed=0).collect(learner.policy, 0)
    learner.estimator.fit_critics(rollout, torch_generator(stream(0, 0, Purpose.UPDATE)))
    valuation = learner.critics.value(("reward", 0.99), rollout, 32)
    mean = expect(valuation.here, valuation.weight).unsqueeze(-1)
    spread = expect((valuation.here - mean).square(), valuation.weight).sqrt()
    first, last = spread[rollout.step == 0].mean(), spread[rollout.step == experiment.cmdp.horizon - 1].mean()
    assert last < 0.9 * first


@pytest.mark.parametrize("experiment", BEYOND, ids=lambda experiment: experiment.name)
def test_every_label_has_a_name_and_a_colour_of_its_own(experiment: CmdpExperiment):
    assert all(display_name(label) == NAMES[label] for label in experiment.algorithms)
    assert len({algorithm_colour(label) for label in experiment.algorithms}) == len(experiment.algorithms)


def test_what_each_label_maximises(tiny: CmdpExperiment):
    preset = find_cmdp_experiment("cmdp-cvar-objective")
    assert isinstance(preset.problem_of("sdpo-cvar").objective, CVaR)
    assert preset.problem_of("sdpo-mean") == preset.problem.model_copy(update={"objective": Expectation()})
    assert preset.algorithms["sdpo-cvar"] == preset.algorithms["sdpo-mean"]
    assert preset.with_changes(algorithms=("sdpo-cvar",)).objectives == {}
    assert CmdpExperiment.model_validate_json(preset.model_dump_json()) == preset
    with pytest.raises(SettingsError, match=r"objectives.*ipo is none of the algorithms"):
        CmdpExperiment(**{**dict(tiny), "objectives": {"ipo": Expectation()}})


@pytest.fixture(scope="module")
def cautious(tiny: CmdpExperiment) -> CmdpExperiment:
    """The tiny grid with the CVaR as its objective, which one of two SDPOs maximises."""
    fields = {
        **dict(tiny),
        "name": "cautious",
        "cmdp": tiny.cmdp.model_copy(update={"costs": ("wear",), "noise_scale": 4.0}),
        "problem": Problem(
            objective=CVaR(alpha=0.1), constraints=(Constraint.from_spec("expectation of wear <= 9 eta=1"),)
        ),
        "algorithms": dict.fromkeys(("sdpo-cvar", "sdpo-mean"), tiny.algorithms["sdpo"]),
        "objectives": {"sdpo-mean": Expectation()},
        "seeds": (0,),
    }
    return CmdpExperiment(**fields)


@pytest.fixture(scope="module")
def cautious_run(cautious: CmdpExperiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("experiments") / "cautious"
    outcomes = run_cmdp(cautious, jobs=1, root=root)
    assert [outcome.status for outcome in outcomes] == ["finished"] * len(outcomes)
    return root


def test_all_are_measured_by_the_problems_objective(cautious: CmdpExperiment, cautious_run: Path):
    summary = summarise_cmdp(cautious, cautious_run)
    known = compute_references(cautious.cmdp.draw(11), cautious.problem)
    assert known.optimum is not None and known.uniform.objective is not None
    for case in list_cmdp_runs(cautious, cautious_run):
        rows = read_rows(case.folder / "metrics.parquet")
        assert {"integrated_objective", "true_objective", "exact_return", "exact_risk_0"} <= rows[0].keys()
        # The learner's own view is of what it maximises itself.
        maximises_mean = case.label == "sdpo-mean"
        assert (rows[0]["objective"] > rows[0]["true_objective"] + 3) == maximises_mean
    for run in summary.runs:
        assert run.final_objective is not None and run.final_objective < run.final_return - 3
        gained = run.final_objective - known.uniform.objective
        assert run.share_of_gain == pytest.approx(gained / (known.optimum.objective - known.uniform.objective))
    assert summary.references["optimum"]["objective"].mean == pytest.approx(known.optimum.objective)
    assert summary.outdated == ()
    evidence = collect_cmdp_evidence(cautious, cautious_run)
    assert evidence.to_optimum
    assert [run.figures["score"] for run in evidence.runs] == [run.share_of_gain for run in summary.runs]


def test_references_of_a_tail(cautious: CmdpExperiment):
    """Without the bound the best tail is that of the policy that maximises it, not of the one with the best mean."""
    cmdp = cautious.cmdp.draw(11)
    tail = compute_references(cmdp, cautious.problem)
    mean = compute_references(cmdp, cautious.problem_of("sdpo-mean"))
    assert tail.optimum is not None and tail.upper_bound is not None
    assert tail.uniform.value < tail.optimum.value <= tail.upper_bound
    assert tail.optimum.value <= tail.unconstrained.value
    assert tail.unconstrained.mean < mean.unconstrained.mean
    assert mean.uniform.objective is None and mean.uniform.value == mean.uniform.mean == tail.uniform.mean


def test_the_page_and_the_figures_show_the_objective(cautious: CmdpExperiment, cautious_run: Path):
    console = Console(file=io.StringIO(), width=100)
    console.print(render_cmdp(summarise_cmdp(cautious, cautious_run)))
    text = console.file.getvalue()
    assert all(word in text for word in ("objective", "SDPO for CVaR", "SDPO for the mean", "wear <= 9"))
    learning = make_cmdp_figures(cautious, cautious_run)[1].read_text()
    for title in ("(a) 0.1-CVaR of the return", "(b) expected return", "(c) expectation of wear"):
        assert title in learning
    assert "0.1-CVaR" in (cautious_run / "evaluation.svg").read_text()
