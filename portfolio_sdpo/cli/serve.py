"""`portfolio-sdpo serve`: today's weights of the champion over HTTP."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.common.plugins import missing_extra
from portfolio_sdpo.errors import SettingsError

PREFIX = "PORTFOLIO_SDPO_SERVE_"


def serve(
    host: Annotated[
        str,
        typer.Option(
            "--host", envvar=PREFIX + "HOST", help="The address to listen on; other than loopback only with an API key."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", envvar=PREFIX + "PORT", min=0, max=65535, help="The port to listen on; 0: any free port."
        ),
    ] = 8000,
    place: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            envvar="PORTFOLIO_SDPO_REGISTRY",
            help="The registry: a file or postgresql://....",
            show_default="registry.db in the data directory",
        ),
    ] = None,
    max_age_sessions: Annotated[
        int,
        typer.Option(
            "--max-age-sessions",
            envvar=PREFIX + "MAX_AGE_SESSIONS",
            min=0,
            help="Exchange sessions that may have ended since the last price.",
        ),
    ] = 2,
    suspicious: Annotated[
        str,
        typer.Option(
            "--suspicious",
            metavar="hold|refuse|serve",
            envvar=PREFIX + "SUSPICIOUS",
            help="A last price that moved by more than 35 %: keep to the close before, refuse, or decide on it.",
        ),
    ] = "hold",
    fail_to_cash: Annotated[
        bool,
        typer.Option(
            "--fail-to-cash",
            envvar=PREFIX + "FAIL_TO_CASH",
            help="Serve all cash where the champion was withdrawn, prices are stale, or no weights meet the limit.",
        ),
    ] = False,
    audit: Annotated[
        str,
        typer.Option(
            "--audit",
            metavar="batched|strict",
            envvar=PREFIX + "AUDIT",
            help="Write audit rows in batches after the answers, or before each answer.",
        ),
    ] = "batched",
    rate: Annotated[
        float,
        typer.Option(
            "--rate", envvar=PREFIX + "RATE", min=0, help="Requests per second for each key or client; 0: no limit."
        ),
    ] = 100.0,
    burst: Annotated[
        int, typer.Option("--burst", envvar=PREFIX + "BURST", min=1, help="Requests that may arrive at once.")
    ] = 200,
    max_body: Annotated[
        int,
        typer.Option("--max-body", envvar=PREFIX + "MAX_BODY", min=1000, help="Largest body of a request, in bytes."),
    ] = 8_000_000,
    max_bodies: Annotated[
        int,
        typer.Option(
            "--max-bodies",
            envvar=PREFIX + "MAX_BODIES",
            min=1000,
            help="Bytes of bodies in memory at a time; a quarter for each caller.",
        ),
    ] = 64_000_000,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections",
            envvar=PREFIX + "MAX_CONNECTIONS",
            min=1,
            help="Connections at a time.",
        ),
    ] = 1_000,
    header_timeout: Annotated[
        float,
        typer.Option(
            "--header-timeout",
            envvar=PREFIX + "HEADER_TIMEOUT",
            min=0.1,
            help="Seconds that the head of a request may take to arrive.",
        ),
    ] = 10.0,
    body_timeout: Annotated[
        float,
        typer.Option(
            "--body-timeout",
            envvar=PREFIX + "BODY_TIMEOUT",
            min=0.1,
            help="Seconds that the body of a request may take to arrive.",
        ),
    ] = 30.0,
    decision_timeout: Annotated[
        float,
        typer.Option(
            "--decision-timeout",
            envvar=PREFIX + "DECISION_TIMEOUT",
            min=0.1,
            help="Seconds that a decision on posted prices may take.",
        ),
    ] = 60.0,
    shadow: Annotated[
        str | None,
        typer.Option(
            "--shadow",
            metavar="MODEL",
            envvar=PREFIX + "SHADOW",
            help="A model that decides beside the champion and is audited, but not served.",
            autocompletion=_completion.models,
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", envvar=PREFIX + "ACCESS_LOG", help="Log every request.")
    ] = False,
    log_format: Annotated[
        str,
        typer.Option(
            "--log-format",
            metavar="text|json",
            envvar=PREFIX + "LOG_FORMAT",
            help="Lines of text or of JSON, with the ids of requests.",
        ),
    ] = "text",
) -> None:
    """Serve the champion's weights over HTTP.

    Models, backtests, the audit log and retraining are available as well. The service answers with JSON and ends with
    Ctrl-C.
    """
    try:
        server = importlib.import_module("portfolio_sdpo_app.api.server")
        config = importlib.import_module("portfolio_sdpo_app.api.config")
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "anyio"):
            raise
        raise missing_extra("The service", error.name, "serve") from None
    settings = config.ServeSettings(
        host=host,
        port=port,
        registry=place,
        max_age_sessions=max_age_sessions,
        suspicious=suspicious,
        fail_to_cash=fail_to_cash,
        audit=audit,
        rate=rate,
        burst=burst,
        max_body=max_body,
        max_bodies=max_bodies,
        max_connections=max_connections,
        header_timeout=header_timeout,
        body_timeout=body_timeout,
        decision_timeout=decision_timeout,
        shadow=shadow,
        access_log=access_log,
    )
    if log_format not in ("text", "json"):
        raise SettingsError(f"log-format: must be text or json (got {log_format!r}).")
    server.serve(settings, lambda address: typer.echo(f"Serving {address}"), log_format)


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "serve",
        epilog=examples("serve", "serve --port 0 --fail-to-cash", "serve --host 0.0.0.0 --audit strict"),
    )(serve)
