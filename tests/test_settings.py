"""Settings are frozen, closed and finite, and complain in one sentence that names the field."""

import math
import pickle
from typing import Annotated

import pydantic
import pytest
from pydantic import Field

from portfolio_sdpo.errors import PortfolioSdpoError, SettingsError
from portfolio_sdpo.settings import Settings


class Inner(Settings):
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05


class Outer(Settings):
    steps: Annotated[int, Field(gt=0)]
    rate: float = 1.0
    inner: Inner = Inner()

    @pydantic.field_validator("rate")
    @classmethod
    def _rate_is_not_seven(cls, value: float) -> float:
        if value == 7:
            raise ValueError("Seven is not a rate.")
        return value

    @pydantic.model_validator(mode="after")
    def _steps_and_rate_agree(self) -> "Outer":
        if self.rate > self.steps:
            raise ValueError("rate must not exceed steps")
        return self


def test_valid_settings_are_frozen():
    outer = Outer(steps=3)
    assert outer.inner.alpha == 0.05
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        outer.steps = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "Outer.steps: input should be greater than 0 (got 0)."),
        ({}, "Outer.steps: field required."),
        ({"steps": 3, "sleps": 3}, "Outer.sleps: there is no such field (did you mean 'steps'?) (got 3)."),
        ({"steps": 3, "rate": math.nan}, "Outer.rate: input should be a finite number (got nan)."),
        ({"steps": 3, "rate": math.inf}, "Outer.rate: input should be a finite number (got inf)."),
        ({"steps": 8, "rate": 7}, "Outer.rate: seven is not a rate (got 7)."),
        ({"steps": 3, "inner": {"alpha": 1.5}}, "Outer.inner.alpha: input should be less than 1 (got 1.5)."),
        ({"steps": 3, "rate": 4}, "Outer: rate must not exceed steps."),
    ],
)
def test_wrong_settings_name_the_field(fields, message):
    with pytest.raises(SettingsError) as caught:
        Outer(**fields)
    assert str(caught.value) == message
    assert isinstance(caught.value, PortfolioSdpoError)
    assert caught.value.__suppress_context__


def test_every_way_in_complains_alike():
    for make in (
        lambda: Outer(steps=3, inner={"alpha": 2}),
        lambda: Outer.model_validate({"steps": 3, "inner": {"alpha": 2}}),
        lambda: Outer.model_validate_json('{"steps": 3, "inner": {"alpha": 2}}'),
    ):
        with pytest.raises(SettingsError, match=r"^Outer\.inner\.alpha: input should be less than 1 \(got 2\)\.$"):
            make()
    assert Outer.model_validate({"steps": 3}) == Outer(steps=3)


def test_round_trip_through_json_and_pickle():
    outer = Outer(steps=3, inner=Inner(alpha=0.2))
    assert Outer(**outer.model_dump()) == outer
    assert Outer.model_validate_json(outer.model_dump_json()) == outer
    assert pickle.loads(pickle.dumps(outer)) == outer
