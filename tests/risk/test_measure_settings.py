"""Risk measures as settings: written to JSON and read again, and refused with the name of the field."""

import json
import math
from typing import Literal

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import (
    Custom,
    CustomDistortion,
    CVaR,
    Entropic,
    Expectation,
    MeanSemideviation,
    Measure,
    Power,
    RiskMeasure,
    Spectral,
    Wang,
)
from tests.risk.measure_examples import VALUES, WEIGHTS, Spread, every_measure, mean_of, variance_twin


@every_measure
def test_json_round_trip(measure):
    text = measure.model_dump_json()
    assert json.loads(text)["kind"] == measure.kind
    assert TypeAdapter(Measure).validate_json(text) == measure
    assert type(measure)(**json.loads(text)) == measure
    assert hash(measure) == hash(type(measure)(**json.loads(text)))


def test_functions_are_stored_by_import_path():
    measure = Custom(function=variance_twin, name="twin")
    assert json.loads(measure.model_dump_json())["function"] == "tests.risk.measure_examples:variance_twin"
    assert Custom(function="torch:std_mean").function is torch.std_mean


@pytest.mark.parametrize(
    "measure",
    [
        Custom(function=lambda values, weights: mean_of(values, weights)),
        Custom(function=Expectation().evaluate),
        Spectral(distortion=CustomDistortion(function=lambda tau: tau)),
    ],
    ids=["lambda", "bound method", "distortion"],
)
def test_a_function_without_import_path_fails_only_when_written(measure):
    assert measure(VALUES, WEIGHTS).item() == pytest.approx(1.7)
    assert measure.model_dump()
    for write in (measure.model_dump_json, lambda: measure.model_dump(mode="json")):
        with pytest.raises(SettingsError, match=r"function .* cannot be written to a file"):
            write()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: CVaR(alpha=0), "CVaR.alpha"),
        (lambda: CVaR(alpha=1), "CVaR.alpha"),
        (lambda: CVaR(alpha=math.nan), "CVaR.alpha"),
        (lambda: CVaR(), "CVaR.alpha"),
        (lambda: CVaR(alpha=0.1, tail="left"), "CVaR.tail"),
        (lambda: CVaR(alpha=0.1, beta=0.9), "CVaR.beta"),
        (lambda: Entropic(beta=0), "Entropic.beta"),
        (lambda: Entropic(beta=math.inf), "Entropic.beta"),
        (lambda: MeanSemideviation(weight=1.5), "MeanSemideviation.weight"),
        (lambda: MeanSemideviation(weight=0.5, order=0), "MeanSemideviation.order"),
        (lambda: Power(exponent=0), "Power.exponent"),
        (lambda: Wang(shift=math.nan), "Wang.shift"),
        (lambda: Spectral(distortion={"kind": "nope"}), "Spectral.distortion"),
        (lambda: CustomDistortion(function=torch.cos), "CustomDistortion.function"),
        (lambda: CustomDistortion(function=torch.exp), "CustomDistortion.function"),
        (lambda: Custom(function="no colon"), "Custom.function"),
        (lambda: Custom(function="no_such_module:f"), "Custom.function"),
        (lambda: Custom(function="math:no_such_function"), "Custom.function"),
        (lambda: Custom(function=3), "Custom.function"),
        (lambda: Custom(function=lambda v, w: v)(VALUES), "Custom.function"),
        (lambda: Custom(function=lambda v, w: v.mean(-1)).influence(VALUES), "Custom.*weights"),
        (lambda: Custom(function=lambda v, w: (w * w.log()).sum(-1)).influence(VALUES), "Custom.*finite"),
    ],
)
def test_wrong_settings_name_their_field(make, field):
    with pytest.raises(SettingsError, match=field) as caught:
        make()
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_kind_belongs_to_one_class():
    with pytest.raises(TypeError, match="'cvar' belongs to"):

        class Impostor(Spread):
            kind: Literal["cvar"] = "cvar"  # type: ignore[assignment]


def test_a_measure_without_kind_cannot_be_made():
    class Nameless(RiskMeasure):
        def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
            return mean_of(values, weights)

    with pytest.raises(SettingsError, match=r"Nameless\.kind"):
        Nameless()  # type: ignore[call-arg]
