"""Models as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.common.numbers import general, percent, share
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.registry import LogCheck, Model, Promotion

HASH = 12
"""How much of a hash is shown; `--json` has all of it."""
SHOWN = 12
"""How many promotions are shown."""
MARK = "★"


def render_list(found: Sequence[Model], champion: Promotion | None, damaged: Sequence[str]) -> RenderableType:
    """One line per model."""
    if not found and not damaged:
        return Text("There is no model yet; train one with `train` and register it with `models add FOLDER`.")
    # Fits into 80 columns.
    table = _table("", "id", "label", "as of", "limit", "promised", "parent")
    for model in found:
        live = champion is not None and champion.model_id == model.id
        today = model.config["today"]
        table.add_row(
            MARK if live else "",
            model.id,
            model.label,
            str(model.as_of),
            percent(today["limit"]),
            _percent(today["promised"]),
            model.parent or "–",
            style="bold green" if live else "",
        )
    for name in damaged:
        table.add_row("✗", name, "damaged", style="red")
    return Group(table, Text(""), Text(_describe_champion(champion), style="dim"))


def render_model(model: Model, champion: Promotion | None, history: Sequence[Promotion]) -> RenderableType:
    """Everything about one model."""
    live = champion is not None and champion.model_id == model.id
    title = Text(model.id, style="bold")
    if live:
        title.append(f" {MARK} champion", style="bold green")
    limit, today, data = model.settings["limit"], model.config["today"], model.config["data"]
    facts = {
        "label": model.label,
        "trained": f"up to the close of {model.as_of}, {model.config['updates']} updates, seed {model.config['seed']}",
        "prices": f"{data['snapshot'] or data['source']}, {data['sessions']} sessions, sha256 {model.data_hash[:HASH]}",
        "assets": f"{len(model.assets) - 1} stocks and cash",
        "learner": str(model.settings["learner"]["kind"]),
        "limit": f"CVaR of the worst {share(limit['alpha'])} of {limit['horizon']} sessions "
        f"at {percent(limit['bound'])}",
        "caps": Limits.model_validate(model.settings.get("limits", {})).describe() or "none",
        "promised": f"{_percent(today['promised'])} on its scenarios, {_percent(today['past_shielded'])} shielded, "
        "as the shield counts it",
        **({"evidence": str(today["evidence"]["sentence"])} if "evidence" in today else {}),
        "parent": model.parent or "–",
        "created": f"{model.created_at:%Y-%m-%d %H:%M} UTC, added {model.added_at:%Y-%m-%d %H:%M}",
        "content": f"sha256 {model.content_hash[:HASH]}",
    }
    grid = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        grid.add_row(Text(key, style="dim"), Text(value))
    lines: list[RenderableType] = [title, grid, Text(""), Text("Weights", style="bold"), _render_weights([model])]
    if model.metrics:
        lines += [Text(""), Text("Metrics", style="bold"), _side_by_side([""], _flatten([model.metrics]))]
    if history:
        lines += [Text(""), Text("Promotions", style="bold"), _render_promotions(history, model.id)]
    return Group(*lines)


def compare_models(one: Model, other: Model) -> dict[str, Any]:
    """The differences of two models, as JSON."""
    settings = {key: pair for key, pair in _flatten([one.settings, other.settings]).items() if pair[0] != pair[1]}
    today = [model.config["today"] for model in (one, other)]
    return {
        "models": [model.id for model in (one, other)],
        "as_of": [str(model.as_of) for model in (one, other)],
        "data_hash": [model.data_hash for model in (one, other)],
        "settings": settings,
        "metrics": _flatten([one.metrics or {}, other.metrics or {}]),
        "promised": [each["promised"] for each in today],
        "weights": {asset: [each["shielded"].get(asset, 0.0) for each in today] for asset in _list_held([one, other])},
    }


def render_comparison(one: Model, other: Model, champion: Promotion | None) -> RenderableType:
    """Two models side by side."""
    found = compare_models(one, other)
    names = [
        f"{model.id} {MARK}" if champion is not None and champion.model_id == model.id else model.id
        for model in (one, other)
    ]
    facts: dict[str, Sequence[Any]] = {
        "label": [one.label, other.label],
        "as of": found["as_of"],
        "prices": [each[:HASH] for each in found["data_hash"]],
        "seed": [model.config["seed"] for model in (one, other)],
        "promised CVaR": [_percent(each) for each in found["promised"]],
    }
    lines: list[RenderableType] = [_side_by_side(names, facts)]
    for title, rows, empty in (
        ("Settings that differ", found["settings"], "None."),
        ("Metrics", found["metrics"], "Neither was evaluated."),
    ):
        content = _side_by_side(names, rows) if rows else Text(empty, style="dim")
        lines += [Text(""), Text(title, style="bold"), content]
    lines += [Text(""), Text("Weights, shielded", style="bold"), _render_weights([one, other], names)]
    return Group(*lines)


def render_checks(models: int, damaged: Mapping[str, str], checks: Sequence[LogCheck]) -> RenderableType:
    """The result of checking models and logs."""
    lines = [Text(f"models      {models - len(damaged)} of {models} sound", style="red" if damaged else "green")]
    lines += [Text(f"            {sentence}", style="red") for sentence in damaged.values()]
    for check in checks:
        if check.sound:
            rows = f"{check.rows} row{'s' * (check.rows != 1)}"
            lines.append(Text(f"{check.log:11} {rows}, chain sound", style="green"))
            lines.append(Text(f"            {check.head}", style="dim"))
        else:
            lines.append(Text(f"{check.log:11} broken: {check.problem}", style="red"))
    return Group(*lines)


def _describe_champion(champion: Promotion | None) -> str:
    if champion is None:
        return "There is no champion yet: promote a model."
    return f"{MARK} champion since {champion.at:%Y-%m-%d %H:%M} UTC, by {champion.by}: {champion.reason}"


def _render_promotions(history: Sequence[Promotion], model_id: str) -> RenderableType:
    table = _table("at", "", "by", "reason")
    for entry in history[:SHOWN]:
        how = {"rollback": "rolled back to", "withdraw": "withdrawn"}.get(entry.kind, "promoted")
        what = how if entry.model_id == model_id else f"followed by {entry.model_id}"
        table.add_row(f"{entry.at:%Y-%m-%d %H:%M}", what, entry.by, Text(entry.reason))
    return table


def _render_weights(models: Sequence[Model], names: Sequence[str] = ("",)) -> RenderableType:
    today = [model.config["today"]["shielded"] for model in models]
    rows = {asset: [percent(each.get(asset, 0.0)) for each in today] for asset in _list_held(models)}
    return _side_by_side(names, rows)


def _list_held(models: Sequence[Model]) -> list[str]:
    """Every asset that a model holds after the shield, in the order of the first model's columns."""
    today = [model.config["today"]["shielded"] for model in models]
    assets = dict.fromkeys(asset for model in models for asset in model.assets)
    return [asset for asset in assets if any(each.get(asset, 0.0) >= 0.0005 for each in today)]


def _side_by_side(names: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> Table:
    table = _table("", *names)
    table.show_header = any(names)
    for key, values in rows.items():
        table.add_row(Text(key, style="dim"), *(Text(_format_value(value)) for value in values))
    return table


def _flatten(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """`{a: {b: 1}}` as `a.b: 1`, for several trees; missing values are None."""
    leaves = [dict(_list_leaves(tree, "")) for tree in trees]
    keys = dict.fromkeys(key for each in leaves for key in each)
    return {key: [each.get(key) for each in leaves] for key in keys}


def _list_leaves(tree: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        found += _list_leaves(value, f"{path}{key}.") if isinstance(value, Mapping) else [(f"{path}{key}", value)]
    return found


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    return general(value, 6) if isinstance(value, float) else str(value)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        numeric = column in ("limit", "promised")
        table.add_column(
            column, justify="right" if numeric else "left", overflow="fold", no_wrap=column in ("id", "parent")
        )
    return table


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value)
