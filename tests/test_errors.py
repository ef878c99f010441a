"""The tree of errors: one root, and the message reaches whoever catches it."""

import inspect

import pytest

from portfolio_sdpo import errors
from portfolio_sdpo.errors import InfeasibleConstraintError, PortfolioSdpoError, SettingsError

CLASSES = [value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_one_root(kind):
    assert issubclass(kind, PortfolioSdpoError)
    assert kind.__doc__


def test_settings_error_is_a_value_error():
    with pytest.raises(ValueError, match=r"eta: must be positive\."):
        raise SettingsError("eta: must be positive.")


def test_infeasible_constraint_carries_the_best_slack():
    error = InfeasibleConstraintError("Phase I ended at slack -0.2; raise the bound.", best_slack=-0.2)
    assert error.best_slack == -0.2
    assert str(error) == "Phase I ended at slack -0.2; raise the bound."
