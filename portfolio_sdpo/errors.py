"""The errors that this package raises on purpose, in one tree.

Every message is one sentence that says what is wrong and what to do next. `PortfolioSdpoError` covers everything that
the user or the environment can correct; any other exception is a bug.
"""

from collections.abc import Iterable


class PortfolioSdpoError(Exception):
    """Base of all errors of this package; its message is meant for the user."""


class SettingsError(PortfolioSdpoError, ValueError):
    """A setting is out of range or contradicts another one; the message names the field."""


class NotFittedError(PortfolioSdpoError, ValueError, AttributeError):
    """An estimator is asked for what it only knows once it is fitted."""


class EnvironmentFault(PortfolioSdpoError):
    """The environment broke its contract: NaN, a missing signal, a shape that changes."""


class InfeasibleConstraintError(PortfolioSdpoError):
    """No policy satisfies the constraint, or phase I could not find one; carries the best slack reached."""

    def __init__(self, message: str, best_slack: float) -> None:
        super().__init__(message)
        self.best_slack = best_slack


class DivergenceError(PortfolioSdpoError):
    """Training produced a value that is not finite."""


class CheckpointError(PortfolioSdpoError):
    """A checkpoint is corrupt, incomplete or belongs to another run."""


class RunError(PortfolioSdpoError):
    """A run folder or experiment cannot be found, read or continued."""


class SourceError(PortfolioSdpoError):
    """A source of prices did not deliver; its subclasses say why."""


class RateLimitedError(SourceError):
    """The source limits the rate of requests; trying again later helps."""


class SourceUnreachableError(SourceError):
    """No connection, a timeout, or an answer that is not the source's (5xx, truncated)."""


class UnknownTickerError(SourceError):
    """The source does not know the ticker."""


class NoDataInRangeError(SourceError):
    """The source knows the ticker but has no prices of it in the requested range."""


class KeyRefusedError(SourceError):
    """The source needs an API key, or refused the one it was given."""


class LayoutError(PortfolioSdpoError):
    """A file of prices cannot be understood, or can be understood in two ways."""


class DataQualityError(PortfolioSdpoError):
    """Prices that cannot be right; the message names the repair."""


class SnapshotError(PortfolioSdpoError):
    """A snapshot is missing, corrupt, or its name is taken."""


class PortfolioError(PortfolioSdpoError):
    """Prices or weights cannot be traded as asked; its subclasses say why."""


class HistoryError(PortfolioError):
    """Insufficient price history: too few days, no listed stock, or not the requested day."""


class WeightsError(PortfolioError):
    """Weights are not on the simplex over cash and stocks."""


class OrderError(PortfolioError):
    """Weights cannot be turned into orders: a holding, a price or the money is missing or wrong."""


class BacktestError(PortfolioSdpoError):
    """A backtest cannot be run, or its track cannot be measured."""


class RegistryError(PortfolioSdpoError):
    """The registry cannot do what is asked; its subclasses say why."""


class RegistryUnavailableError(RegistryError):
    """The registry's database is locked, unreachable, full or damaged; what it held is as it was."""


class RegistryReplacedError(RegistryUnavailableError):
    """The registry's file has vanished, or another one is in its place."""


class NotRegisteredError(RegistryError):
    """The registry knows no such model, run, job or key, or no champion."""


class ChampionChangedError(RegistryError):
    """The champion is not the one that the caller expected to replace."""


class RetrainBusyError(RegistryError):
    """Another retrain of the same registry is running; the message says whose."""


class ModelCorruptError(RegistryError):
    """The stored content of a model is not what was added."""


class MissingExtraError(PortfolioSdpoError):
    """A package of an optional extra is not installed; the message holds the command that installs it."""


class Interruption(KeyboardInterrupt):
    """Ctrl-C where work was saved; the message is the beginning of a sentence about it: `12 decisions are saved`."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word, empty unless a known word resembles it.

    >>> did_you_mean("SDOP", ["ppo", "sdpo"])
    " (did you mean 'sdpo'?)"
    """
    from difflib import get_close_matches

    by_letters = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_letters, n=1)
    return f" (did you mean {by_letters[close[0]]!r}?)" if close else ""
