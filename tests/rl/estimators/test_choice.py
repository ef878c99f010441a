"""One SDPO, several estimators: what each refuses, what it builds, and how it is called."""

from __future__ import annotations

import copy

import pytest
import torch
from gymnasium import spaces

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.portfolio.analytic import AnalyticSettings
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import PpoSettings, Problem, SdpoSettings, build
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators import name_estimator

TAIL = Problem(constraints=(Constraint.from_spec("cvar(0.1) of reward >= -9"),))


def learner(**fields):
    torch.manual_seed(0)
    return build(SdpoSettings(**fields), TAIL, ObservationCodec(spaces.Discrete(2)), spaces.Discrete(2))


@pytest.mark.parametrize(
    "estimator, field, value",
    [
        ("trajectory", "critic", CriticSettings(kind="mean")),
        ("trajectory", "gae_lambda", 0.5),
        ("trajectory", "risk_atoms", 16),
        ("counterfactual", "pooled", False),
        ("counterfactual", "partners", 8),
    ],
)
def test_settings_that_would_do_nothing_are_refused(estimator, field, value):
    with pytest.raises(SettingsError, match=f"{field}: does nothing with the estimator {estimator}; leave it out"):
        SdpoSettings(estimator=estimator, **{field: value})
    SdpoSettings(estimator=estimator, **{field: SdpoSettings.model_fields[field].default})


def test_a_complete_record_may_hold_them():
    """Files hold every field, and earlier versions wrote critics beside estimators that had no use for them."""
    record = SdpoSettings(critic=CriticSettings(kind="quantile", atoms=8), gae_lambda=0.5).model_dump()
    read = SdpoSettings.model_validate(record | {"estimator": "trajectory"})
    assert read.critic.atoms == 8 and SdpoSettings.model_validate_json(read.model_dump_json()) == read


@pytest.mark.parametrize(
    "estimator, critics, optimisers",
    [("score", True, 3), ("pathwise", True, 4), ("trajectory", False, 1), ("counterfactual", False, 1)],
)
def test_critics_are_built_only_where_they_are_used(estimator, critics, optimisers):
    algorithm = learner(estimator=estimator)
    assert (algorithm.critics is not None) == critics and len(algorithm.optimisers()) == optimisers
    assert any(name.startswith("critics.") for name in algorithm.state_dict()) == critics
    # The policy is drawn first, so that it is the same with each of them.
    for ours, score in zip(algorithm.policy.parameters(), learner().policy.parameters(), strict=True):
        assert torch.equal(ours, score)


def test_a_checkpoint_with_unused_critics_is_still_read():
    """Earlier versions built critics for every estimator and saved them."""
    trained, fresh = learner(estimator="trajectory"), learner(estimator="trajectory")
    state = copy.deepcopy(trained.state_dict()) | learner().critics.state_dict(prefix="critics.")
    fresh.load_state_dict(state)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        fresh.load_state_dict(state | {"other.weight": torch.zeros(1)})


def test_how_settings_are_called():
    def title(label, settings):
        return make_agent_title(label, {"learner": settings.model_dump()})

    assert title("sdpo", AnalyticSettings()) == "SDPO (analytic)" and name_estimator(AnalyticSettings()) == "analytic"
    assert title("sdpo", SdpoSettings(estimator="trajectory")) == "SDPO (trajectory)"
    assert title("ppo", PpoSettings()) == "PPO" and name_estimator(PpoSettings()) is None


def test_the_analytic_estimator_by_either_name():
    """Files say `kind: analytic`; a user may write what it is, SDPO with that estimator."""
    by_kind = AgentSettings.model_validate({"learner": {"kind": "analytic", "hidden": [8, 8]}})
    by_name = AgentSettings.model_validate({"learner": {"kind": "sdpo", "estimator": "analytic", "hidden": [8, 8]}})
    assert by_kind == by_name and by_kind.learner.kind == "analytic"
    with pytest.raises(SettingsError, match="estimator"):
        SdpoSettings(estimator="analytic")
