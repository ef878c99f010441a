"""`portfolio-sdpo registry ...`: backups of the registry, their restoration, and archives of its audit log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Json, Place, print_json

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry

app = typer.Typer(
    no_args_is_help=True,
    help="Back up, restore, verify and archive the registry.",
    epilog=examples("registry backup registry-2026-11-18.backup", "registry verify", "registry archive"),
)


@app.command("backup", epilog=examples("registry backup registry-2026-11-18.backup"))
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Write a backup while the registry is in use.

    It holds models, promotions, runs, audit, jobs and keys of one moment, and was checked. Archives of the audit log
    are files of their own: copy their folder as well.
    """
    from portfolio_sdpo.registry.backup import back_up

    with _open(place) as registry:
        back_up(registry, file)
        folder = registry.archive_folder
    if as_json:
        print_json({"file": str(file), "bytes": file.stat().st_size, "archives": str(folder)})
        return
    typer.echo(f"{file} holds the registry.")
    if folder.is_dir():
        typer.echo(f"Copy {folder} as well: it holds the archives of the audit log.")


@app.command("restore", epilog=examples("registry restore registry-2026-11-18.backup"))
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `registry backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Also in the place of another registry.")] = False,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Put a backup in the place of the registry.

    A running service notices it at its next check and continues with what was restored.
    """
    from portfolio_sdpo.registry.backup import restore

    kept = restore(file, place, force=force)
    if as_json:
        print_json({"restored": str(file), "before": None if kept is None else str(kept)})
        return
    typer.echo(f"{file} is restored.")
    if kept is not None:
        typer.echo(f"The previous registry is in {kept}.")


@app.command("verify", epilog=examples("registry verify", "registry verify --registry copy.db --json"))
def verify(place: Place = None, as_json: Json = False) -> None:
    """Check every model's hashes, the chains of the logs, and the archives of the audit log.

    The exit code is 1 if anything is damaged or missing.
    """
    from portfolio_sdpo.registry.backup import verify_registry

    with _open(place) as registry:
        check = verify_registry(registry)
        archives = [each for each in registry.archives() if not each.deleted]
    if as_json:
        from portfolio_sdpo.registry import to_record

        print_json({"sound": check.sound, **to_record(check), "archives": len(archives)})
    else:
        from portfolio_sdpo.cli._models_pages import render_checks
        from portfolio_sdpo.registry.witness import get_witness_path

        _print(render_checks(check.models, check.damaged, check.logs))
        if check.replaced is not None:
            note = get_witness_path(check.place)
            typer.secho(
                f"replaced    {check.replaced}: restore a backup, or delete {note} if this is intended.", fg="red"
            )
        typer.echo(f"registry    {check.id}, generation {check.generation}, {len(archives)} archives")
    if not check.sound:
        raise typer.Exit(1)


@app.command("archive", epilog=examples("registry archive", "registry archive --keep 3 --delete-after 84"))
def archive(
    keep: Annotated[
        int, typer.Option("--keep", metavar="MONTHS", min=0, help="Past months that stay in the database.")
    ] = 1,
    delete_after: Annotated[
        int | None,
        typer.Option("--delete-after", metavar="MONTHS", min=1, help="Delete archives of months before these."),
    ] = None,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Move past months of the audit log to compressed files, which `registry verify` still checks.

    Answers can be recorded meanwhile. Nothing is deleted without `--delete-after`.
    """
    from datetime import UTC, datetime

    today = datetime.now(UTC).date()
    with _open(place) as registry:
        made = registry.archive_audit(_go_back(today, keep))
        gone = [] if delete_after is None else registry.delete_archives(f"{_go_back(today, delete_after):%Y-%m}")
        folder = registry.archive_folder
    if as_json:
        names = {"archived": [each.file for each in made], "deleted": [each.file for each in gone]}
        print_json({"folder": str(folder), "rows": sum(each.rows for each in made), **names})
        return
    rows = sum(each.rows for each in made)
    typer.echo(
        f"{rows} rows were archived in {len(made)} files in {folder}." if made else "There was nothing to archive."
    )
    if gone:
        typer.echo(f"{len(gone)} archives were deleted; the registry records what they held.")


def _open(place: str | None) -> Registry:
    from portfolio_sdpo.registry import Registry

    return Registry.open(place, create=False)


def _go_back(today: Any, months: int) -> Any:
    """The first day of the month so many months ago; 0: of this month."""
    number = 12 * today.year + today.month - 1 - months
    return today.replace(year=number // 12, month=number % 12 + 1, day=1)


def _print(page: Any) -> None:
    from rich.console import Console

    Console().print(page)


def register(root: typer.Typer) -> None:
    """Add the command group to the application."""
    root.add_typer(app, name="registry")
