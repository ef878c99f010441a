"""The declared Safety Gym grids: the paper's tables, changes from the command line, and what a label is given."""

from pathlib import Path

import pytest

import portfolio_sdpo
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS, TASKS, find_safety_experiment
from portfolio_sdpo.experiments.safety.experiment import BarrierSettings, SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.safety.study import SafetyRun
from portfolio_sdpo.risk import BadStateProbability, Expectation

BARRIER = BarrierSettings(eta=1, margin=1)
PAPER = [f"safety-b-{task.lower()}" for task in TASKS] + ["safety-c"]
SHORT = [f"safety-b-{task.lower()}-short" for task in TASKS]
SUITE = [f"safety-b-{task}-suite" for task in ("pointgoal1", "pointgoal2", "cargoal1", "pointbutton1")]
SIX = ["ppo", "ipo", "sdpo", "cpo", "pcpo", "ppo-lagrangian"]


def test_there_are_all_tasks_and_both_questions():
    suite = pytest.importorskip("portfolio_sdpo.envs.safety.env")
    assert suite.TASKS == TASKS and len(TASKS) == 18
    assert list(SAFETY_EXPERIMENTS) == [*PAPER, *SHORT, *SUITE, "safety-c-short"]


@pytest.mark.parametrize("name", PAPER)
def test_paper_presets_equal_the_papers_table(name: str):
    """Appendix A.3, hyperparameters for experiments on Point-Goal2."""
    preset = find_safety_experiment(name)
    assert preset.problem.discount == 0.99
    assert preset.batch == 30_000
    for label, algorithm in preset.algorithms.items():
        assert algorithm.actor.hidden == algorithm.critic.hidden == (256, 256), label
        assert (algorithm.critic.learning_rate, algorithm.gae_lambda) == (1e-3, 0.9), label
    for label in ("ppo", "ipo", "sdpo"):
        algorithm = preset.algorithms[label]
        assert (algorithm.actor.learning_rate, algorithm.clip) == (1e-4, 0.1)
    critic = preset.algorithms["sdpo"].critic
    assert (critic.kind, critic.atoms, critic.dimension) == ("quantile", 128, 256)
    for label in preset.algorithms:
        problem = preset.problem_of(label)
        assert [problem.discount_of(constraint) for constraint in problem.constraints] == [1] * len(problem.constraints)


@pytest.mark.parametrize("task", TASKS)
def test_question_b(task: str):
    preset = find_safety_experiment(f"safety-b-{task.lower()}")
    assert (preset.world.task, preset.world.terminal_hazards) == (task, False)
    assert list(preset.algorithms) == ["ppo", "ipo", "sdpo", "cpo", "pcpo"]
    (constraint,) = preset.problem.constraints
    assert (constraint.signal, constraint.measure, constraint.sense) == ("cost", Expectation(), "<=")
    assert (constraint.bound, constraint.eta) == (25, 30)


@pytest.mark.parametrize("name", ["safety-c", "safety-c-short"])
def test_question_c(name: str):
    preset = find_safety_experiment(name)
    assert (preset.world.task, preset.world.terminal_hazards) == ("PointGoal2", True)
    assert list(preset.algorithms) == ["ppo", "ipo", "sdpo"] + ["sdpo-backup"] * (name == "safety-c-short")
    vases, hazards = preset.problem.constraints
    assert (vases.signal, vases.measure, vases.bound) == ("vases", Expectation(), 10)
    assert (hazards.signal, hazards.measure, hazards.bound) == ("hazards", BadStateProbability(), 0.1)


def test_eta_of_question_c_is_each_algorithms_own():
    preset = find_safety_experiment("safety-c")
    etas = {label: [each.eta for each in preset.problem_of(label).constraints] for label in ("ipo", "sdpo")}
    assert etas == {"ipo": [60, 60], "sdpo": [40, 60]}
    names = {label: [each.name for each in preset.problem_of(label).constraints] for label in preset.algorithms}
    assert names["ppo"] == names["ipo"] == names["sdpo"]


@pytest.mark.parametrize("name", PAPER)
def test_the_start_is_no_motion_with_little_noise(name: str):
    algorithms = find_safety_experiment(name).algorithms
    assert all(algorithm.actor.initial_std <= 0.2 for algorithm in algorithms.values())


@pytest.mark.parametrize("preset", SAFETY_EXPERIMENTS.values(), ids=SAFETY_EXPERIMENTS)
def test_presets_survive_a_file(preset: SafetyExperiment):
    assert SafetyExperiment.model_validate_json(preset.model_dump_json()) == preset


