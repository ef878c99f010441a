"""The tree of errors: one root, and the message reaches whoever catches it."""

import inspect

import pytest

from portfolio_sdpo import errors
from portfolio_sdpo.errors import (
    InfeasibleConstraintError,
    Interruption,
    PortfolioSdpoError,
    SettingsError,
    did_you_mean,
)

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if value.__module__ == errors.__name__ and value is not Interruption
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_one_root(kind):
    assert issubclass(kind, PortfolioSdpoError)
    assert kind.__doc__


def test_an_interrupt_is_no_error_that_somebody_might_swallow():
    assert issubclass(Interruption, KeyboardInterrupt) and not issubclass(Interruption, Exception)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("SDOP", " (did you mean 'sdpo'?)"), ("sdpo", " (did you mean 'sdpo'?)"), ("zebra", ""), ("", "")],
)
def test_a_word_that_looks_like_a_known_one_gets_a_hint(word: str, hint: str):
    assert did_you_mean(word, ["ppo", "sdpo"]) == hint


def test_settings_error_is_a_value_error():
    with pytest.raises(ValueError, match=r"eta: must be positive\."):
        raise SettingsError("eta: must be positive.")


def test_infeasible_constraint_carries_the_best_slack():
    error = InfeasibleConstraintError("Phase I ended at slack -0.2; raise the bound.", best_slack=-0.2)
    assert error.best_slack == -0.2
    assert str(error) == "Phase I ended at slack -0.2; raise the bound."
