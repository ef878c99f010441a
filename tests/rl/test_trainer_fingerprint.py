"""Fingerprints of runs, as the first versions computed them: a run that was begun then is still recognised."""

from __future__ import annotations

import pytest

import portfolio_sdpo
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import Problem
from portfolio_sdpo.rl.trainer import TrainSettings

MEAN = {"kind": "mean", "hidden": (8,), "dimension": 8, "atoms": 8, "warm_up": 2, "epochs": 1, "minibatches": 2}
QUANTILE = {**MEAN, "kind": "quantile"}
BOTH = ("variance of reward <= 9 eta=1:20:10", "expectation of pain <= 3 discount=1 confidence=1")
VERSION = "0.1.0"
PAIN = ("expectation of pain <= 3",)
PAIN_SUM = ("expectation of pain <= 3 discount=1",)


@pytest.mark.parametrize(
    "algorithm, specs, options, expected",
    [
        ({"kind": "ppo", "critic": MEAN, "entropy": 0.01}, BOTH, {}, "d5b90c19a526ad23"),
        ({"kind": "ppo", "critic": {**MEAN, "fit_first": False}}, BOTH, {"overlap": True}, "132d5cad2bfa802c"),
        ({"kind": "ipo", "critic": MEAN, "credit_discount": 0.5}, PAIN_SUM, {}, "cee3bba159d32ddb"),
        ({"kind": "sdpo", "critic": QUANTILE, "pooled": True}, BOTH, {}, "ed3767936f078a58"),
        (
            {"kind": "sdpo", "critic": {**QUANTILE, "memory": 3, "transitions": 20}, "pooled": True},
            BOTH,
            {},
            "d8c0ea7dbe30e725",
        ),
        ({"kind": "sdpo", "critic": QUANTILE, "estimator": "pathwise", "pooled": True}, BOTH, {}, "2474817243d36b09"),
        ({"kind": "cpo", "critic": MEAN}, PAIN, {}, "a96eb875e38cd3d5"),
        ({"kind": "pcpo", "critic": QUANTILE}, BOTH, {}, "8a1df4b370bcda3a"),
        ({"kind": "pd-cvar"}, ("cvar(0.1) of reward >= -9",), {}, "4ef681fb8872eb81"),
        ({"kind": "pd-var", "baseline": "batch"}, ("variance of reward <= 9",), {}, "2eb130e79e129c51"),
        (
            {"kind": "pd-sdpo", "critic": QUANTILE, "pooled": True},
            ("variance of reward <= 0.1 confidence=1",),
            {},
            "f0c4fb1ece5f05e1",
        ),
    ],
)
def test_fields_that_were_added_later_do_not_change_a_fingerprint(algorithm, specs, options, expected, monkeypatch):
    monkeypatch.setattr(portfolio_sdpo, "__version__", VERSION)
    settings = TrainSettings.model_validate(
        {
            "problem": Problem(discount=0.9, constraints=tuple(map(Constraint.from_spec, specs))),
            "algorithm": {**algorithm, "actor": {"hidden": (4,), "learning_rate": 0.01, "anneal": 20}},
            "iterations": 5,
            "steps": 6,
            **options,
        }
    )
    assert settings.fingerprint("") == expected
    # Read back from a file it is the same, and where and how often is saved does not count.
    again = TrainSettings.model_validate_json(settings.model_dump_json())
    assert again == settings
    assert again.model_copy(update={"checkpoint_every": 99}).fingerprint("") == expected
    assert again.model_copy(update={"seed": 1}).fingerprint("") != expected
