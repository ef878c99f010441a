"""Presets: the paper's table, what overrules what, and how mistakes are told."""

import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.presets import PRESETS, plan, preset, read_config
from portfolio_sdpo.portfolio.shared_policy import SharedPolicySettings


def test_the_papers_table():
    chosen = plan("paper-stocks", alpha=0.01)
    assert (chosen.fee_bps, chosen.cash, chosen.shield) == (0.0, "zero", False)
    assert list(chosen.agents) == ["sdpo", "ppo"]
    for settings in chosen.agents.values():
        limit, learner = settings.limit, settings.learner
        assert (limit.bound, limit.alpha, limit.horizon) == (0.0, 0.01, 15)
        assert (settings.scenarios, settings.every, settings.discount) == ("window", 1, 0.99)
        assert (settings.first, settings.further) == (5, 5)
        assert abs(settings.episodes * limit.horizon - 1280) < limit.horizon
        assert settings.problem().constraints[0].eta_at(0) == settings.problem().constraints[0].eta_at(99) == 60
        assert (learner.actor.learning_rate, learner.critic.learning_rate) == (1e-4, 1e-3)
        assert learner.actor.hidden == learner.critic.hidden == (64, 64)
        assert (learner.gae_lambda, learner.clip) == (0.9, 0.1)
    assert [settings.learner.kind for settings in chosen.agents.values()] == ["sdpo", "ppo"]
    critic = chosen.agents["sdpo"].learner.critic
    assert (critic.kind, critic.atoms, critic.dimension) == ("quantile", 128, 256)
    assert chosen.agents["sdpo"].learner.estimator == "score"


def test_the_default_is_what_a_user_would_hold():
    chosen = plan("default")
    assert list(chosen.agents) == ["sdpo"] and chosen.shield and chosen.fee_bps == 5
    assert (chosen.limit.bound, chosen.limit.alpha, chosen.limit.horizon) == (-0.05, 0.05, 15)
    assert chosen.agents["sdpo"].learner == SharedPolicySettings(policy="shipped", deviation="earned")
    assert chosen.agents["sdpo"].fee == 5e-4
    assert preset("default", "ppo") == preset("lstm", "ppo")


def test_the_preset_lstm_trains_on_the_prices_at_hand():
    agent = preset("lstm")
    assert agent.learner.kind == "analytic" and agent.scenarios == "bootstrap" and agent.first == 500
    assert (agent.execution, agent.training, agent.shield_form) == ("next-close", "as-deployed", "calibrated")


def test_what_trains_in_place_of_the_trained_policy_has_the_settings_of_lstm():
    """A file that was written for the default when that trained, and names its learner, means what it meant."""
    config = {"history": 60, "learner": {"kind": "analytic", "hidden": [8, 8]}}
    assert preset("default", config=config) == preset("lstm", config=config)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"paths": 16, "first": 5}, "paths"),
        ({"history": 60}, "history"),
        ({"learner": {"learning_rate": 0.1}}, "learner.learning_rate"),
    ],
)
def test_how_to_train_is_refused_where_nothing_is_trained(config, field):
    with pytest.raises(SettingsError, match=rf"^{field}: .* choose the preset lstm"):
        plan("default", config=config)
    assert plan("default", ["sdpo", "ppo"], config={"paths": 16}).agents["ppo"].paths == 16
    assert preset("default", config={"further": 0, "learner": {"deviation": 0.5}}).learner.deviation == 0.5


def test_the_analytic_estimator_by_its_other_name_keeps_the_presets_learner():
    by_name = plan("lstm", config={"learner": {"kind": "sdpo", "estimator": "analytic", "smoothing": 0.5}})
    by_kind = plan("lstm", config={"learner": {"smoothing": 0.5}})
    assert by_name == by_kind and by_name.agents["sdpo"].learner.anneal == 500


@pytest.mark.parametrize("name", PRESETS)
def test_agents_of_a_preset_share_its_limit(name):
    chosen = plan(name, list(PRESETS[name].agents), alpha=0.2, bound=-0.1, horizon=7, fee_bps=3, scenarios="window")
    for settings in chosen.agents.values():
        assert settings.limit == chosen.limit and settings.fee == pytest.approx(3e-4)
        assert (chosen.limit.alpha, chosen.limit.bound, chosen.limit.horizon) == (0.2, -0.1, 7)
        assert settings.scenarios == "window"


def test_what_is_given_counts_before_the_file_and_that_before_the_preset(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        "first = 7\nfee = 0.002\nscenarios = 'window'\n[limit]\nalpha = 0.2\nbound = -0.1\n[learner]\nanneal = 9\n"
    )
    chosen = plan("lstm", config=read_config(path), alpha=0.3)
    settings = chosen.agents["sdpo"]
    assert (settings.first, settings.further) == (7, PRESETS["lstm"].agents["sdpo"].further)
    assert settings.scenarios == "window"
    assert (settings.limit.alpha, settings.limit.bound, settings.limit.horizon) == (0.3, -0.1, 15)
    assert (chosen.fee_bps, settings.fee) == (20.0, 0.002)
    assert (settings.learner.anneal, settings.learner.learning_rate) == (9, 3e-3)
    assert plan("lstm", config=read_config(path), fee_bps=1).agents["sdpo"].fee == 1e-4


def test_a_learner_of_another_kind_takes_the_place_of_the_presets():
    learner = preset("default", config={"learner": {"kind": "sdpo", "estimator": "pathwise"}}).learner
    assert (learner.kind, learner.estimator) == ("sdpo", "pathwise")


def test_none_is_nobody():
    chosen = plan("default", ["none"], bound=-0.02)
    assert chosen.agents == {} and chosen.limit.bound == -0.02


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (("magic",), {}, "preset: there is no 'magic'; there are default, lstm, lstm-same-close, paper-stocks"),
        (("default", ["a2c"]), {}, "algo: there is no agent 'a2c' in the preset default; there are sdpo, ppo, none"),
        (("default", ["ppo", "ppo"]), {}, "algo: name every agent once"),
        (("default", ["ppo", "none"]), {}, "algo: there is no agent 'none'"),
        (("default",), {"alpha": 2.0}, r"CvarLimit.alpha: .* \(got 2.0\)"),
        (("default",), {"config": {"limit": 3}}, "CvarLimit"),
        (("default",), {"scenarios": "dreams"}, "AgentSettings.scenarios: "),
        (("default",), {"cash": "gold"}, "cash: must be zero, tbill or a yearly rate"),
        (("default",), {"config": {"colour": 1}}, "AgentSettings.colour: "),
        (("lstm",), {"config": {"learner": {"smoothing": 3}}}, "AgentSettings.learner.smoothing: "),
        (("default",), {"config": {"learner": {"deviation": 3}}}, "AgentSettings.learner.deviation"),
        (("default",), {"config": {"fee": "dear"}}, "AgentSettings.fee: "),
    ],
)
def test_mistakes_name_what_is_wrong(arguments, changes, message):
    with pytest.raises(SettingsError, match=message):
        plan(*arguments, **changes)


@pytest.mark.parametrize("content", [None, b"first = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_told(tmp_path, content):
    if content is not None:
        (tmp_path / "my.toml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"config: .*my\.toml (cannot be read|is not TOML)"):
        read_config(tmp_path / "my.toml")
