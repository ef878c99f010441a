"""The one tree of errors that this package raises on purpose.

Every message is one sentence that says what is wrong and what to do next. Whoever catches `PortfolioSdpoError`
catches everything that is the user's or the environment's doing; anything else is a bug.
"""


class PortfolioSdpoError(Exception):
    """Base of all errors of this package; its message is meant for the user."""


class SettingsError(PortfolioSdpoError, ValueError):
    """A setting is out of range or contradicts another one; the message names the field."""


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
