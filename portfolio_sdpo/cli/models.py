"""`portfolio-sdpo models ...`: registered models and the champion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Json, Place, open_registry, print_json

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Model, Promotion, Registry

app = typer.Typer(
    no_args_is_help=True,
    help="Register trained agents, compare them, and promote the champion.",
    epilog=examples("models list", "models show champion", 'models rollback --reason "drawdown in tech"'),
)

CHAMPION = "champion"
"""Stands for the id of the model that is champion."""

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of a model, its beginning, or `champion`.",
        autocompletion=_completion.models,
    ),
]
Reason = Annotated[str, typer.Option("--reason", "-r", help="The reason, for the log of promotions.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decided.", show_default="the current user")]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="ID",
        help="Do it only if this model is the champion now; `none`: only if there is no champion.",
        autocompletion=_completion.models,
    ),
]


@app.command("list", epilog=examples("models list", "models list --json"))
def list_models(place: Place = None, as_json: Json = False) -> None:
    """List all models, newest first; the champion is marked."""
    with open_registry(place) as registry:
        champion = registry.champion()
        found = registry.models()
        damaged = sorted(set(registry.model_ids()) - {model.id for model in found})
    if as_json:
        live = None if champion is None else champion.model_id
        print_json({"champion": live, "models": [_summarise(model, live) for model in found], "damaged": damaged})
        return
    from portfolio_sdpo.cli._models_pages import render_list

    _print(render_list(found, champion, damaged))


@app.command("show", epilog=examples("models show champion", "models show 20261113-5f2c --json"))
def show(model: Id, place: Place = None, as_json: Json = False) -> None:
    """Show one model: training, promise, weights, promotions."""
    with open_registry(place) as registry:
        found = registry.model(_resolve(registry, model))
        champion = registry.champion()
        history = [each for each in registry.promotions() if found.id in (each.model_id, each.previous)]
    if as_json:
        from portfolio_sdpo.registry import to_record

        live = None if champion is None else champion.model_id
        print_json({**to_record(found), "champion": found.id == live, "promotions": to_record(history)})
        return
    from portfolio_sdpo.cli._models_pages import render_model

    _print(render_model(found, champion, history))


@app.command("add", epilog=examples("models add agent --label tech"))
def add(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder that `train` created.", autocompletion=_completion.agents),
    ],
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="ID", help="The model from which its training started.")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="A label.", show_default="the agent's own")] = None,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Register a trained agent.

    Its weights are served once it is promoted. Adding the same agent again changes nothing.
    """
    with open_registry(place) as registry:
        before = set(registry.model_ids())
        origin = None if parent is None else _resolve(registry, parent)
        model = registry.add_model(folder, parent=origin, label=label)
    new = model.id not in before
    if as_json:
        print_json({"id": model.id, "new": new})
    else:
        typer.echo(f"{model.id} is registered." if new else f"{model.id} was already registered.")


@app.command(
    "promote",
    epilog=examples(
        'models promote 20261113-5f2c --reason "checked by hand"',
        'models promote 20261113-5f2c --expect none -r "the first"',
    ),
)
def promote(
    model: Id, reason: Reason, expect: Expect = None, by: By = None, place: Place = None, as_json: Json = False
) -> None:
    """Make a model the champion, whose weights are served."""
    with open_registry(place) as registry:
        chosen = _resolve(registry, model)
        before = registry.champion()
        registry.model_parts(chosen)  # a damaged model must not replace an intact one
        done = registry.promote(chosen, reason, by=by, **_make_expectation(registry, expect))
    _tell(done, new=before is None or done.seq > before.seq, as_json=as_json)


@app.command("rollback", epilog=examples('models rollback --reason "drawdown in tech"'))
def rollback(reason: Reason, expect: Expect = None, by: By = None, place: Place = None, as_json: Json = False) -> None:
    """Return to the previous champion.

    Running it again returns to the one before that.
    """
    with open_registry(place) as registry:
        done = registry.rollback(reason, by=by, **_make_expectation(registry, expect))
    _tell(done, new=True, as_json=as_json)


