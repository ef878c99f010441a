"""Constraints: slack, schedules, what is refused, and the compact line of the command line."""

import json
import math
from itertools import pairwise

import pytest
import torch

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import (
    BadStateProbability,
    Constraint,
    Custom,
    CVaR,
    Entropic,
    EtaSchedule,
    Expectation,
    MeanSemideviation,
    Power,
    Spectral,
    Variance,
    Wang,
)

VARIANCE = {"signal": "reward", "measure": Variance(), "sense": "<=", "bound": 12}


def test_slack_is_positive_inside_whatever_the_sense():
    below = Constraint(**VARIANCE)
    above = Constraint(signal="reward", measure=CVaR(alpha=0.1), sense=">=", bound=51)
    assert (below.slack(10.0), below.slack(13.0)) == (2, -1)
    assert (above.slack(52.0), above.slack(50.0)) == (1, -1)
    risk = torch.tensor([10.0, 13.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(below.slack(risk).sum(), risk)
    assert gradient.tolist() == [-1, -1]


def test_confidence_takes_standard_errors_off_the_slack():
    constraint = Constraint(**VARIANCE, confidence=2)
    assert constraint.slack(10.0, standard_error=0.5) == 1
    assert constraint.slack(10.0) == 2


def test_eta_grows_geometrically_and_then_stays():
    constraint = Constraint(**VARIANCE, eta=EtaSchedule(start=500, end=20_000, iterations=100))
    etas = [constraint.eta_at(iteration) for iteration in range(101)]
    assert (etas[0], etas[100], constraint.eta_at(1000)) == (500, 20_000, 20_000)
    ratios = [later / earlier for earlier, later in pairwise(etas)]
    assert ratios == pytest.approx([40 ** (1 / 100)] * 100)
    assert Constraint(**VARIANCE, eta=3).eta_at(77) == 3


def test_name_is_derived_unless_given():
    assert Constraint(**VARIANCE).name == "variance of reward <= 12"
    assert Constraint(**VARIANCE, name="calm").name == "calm"


def test_bad_state_probability_is_undiscounted():
    fields = {"signal": "crash", "measure": BadStateProbability(), "sense": "<=", "bound": 0.01}
    assert Constraint(**fields).discount == Constraint(**fields, discount=1).discount == 1
    assert Constraint(**VARIANCE).discount is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bound": math.nan}, "bound"),
        ({"bound": math.inf}, "bound"),
        ({"bound": 0}, "bound.*positive"),
        ({"bound": -3}, "bound.*positive"),
        ({"sense": ">="}, "sense.*'<='"),
        ({"sense": "<"}, "sense"),
        ({"signal": ""}, "signal"),
        ({"measure": CVaR(alpha=0.1)}, "sense.*'>='.*measure.tail 'upper'"),
        ({"measure": CVaR(alpha=0.1, tail="upper"), "sense": ">="}, "sense.*'<='.*measure.tail 'lower'"),
        ({"measure": MeanSemideviation(weight=0.5)}, "sense.*'>='.*measure.tail 'upper'"),
        ({"measure": {"kind": "cvar", "alpha": 1.5}}, "measure.*alpha"),
        ({"measure": {"kind": "nope"}}, "measure.*kind.*cvar"),
        ({"measure": {}}, "measure.*kind"),
        ({"measure": 3}, "measure"),
        ({"measure": BadStateProbability(), "bound": 1.2}, "bound.*probability"),
        ({"measure": BadStateProbability(), "bound": 0}, "bound.*probability"),
        ({"measure": BadStateProbability(), "bound": 0.1, "sense": ">="}, "sense.*'<='"),
        ({"measure": BadStateProbability(), "bound": 0.1, "discount": 0.99}, "discount.*1"),
        ({"eta": 0}, "eta.*greater than 0"),
        ({"eta": {"start": 0, "end": 1, "iterations": 1}}, "eta.*start"),
        ({"eta": {"start": 2, "end": 1, "iterations": 1}}, "eta.*end.*grows"),
        ({"eta": {"start": 1, "end": 2, "iterations": 0}}, "eta.*iterations"),
        ({"discount": 0}, "discount"),
        ({"discount": 1.01}, "discount"),
        ({"margin": 0}, "margin"),
        ({"confidence": -1}, "confidence"),
        ({"colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_wrong_settings_name_their_field(changes, field):
    with pytest.raises(SettingsError, match=rf"Constraint\.{field}") as caught:
        Constraint(**{**VARIANCE, **changes})
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


LINES = [
    ("cvar(0.1) of reward >= 51", CVaR(alpha=0.1)),
    ("cvar[0.1] of cost<=51", CVaR(alpha=0.1, tail="upper")),
    ("variance of reward <= 12", Variance()),
    ("expectation of cost <= 25", Expectation()),
    ("bad-state-probability of crash <= 1e-2", BadStateProbability()),
    ("entropic(-0.5) of reward >= -3", Entropic(beta=-0.5)),
    ("mean-semideviation(0.5) of reward >= 3", MeanSemideviation(weight=0.5)),
    ("mean-semideviation(0.5, 2) of cost <= 3", MeanSemideviation(weight=0.5, order=2, tail="upper")),
    ("wang(0.7) of reward >= 3", Spectral(distortion=Wang(shift=0.7))),
    ("power (2) of reward >= 3", Spectral(distortion=Power(exponent=2))),
    ("custom(torch:dot) of reward >= 3", Custom(function=torch.dot)),
]


@pytest.mark.parametrize(("line", "measure"), LINES)
def test_a_line_gives_its_constraint(line, measure):
    constraint = Constraint.from_spec(line)
    assert constraint.measure == measure
    if not isinstance(measure, Custom):
        assert Constraint.from_spec(constraint.name) == constraint
        assert Constraint(**json.loads(constraint.model_dump_json())) == constraint
        assert Constraint.model_validate_json(constraint.model_dump_json()) == constraint


def test_options_of_a_line():
    constraint = Constraint.from_spec("cvar(0.1) of reward >= 51 eta=30 discount=1 margin=0.5 confidence=2")
    assert (constraint.eta, constraint.discount, constraint.margin, constraint.confidence) == (30, 1, 0.5, 2)
    assert (constraint.signal, constraint.sense, constraint.bound) == ("reward", ">=", 51)
    scheduled = Constraint.from_spec("variance of reward <= 12 eta=1:20:400")
    assert scheduled.eta == EtaSchedule(start=1, end=20, iterations=400)
    assert Constraint(**json.loads(scheduled.model_dump_json())) == scheduled


@pytest.mark.parametrize(
    ("eta", "sentence"),
    [
        (0, "Constraint.eta: input should be greater than 0 (got 0)."),
        ("x", "Constraint.eta: input should be a valid number, unable to parse string as a number (got 'x')."),
        ({"start": 1, "end": 2}, "Constraint.eta.iterations: field required."),
        ({"start": 0, "end": 2, "iterations": 3}, "Constraint.eta.start: input should be greater than 0 (got 0)."),
    ],
)
def test_a_wrong_eta_is_called_eta(eta, sentence):
    with pytest.raises(SettingsError) as caught:
        Constraint(**VARIANCE, eta=eta)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "must read like"),
        ("cvar(0.1) reward >= 51", "must read like"),
        ("cvar(0.1) of reward", "must read like"),
        ("cvar(0.1) of reward > 51", "sense: must be <= or >=, not >"),
        ("var(0.1) of reward >= 51", "measure: 'var' is none of .*cvar.*wang"),
        ("spectral of reward >= 51", "measure: 'spectral' is none of"),
        ("cvar of reward >= 51", r"measure: must be given as cvar\(alpha\)"),
        ("cvar(0.1, 0.2) of reward >= 51", r"measure: must be given as cvar\(alpha\)"),
        ("variance(2) of reward <= 51", "measure: must be given as plain variance"),
        ("cvar(tenth) of reward >= 51", "alpha.*number.*tenth"),
        ("cvar(10) of reward >= 51", "alpha.*less than 1"),
        ("cvar(0.1) of reward >= much", "bound.*number.*much"),
        ("cvar(0.1) of reward >= nan", "bound.*finite"),
        ("cvar(0.1) of reward >= 51 eta", "'eta' is no option; give eta="),
        ("cvar(0.1) of reward >= 51 alpha=3", "'alpha=3' is no option"),
        ("cvar(0.1) of reward >= 51 eta=1 eta=2", "eta: given twice"),
        ("cvar(0.1) of reward >= 51 eta=1:2", "eta: must be a number or start:end:iterations"),
        ("cvar(0.1) of reward >= 51 eta=-1", "eta.*greater than 0"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line, sentence):
    with pytest.raises(SettingsError, match=sentence):
        Constraint.from_spec(line)


def test_a_constraint_with_a_lambda_works_until_it_is_written():
    constraint = Constraint(
        signal="reward", measure=Custom(function=lambda v, w: (w * v).sum(-1), name="mean"), sense=">=", bound=1
    )
    assert constraint.name == "mean of reward >= 1"
    with pytest.raises(SettingsError, match=r"function .* cannot be written"):
        constraint.model_dump_json()
