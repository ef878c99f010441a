"""The command line: `portfolio-sdpo ...`, one file per command or group, no logic of its own.

To add commands, put a file into this folder with a function that adds them to the application:

    def register(app: typer.Typer) -> None:
        app.command("demo", epilog=examples("demo"))(demo)   # one command: portfolio-sdpo demo
        app.add_typer(experiment_app, name="experiment")     # a group:     portfolio-sdpo experiment run ...

It is found automatically (a file whose name starts with `_` is a helper). Its module level may import typer and the
standard library; torch, pandas, matplotlib, gymnasium and whatever needs them are imported inside the command, so that
`--help` and the shell's completion answer at once (tests check this). Raise a `PortfolioSdpoError` for what the user
can correct: it is shown as one sentence, with exit code 2 if it is a `SettingsError` and 1 otherwise. `_frame`
describes the handling of all other errors.
"""

import sys

# Before anything is imported that an older Python cannot read.
if sys.version_info < (3, 11):  # noqa: UP036  (pip would not install it, but a checkout can be run)
    raise SystemExit(
        f"Error: portfolio_sdpo needs Python 3.11 or newer and this is Python {sys.version.split()[0]}: install it "
        "into an environment with a newer Python."
    )

import importlib
import inspect
import pkgutil
from typing import Annotated

import typer

from portfolio_sdpo import __version__
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._frame import PROGRAM, Application, Command, Group

PANELS = {
    "Start here": ("demo", "doctor", "dashboard"),
    "Prices and portfolios": ("data", "train", "backtest", "report"),
    "Live": ("retrain", "models", "orders", "serve", "keys", "registry"),
    "Research": ("experiment", "reproduce"),
}
"""Heading in `--help` → its commands, in the order in which a new user needs them."""


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
    """Build the application with the commands of every file in this folder."""
    app = typer.Typer(
        name=PROGRAM,
        cls=Application,
        callback=_options,
        no_args_is_help=True,
        epilog=examples("demo", "data fetch --source sample --name nine", "backtest --snapshot nine", "doctor"),
        pretty_exceptions_enable=False,
    )
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if not name.startswith("_"):
            importlib.import_module(f"{__name__}.{name}").register(app)
    _arrange_help(app)
    return app


def _arrange_help(app: typer.Typer) -> None:
    """Put commands under their headings, in order, and let paragraphs of help fill the width of the terminal."""
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    order = {name: number for number, name in enumerate(panels)}
    app.registered_commands.sort(key=lambda entry: order.get(str(entry.name), len(order)))
    app.registered_groups.sort(key=lambda entry: order.get(str(entry.name), len(order)))
    for command in app.registered_commands:
        command.rich_help_panel = panels.get(str(command.name), "More")
    for group in app.registered_groups:
        group.rich_help_panel = panels.get(str(group.name), "More")
        group.cls = Group
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance is not None]
    for command in (command for each in (app, *groups) for command in each.registered_commands):
        text = command.help or inspect.getdoc(command.callback) or ""
        command.cls = Command
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def main() -> None:
    """Entry point of the console script."""
    build_app()(prog_name=PROGRAM)
