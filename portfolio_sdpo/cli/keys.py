"""`portfolio-sdpo keys ...`: the API keys of the service."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Json, Place, open_registry, print_json

if TYPE_CHECKING:
    from portfolio_sdpo.registry import ApiKey

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list, rotate and revoke the API keys of the service.",
    epilog=examples("keys create desk", "keys list"),
)


Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The id of the key, as shown by `keys list`.", autocompletion=_completion.keys),
]


@app.command("create", epilog=examples("keys create desk", "keys create nightly --scope train --json"))
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses the key.")],
    scope: Annotated[
        str, typer.Option("--scope", metavar="read|train", help="The scope train includes read.")
    ] = "read",
    days: Annotated[
        float | None,
        typer.Option("--expires", metavar="DAYS", min=0.001, help="Days until it expires.", show_default="never"),
    ] = None,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Create a key and print it. It cannot be shown again: only a hash is stored."""
    lifetime = None if days is None else timedelta(days=days)
    with open_registry(place) as registry:
        key, secret = registry.create_key(name, scope, lifetime=lifetime)  # type: ignore[arg-type]
    _show_new(key, secret, as_json=as_json)


@app.command("rotate", epilog=examples("keys rotate 1a2b3c4d --overlap 24"))
def rotate(
    key_id: Id,
    overlap: Annotated[
        float, typer.Option("--overlap", metavar="HOURS", min=0, help="Hours for which the old key stays valid.")
    ] = 24.0,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Replace a key: create one of the same name and scope, and let the old one expire."""
    with open_registry(place) as registry:
        key, secret = registry.rotate_key(key_id, overlap=timedelta(hours=overlap))
    _show_new(key, secret, as_json=as_json)


@app.command("list", epilog=examples("keys list", "keys list --json"))
def list_keys(place: Place = None, as_json: Json = False) -> None:
    """List all keys including revoked ones, newest first."""
    with open_registry(place) as registry:
        keys = registry.api_keys()
    if as_json:
        print_json({"keys": [_record(key) for key in keys]})
        return
    for key in keys:
        facts = {"expires": key.expires_at, "revoked": key.revoked_at, "last used": key.last_used_at}
        told = "".join(f"  {what} {at:%Y-%m-%d %H:%M}" for what, at in facts.items() if at is not None)
        typer.echo(f"{key.id}  {key.scope:<5}  {key.created_at:%Y-%m-%d %H:%M}  {key.name}{told}")
    if not keys:
        typer.echo("There is no key yet: create one with `portfolio-sdpo keys create NAME`.")


@app.command("revoke", epilog=examples("keys revoke 1a2b3c4d"))
def revoke(
    key_id: Id,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Revoke a key; a running service refuses it within seconds."""
    with open_registry(place) as registry:
        key = registry.revoke_key(key_id)
    if as_json:
        print_json(_record(key))
    else:
        typer.echo(f"Key {key.id} of {key.name} is revoked.")


def _show_new(key: ApiKey, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**_record(key), "key": secret})
        return
    typer.echo(secret)
    until = "" if key.expires_at is None else f" until {key.expires_at:%Y-%m-%d %H:%M} UTC"
    typer.secho(f"Key {key.id} of {key.name} has the scope {key.scope}{until}. It cannot be shown again.", err=True)


def _record(key: ApiKey) -> dict[str, Any]:
    from portfolio_sdpo.registry import to_record

    record: dict[str, Any] = to_record(key)
    return record


def register(root: typer.Typer) -> None:
    """Add the command group to the application."""
    root.add_typer(app, name="keys")
