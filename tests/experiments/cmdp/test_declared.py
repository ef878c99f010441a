"""The declared grids: the paper's table, the bounds of the issue, and changes from the command line."""

import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS, find_cmdp_experiment
from portfolio_sdpo.experiments.cmdp.experiment import TUNING_CMDP_SEED, CmdpExperiment
from portfolio_sdpo.risk import CVaR, Variance


def test_which_experiments_there_are():
    assert {name: list(preset.algorithms) for name, preset in CMDP_EXPERIMENTS.items()} == {
        "cmdp-cvar": ["ppo", "sdpo", "pd-cvar"],
        "cmdp-variance": ["ppo", "sdpo", "pd-var"],
        "cmdp-cvar-binding": ["ppo", "sdpo", "pd-cvar"],
        "cmdp-variance-binding": ["ppo", "sdpo", "pd-var"],
        "cmdp-variance-critics": ["sdpo", "sdpo-trajectory", "pd-sdpo", "pd-trajectory", "pcpo"],
        "cmdp-cvar-critics": ["sdpo", "sdpo-trajectory", "pd-sdpo", "pd-trajectory", "pcpo"],
        "cmdp-cvar-objective": ["sdpo-cvar", "sdpo-mean"],
    }


@pytest.mark.parametrize("name", ["cmdp-cvar", "cmdp-variance"])
def test_paper_presets_equal_the_papers_table(name):
    """Appendix A.1, hyperparameters for experiments on random CMDP."""
    preset = find_cmdp_experiment(name)
    assert (preset.cmdp.states, preset.cmdp.actions, preset.cmdp.horizon, preset.cmdp.noise_scale) == (1000, 10, 100, 0)
    assert preset.problem.discount == 0.99
    assert preset.episodes * preset.cmdp.horizon == 1000  # batch size
    for label, algorithm in preset.algorithms.items():
        assert algorithm.actor.learning_rate == 1e-4, label
        assert algorithm.actor.hidden == (64, 64), label
    for label in ("ppo", "sdpo"):
        algorithm = preset.algorithms[label]
        assert (algorithm.critic.learning_rate, algorithm.critic.hidden) == (1e-3, (64, 64))
        assert (algorithm.gae_lambda, algorithm.clip) == (0.9, 0.2)
    sdpo = preset.algorithms["sdpo"]
    assert (sdpo.critic.kind, sdpo.critic.atoms, sdpo.critic.dimension) == ("quantile", 128, 256)
    assert [constraint.eta for constraint in preset.problem.constraints] == [20.0]
    assert preset.safe_start is not None


@pytest.mark.parametrize(
    ("name", "measure", "sense", "bound", "noise_scale"),
    [
        ("cmdp-cvar", CVaR(alpha=0.1), ">=", 51, 0),
        ("cmdp-variance", Variance(), "<=", 2, 0),
        ("cmdp-cvar-binding", CVaR(alpha=0.1), ">=", 24, 4),
        ("cmdp-variance-binding", Variance(), "<=", 12, 1),
    ],
)
def test_bounds(name, measure, sense, bound, noise_scale):
    preset = find_cmdp_experiment(name)
    (constraint,) = preset.problem.constraints
    assert (constraint.signal, constraint.measure, constraint.sense, constraint.bound) == (
        "reward",
        measure,
        sense,
        bound,
    )
    assert preset.cmdp.noise_scale == noise_scale


def test_variance_binding_has_the_budget_of_the_issue():
    preset = find_cmdp_experiment("cmdp-variance-binding")
    assert (preset.iterations, preset.episodes * preset.cmdp.horizon, preset.safe_start) == (400, 2000, None)


@pytest.mark.parametrize("preset", CMDP_EXPERIMENTS.values(), ids=CMDP_EXPERIMENTS)
def test_nothing_is_reported_on_the_cmdp_that_settings_were_tuned_on(preset: CmdpExperiment):
    assert TUNING_CMDP_SEED not in preset.cmdp_seeds
    assert len(preset.runs()) >= 5


@pytest.mark.parametrize("preset", CMDP_EXPERIMENTS.values(), ids=CMDP_EXPERIMENTS)
def test_presets_survive_a_file(preset: CmdpExperiment):
    assert CmdpExperiment.model_validate_json(preset.model_dump_json()) == preset


def test_run_k_is_on_the_kth_cmdp(tiny: CmdpExperiment):
    assert tiny.runs() == [(11, 0), (12, 1)]
    assert tiny.with_changes(seeds=(0, 1, 2, 5)).runs() == [(11, 0), (12, 1), (11, 2), (12, 5)]
    assert tiny.with_changes(cmdp_seeds=(7,)).runs() == [(7, 0), (7, 1)]


def test_changes_leave_the_rest_as_it_was(tiny: CmdpExperiment):
    changed = tiny.with_changes(iterations=7, algorithms=("sdpo",))
    assert (changed.iterations, list(changed.algorithms)) == (7, ["sdpo"])
    assert changed.algorithms["sdpo"] == tiny.algorithms["sdpo"]
    assert tiny.with_changes() == tiny


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "CmdpExperiment.iterations"),
        ({"seeds": (1, 1)}, "CmdpExperiment.seeds"),
        ({"seeds": (-1,)}, "CmdpExperiment.seeds"),
        ({"cmdp_seeds": ()}, "CmdpExperiment.cmdp_seeds"),
        ({"algorithms": ("dqn",)}, "tiny has no 'dqn'; it has ppo, sdpo"),
    ],
)
def test_wrong_changes_name_the_field(tiny: CmdpExperiment, changes, message):
    with pytest.raises(SettingsError, match=message):
        tiny.with_changes(**changes)


def test_a_label_must_fit_into_a_folder_name(tiny: CmdpExperiment):
    with pytest.raises(SettingsError, match=r"'start' cannot be a label"):
        CmdpExperiment(**{**dict(tiny), "algorithms": {"start": tiny.algorithms["ppo"]}})


def test_unknown_experiment():
    with pytest.raises(SettingsError, match=r"no experiment 'cmdp'; choose one of cmdp-cvar, "):
        find_cmdp_experiment("cmdp")