@pytest.mark.parametrize("name", [*SHORT, *SUITE, "safety-c-short"])
def test_short_ones_are_short(name: str):
    """A million steps for goals, half of that for the rest; the first two keep what was declared when they were run."""
    preset = find_safety_experiment(name)
    steps = {label: preset.iterations_of(label) * preset.batch for label in preset.algorithms}
    first = name in ("safety-b-pointgoal1-short", "safety-c-short")
    usual = 1_000_000 if "goal" in name and not first else 500_000
    longer = {"sdpo-backup": 2_000_000} if first else {}
    longer |= {"sdpo": 2_000_000} if name == "safety-b-pointgoal1-short" else {}
    assert steps == dict.fromkeys(preset.algorithms, usual) | longer
    assert len(preset.seeds) >= 3


@pytest.mark.parametrize("name", [*SHORT, *SUITE])
def test_short_ones_are_one_family(name: str):
    """The same algorithms with the same settings on every task; on the first one SDPO has two names."""
    preset, family = find_safety_experiment(name), find_safety_experiment("safety-b-doggopush2-short")
    first = name == "safety-b-pointgoal1-short"
    assert list(preset.algorithms) == SIX + ["sdpo-backup"] * first
    for label, algorithm in family.algorithms.items():
        here = "sdpo-backup" if label == "sdpo" and first else label
        assert preset.algorithms[here] == algorithm
        assert preset.problem_of(here) == family.problem_of(label)
    assert preset.algorithms["sdpo-backup" if first else "sdpo"].backup is not None
    assert preset.algorithms["ipo"].backup is None


def test_suites_own_worlds_have_no_options():
    for name in SUITE:
        world = find_safety_experiment(name).world
        assert world == WorldSettings(task=world.task)
    assert find_safety_experiment("safety-b-cargoal1-short").world.folded is False
    assert find_safety_experiment("safety-b-pointgoal2-short").world.folded is True


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("ppo", "b5e8ab5a2e1013ca"),
        ("ipo", "12a4e5e53b0be0ad"),
        ("sdpo", "c21bcc1f8c358951"),
        ("cpo", "a1a4e4fe5c3baf72"),
        ("pcpo", "cf238eeb4ee2d528"),
    ],
)
def test_folders_of_the_first_runs_still_open(label: str, expected: str, monkeypatch):
    """Fingerprints as they were when there was no other short experiment."""
    monkeypatch.setattr(portfolio_sdpo, "__version__", "0.1.0")
    preset = find_safety_experiment("safety-b-pointgoal1-short")
    assert SafetyRun(preset, label, 0, Path()).settings().fingerprint("") == expected


def test_changes_leave_the_rest_as_it_was():
    preset = find_safety_experiment("safety-c").with_changes(lengths={"sdpo": 1000})
    changed = preset.with_changes(iterations=7, algorithms=("ipo",), seeds=(4,))
    assert (changed.iterations_of("ipo"), changed.seeds, list(changed.algorithms)) == (7, (4,), ["ipo"])
    assert (list(changed.barriers), changed.lengths) == (["ipo"], {})
    assert changed.problem_of("ipo") == preset.problem_of("ipo")
    assert preset.with_changes() == preset
    # One length for all: also for those that declare another.
    assert preset.with_changes(iterations=7).iterations_of("sdpo") == 7
    assert preset.with_changes(algorithms=("sdpo", "ppo")).lengths == preset.lengths


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "SafetyExperiment.iterations"),
        ({"seeds": (1, 1)}, "SafetyExperiment.seeds: must be at least one number"),
        ({"algorithms": ("dqn",)}, "safety-c has no 'dqn'; it has ppo, ipo, sdpo"),
        ({"lane": 31}, "SafetyExperiment.lane: must not be more than there are episodes"),
        ({"lengths": {"cpo": 3}}, "SafetyExperiment.lengths: there is no algorithm 'cpo'"),
        ({"barriers": {"cpo": 2 * (BARRIER,)}}, "SafetyExperiment.barriers: there is no algorithm 'cpo'"),
        ({"barriers": {"ipo": (BARRIER,)}}, "SafetyExperiment.barriers: must have one of them for every constraint"),
    ],
)
def test_wrong_changes_name_the_field(changes, message: str):
    with pytest.raises(SettingsError, match=message):
        find_safety_experiment("safety-c").with_changes(**changes)


def test_unknown_names():
    with pytest.raises(SettingsError, match=r"no experiment 'safety-d' \(did you mean 'safety-c'\?\); choose one"):
        find_safety_experiment("safety-d")
    with pytest.raises(SettingsError, match=r"WorldSettings.task: must be one of PointGoal1, "):
        WorldSettings(task="AntGoal1")
