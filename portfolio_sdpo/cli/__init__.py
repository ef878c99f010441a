"""The command line: `portfolio-sdpo ...`, one file per command group, no logic of its own.

To add commands, put a file into this folder with a function that hangs them onto the application:

    def register(app: typer.Typer) -> None:
        app.command("demo")(demo)                            # one command: portfolio-sdpo demo
        app.add_typer(experiment_app, name="experiment")     # a group:     portfolio-sdpo experiment run ...

It is found by itself (a file whose name starts with `_` is a helper). Its module level may import typer and the
standard library; torch, pandas, matplotlib, gymnasium and whatever needs them are imported inside the command, so that
`--help` answers at once (a test watches over this). Raise a `PortfolioSdpoError` for what the user can mend: it is
shown as one sentence, with exit code 1.
"""

import importlib
import pkgutil
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from portfolio_sdpo import __version__
from portfolio_sdpo.errors import PortfolioSdpoError

PROGRAM = "portfolio-sdpo"


class _Application(TyperGroup):
    """Shows an error of ours as one sentence on stderr and exits with 1; `--debug` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PortfolioSdpoError as error:
            if ctx.params["debug"]:
                raise
            typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from None


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="PORTFOLIO_SDPO_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Train, test and serve allocation policies that respect a risk limit."""


def build_app() -> typer.Typer:
    """The application with the commands of every file in this folder."""
    app = typer.Typer(
        name=PROGRAM,
        cls=_Application,
        callback=_options,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if not name.startswith("_"):
            importlib.import_module(f"{__name__}.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the console script."""
    build_app()(prog_name=PROGRAM)
