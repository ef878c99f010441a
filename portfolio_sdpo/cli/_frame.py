"""What holds for every command: how errors, missing packages, full disks and Ctrl-C are told, and with which exit code.

One sentence on stderr that says what is wrong and what to do next; with `--json` one JSON object there instead,
`{"error": sentence, "kind": class}`, so that stdout holds the answer or nothing. Exit codes: 1 what the user can mend,
2 a wrong command line, 130 Ctrl-C. A bug keeps its traceback, and `--debug` shows it for every error.
"""

from __future__ import annotations

import errno
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from portfolio_sdpo.common.extras import missing_extra
from portfolio_sdpo.errors import Interrupted, PortfolioSdpoError

PROGRAM = "portfolio-sdpo"
FAILED, INTERRUPTED = 1, 130

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
"""What is to be done about faults of the machine, wherever they strike."""
_EXTRAS = {
    "arch": "backtest",
    "skfolio": "backtest",
    "plotly": "backtest",
    "psycopg": "postgres",
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
"""Modules that come with an extra."""


class Command(TyperCommand):
    """A command whose help shows switches as what they are, without a value."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As the base class's."""
        _tidy_switches(self, ctx)
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A group of commands with such a help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As the base class's."""
        _tidy_switches(self, ctx)
        super().format_help(ctx, formatter)


class Application(Group):
    """The group of all commands, whose errors are told as this file says."""

    given: Sequence[str] = ()
    """The command line, without the name of the program."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """As the base class's; remembers what was typed."""
        self.given = list(sys.argv[1:] if args is None else args)
        return super().main(args, *rest, **options)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """As the base class's, with errors told."""
        with self._told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """As the base class's, with errors told."""
        with self._told(debug=ctx.params["debug"]):
            return super().invoke(ctx)

    @contextmanager
    def _told(self, *, debug: bool = False) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as stop:
            if debug:
                raise
            self._end(self._interrupted(stop), Interrupted.__name__, INTERRUPTED, "Interrupted")
        except typer.Exit:
            raise
        except Exception as error:
            sentence = None if debug else _sentence(error)
            if sentence is not None:
                self._end(sentence, type(error).__name__, FAILED)
            # A wrong command line, which typer tells nicely, but not to machines.
            if not ("--json" in self.given and hasattr(error, "format_message") and hasattr(error, "exit_code")):
                raise
            self._end(error.format_message(), "UsageError", error.exit_code)

    def _end(self, sentence: str, kind: str, code: int, heading: str = "Error") -> None:
        tell(sentence, kind, as_json="--json" in self.given, heading=heading)
        raise typer.Exit(code) from None

    def _interrupted(self, stop: KeyboardInterrupt) -> str:
        if not isinstance(stop, Interrupted):
            return "nothing was under way that would have to be saved."
        sentence = str(stop)
        # Who names a command of its own knows better.
        if "`" not in sentence:
            sentence += f"; go on with `{shlex.join([PROGRAM, *self.given])}`"
        return f"{sentence}."


def _tidy_switches(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""


def tell(sentence: str, kind: str, *, as_json: bool, heading: str = "Error") -> None:
    """An error on stderr: for people, or as one JSON object."""
    if as_json:
        typer.echo(json.dumps({"error": sentence, "kind": kind}), err=True)
    else:
        typer.secho(f"{heading}: {sentence}", fg=typer.colors.RED, err=True)


@contextmanager
def saved(what: str) -> Iterator[None]:
    """Say what is kept if the block is interrupted, unless it knows better."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(what) from None


def _sentence(error: Exception) -> str | None:
    """What is told of an error; None if it is none that can be foreseen."""
    if isinstance(error, PortfolioSdpoError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        return extra and str(missing_extra("This", str(error.name), extra))
    if isinstance(error, OSError) and error.errno in _NEXT:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; {_NEXT[error.errno]}."
    return None
