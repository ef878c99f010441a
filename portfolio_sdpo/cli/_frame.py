"""How every command reports errors, missing packages, full disks and Ctrl-C, and with which exit code.

An error is one sentence on stderr that says what is wrong and what to do next; with `--json` it is one JSON object,
`{"error": sentence, "kind": class}`, so that stdout holds the result or nothing. Exit codes: 2 for a wrong command line
or setting, 1 for what else the user can correct, 130 for Ctrl-C. A bug keeps its traceback, and `--debug` shows it for
every error.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from portfolio_sdpo.common.plugins import missing_extra
from portfolio_sdpo.errors import Interruption, PortfolioSdpoError, SettingsError

PROGRAM = "portfolio-sdpo"
FAILED, WRONG, INTERRUPTED = 1, 2, 130

_NEXT = {
    errno.ENOSPC: "make room and run the command again",
    errno.EDQUOT: "make room and run the command again",
    errno.EACCES: "correct its permissions or name another place",
    errno.EPERM: "correct its permissions or name another place",
    errno.EROFS: "name another place, or set PORTFOLIO_SDPO_HOME to a folder that can be written to",
    errno.ENOTDIR: "move the file that is in the way, or name another place",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`) and run the command again",
    errno.ENOMEM: "free some memory and run the command again",
}
"""The next step after a fault of the machine, by error number."""
_EXTRAS = {
    "arch": "backtest",
    "skfolio": "backtest",
    "plotly": "backtest",
    "psycopg": "postgres",
    "openpyxl": "excel",
    "mujoco": "safety",
    "xmltodict": "safety",
    "yaml": "safety",
    "imageio": "safety",
    "ray": "cluster",
    "streamlit": "dashboard",
    "fastapi": "serve",
    "uvicorn": "serve",
    "starlette": "serve",
    "anyio": "serve",
}
"""Module → the extra that installs it."""


class Command(TyperCommand):
    """A command whose help shows switches without a value, and what stands for every option that is left out."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As the base class's."""
        _tidy_options(self, ctx)
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A group of commands whose help shows switches without a value."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As the base class's."""
        _tidy_options(self, ctx)
        super().format_help(ctx, formatter)


class Application(Group):
    """The group of all commands; it reports errors as this module describes."""

    arguments: Sequence[str] = ()
    """The command line, without the name of the program."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """As the base class's; remembers the command line."""
        self.arguments = list(sys.argv[1:] if args is None else args)
        return super().main(args, *rest, **options)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """As the base class's, with errors reported."""
        with self._report_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """As the base class's, with errors reported."""
        with self._report_errors(debug=ctx.params["debug"]):
            return super().invoke(ctx)

    @contextmanager
    def _report_errors(self, *, debug: bool = False) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as stop:
            if debug:
                raise
            # After Ctrl-C in code made by `exec`, such as a dataclass's, `python -m` ends by the signal instead of with
            # our exit code, unless later code of that sort runs to its end.
            exec("")
            self._exit(self._describe_interrupt(stop), "Interrupted", INTERRUPTED, "Interrupted")
        except typer.Exit:
            raise
        except Exception as error:
            sentence = None if debug else _describe_error(error)
            if sentence is not None:
                self._exit(sentence, type(error).__name__, WRONG if isinstance(error, SettingsError) else FAILED)
            # A wrong command line, which typer reports for people but not as JSON.
            if not ("--json" in self.arguments and hasattr(error, "format_message") and hasattr(error, "exit_code")):
                raise
            self._exit(error.format_message(), "UsageError", error.exit_code)

    def _exit(self, sentence: str, kind: str, code: int, heading: str = "Error") -> None:
        print_error(sentence, kind, as_json="--json" in self.arguments, heading=heading)
        raise typer.Exit(code) from None

    def _describe_interrupt(self, stop: KeyboardInterrupt) -> str:
        if not isinstance(stop, Interruption):
            return "no work had to be saved."
        sentence = str(stop)
        # A sentence that names a command already says how to continue.
        if "`" not in sentence:
            sentence += f"; continue with `{shlex.join([PROGRAM, *self.arguments])}`"
        return f"{sentence}."


def _tidy_options(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        elif parameter.param_type_name == "option" and not parameter.required and parameter.default is None:
            parameter.show_default = parameter.show_default if isinstance(parameter.show_default, str) else "none"


def print_error(sentence: str, kind: str, *, as_json: bool, heading: str = "Error") -> None:
    """Print an error to stderr: for people, or as one JSON object."""
    if as_json:
        typer.echo(json.dumps({"error": sentence, "kind": kind}), err=True)
    else:
        typer.secho(f"{heading}: {sentence}", fg=typer.colors.RED, err=True)


@contextmanager
def explain_interrupt(what: str) -> Iterator[None]:
    """Say what is saved if Ctrl-C ends the block, unless the block raises an `Interruption` of its own."""
    try:
        yield
    except Interruption:
        raise
    except KeyboardInterrupt:
        raise Interruption(what) from None


def _describe_error(error: Exception) -> str | None:
    """Return the sentence about an error that is not a bug; None for a bug."""
    if isinstance(error, SettingsError):
        # Whoever wrote a wrong setting knows its field and not the class that it goes to.
        return re.sub(r"^(?:(?:[A-Z]\w*)?(?:Settings|Limits?)(?:\.|: ))+(?=[a-z_][\w.]*: )", "", str(error))
    if isinstance(error, PortfolioSdpoError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        return extra and str(missing_extra("This", str(error.name), extra))
    if isinstance(error, OSError) and error.errno in _NEXT:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; {_NEXT[error.errno]}."
    return None
