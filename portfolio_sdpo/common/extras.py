"""Optional packages, and the error where one of them is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from portfolio_sdpo.errors import MissingExtraError


def missing_extra(purpose: str, package: str, extra: str) -> MissingExtraError:
    """Return the error for a purpose (the subject of a sentence) that needs a package of an extra.

    >>> print(missing_extra("A report", "plotly", "backtest"))
    A report needs the package plotly: pip install 'portfolio_sdpo[backtest]'.
    """
    return MissingExtraError(f"{purpose} needs the package {package}: pip install 'portfolio_sdpo[{extra}]'.")


def require_extra(purpose: str, package: str, extra: str) -> None:
    """Raise a `MissingExtraError` unless the package is installed; it is not imported."""
    if find_spec(package) is None:
        raise missing_extra(purpose, package, extra)