@app.command("withdraw", epilog=examples('models withdraw --reason "prices in doubt"'))
def withdraw(reason: Reason, expect: Expect = None, by: By = None, place: Place = None, as_json: Json = False) -> None:
    """Leave no champion: the service refuses, or serves all cash with `--fail-to-cash`.

    `models promote` or `models rollback` ends it; retrains promote nothing until then.
    """
    with open_registry(place) as registry:
        done = registry.withdraw(reason, by=by, **_make_expectation(registry, expect))
    if as_json:
        from portfolio_sdpo.registry import to_record

        print_json({**to_record(done), "changed": True})
    else:
        typer.echo(f"{done.model_id} is withdrawn: there is no champion now.")


@app.command("compare", epilog=examples("models compare champion 20261113-5f2c"))
def compare(
    one: Annotated[
        str,
        typer.Argument(metavar="A", help="The id of a model, or its beginning.", autocompletion=_completion.models),
    ],
    other: Annotated[str, typer.Argument(metavar="B", help="Another model.", autocompletion=_completion.models)],
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Compare two models: settings, metrics, weights."""
    with open_registry(place) as registry:
        pair = (registry.model(_resolve(registry, one)), registry.model(_resolve(registry, other)))
        champion = registry.champion()
    from portfolio_sdpo.cli._models_pages import compare_models, render_comparison

    if as_json:
        print_json(compare_models(*pair))
        return
    _print(render_comparison(*pair, champion))


@app.command("verify", epilog=examples("models verify", "models verify --json"))
def verify(place: Place = None, as_json: Json = False) -> None:
    """Check every model's hashes and the chains of the logs.

    The logs are those of promotions and of served weights. The exit code is 1 if anything is damaged.
    """
    with open_registry(place) as registry:
        names = registry.model_ids()
        damaged = registry.damaged_models()
        checks = [registry.verify_promotions(), registry.verify_audit()]
    sound = not damaged and all(check.sound for check in checks)
    if as_json:
        from portfolio_sdpo.registry import to_record

        logs = {check.log: to_record(check) for check in checks}
        print_json({"sound": sound, "models": len(names), "damaged": damaged, **logs})
    else:
        from portfolio_sdpo.cli._models_pages import render_checks

        _print(render_checks(len(names), damaged, checks))
    if not sound:
        raise typer.Exit(1)


def _resolve(registry: Registry, text: str) -> str:
    """The id of a model from its beginning, or from the word `champion`."""
    if text != CHAMPION:
        return registry.resolve_id(text)
    standing = registry.champion()
    if standing is None:
        from portfolio_sdpo.errors import NotRegisteredError

        raise NotRegisteredError(
            "There is no champion yet: name a model of `models list`, or promote one with `models promote ID`."
        )
    return standing.model_id


def _make_expectation(registry: Registry, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    return {"expected_champion": None if text == "none" else registry.resolve_id(text)}


def _summarise(model: Model, champion: str | None) -> dict[str, Any]:
    from portfolio_sdpo.registry import to_record

    record = to_record(model)
    config = record.pop("config")
    return {**record, "champion": model.id == champion, "limit": config["settings"]["limit"]}


def _tell(done: Promotion, *, new: bool, as_json: bool) -> None:
    if as_json:
        from portfolio_sdpo.registry import to_record

        print_json({**to_record(done), "changed": new})
    elif new:
        typer.echo(f"{done.model_id} is the champion now; the previous champion was {done.previous or 'none'}.")
    else:
        typer.echo(f"{done.model_id} already is the champion: nothing changed.")


def _print(page: Any) -> None:
    from rich.console import Console

    Console().print(page)


def register(root: typer.Typer) -> None:
    """Add the command group to the application."""
    root.add_typer(app, name="models")
