"""The figures of all tracks of a backtest, and how they compare: one record per strategy and seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.intervals import Bootstrap
from portfolio_sdpo.backtest.promise import check_promise, cvar_by_year
from portfolio_sdpo.backtest.record import StrategyRun
from portfolio_sdpo.backtest.same_risk import compare_at_same_risk, judge_superiority
from portfolio_sdpo.backtest.statistics import compute_sharpe, growth_difference, summarise, varies
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import named_weights

RIVALS = ("maximum-return", "maximum-return + shield", "equal-weight")
"""Benchmarks that an agent's growth is compared with, session by session."""
REFERENCES = ("equal-weight + shield", "equal-weight")
"""What all tracks are compared with at the same risk: the first of these that takes part, else the first benchmark
behind the shield, else the first that takes risk. Equal weights behind the shield choose nothing but the size."""


def make_metrics(runs: Sequence[StrategyRun], limit: CvarLimit, bootstrap: Bootstrap | None) -> list[dict[str, Any]]:
    """One record per strategy and seed: `Statistics`, `Promise`, what the shield did, weights at the end and notes.

    `against` is by how much an agent grew faster than each of the `RIVALS`, with an interval; `same_risk` is the same
    against the reference of all tracks after the riskier of the two was scaled with cash (None for the reference).
    `final_weights` are what the last close finds, `next` what is to be held from it on.
    Sharpe ratios are deflated by those of all tracks of the backtest whose volatility is more than next to nothing.
    """
    trials = [compute_sharpe(run.track.returns - run.track.cash_returns, run.track.sessions_per_year) for run in runs]
    rivals = {run.track.name: run.track for run in runs if run.known_as in RIVALS and run.kind == "benchmark"}
    reference = select_reference(runs)
    records = []
    for run in runs:
        track = run.track
        figures = summarise(
            track, alpha=limit.alpha, horizon=limit.horizon, trials=trials, bootstrap=bootstrap
        ).to_json()
        records.append(
            {
                "strategy": figures.pop("name"),
                "seed": run.seed,
                "kind": run.kind,
                **figures,
                "promise": check_promise(track.returns, limit, bootstrap).to_json(),
                "cvar_by_year": cvar_by_year(track.returns, track.dates[1:], limit),
                "shield": _summarise_shield(run),
                "same_risk": _compare_with_reference(run, reference, limit, bootstrap),
                "against": {
                    name: growth_difference(track.returns, rival.returns, bootstrap, track.sessions_per_year)
                    for name, rival in rivals.items()
                    if run.kind != "benchmark"
                },
                "final_weights": named_weights(track.assets, track.held[-1]),
                "next": {
                    "as_of": str(track.dates[-1]),
                    "execution": track.execution,
                    "weights": named_weights(track.assets, track.next_weights),
                },
                "notes": list(track.notes),
            }
        )
    return records


def select_reference(runs: Sequence[StrategyRun]) -> StrategyRun | None:
    """The track that all others are compared with at the same risk; None where no benchmark takes risk."""
    benchmarks = [run for run in runs if run.kind == "benchmark" and _takes_risk(run)]
    ranked = [
        *(run for name in REFERENCES for run in benchmarks if run.known_as == name),
        *(run for run in benchmarks if run.shield),
        *benchmarks,
    ]
    return ranked[0] if ranked else None


def compare_all(runs: Sequence[StrategyRun], limit: CvarLimit, bootstrap: Bootstrap | None) -> dict[str, Any] | None:
    """Hansen's SPA and the model confidence set over all tracks; None where nothing is tested."""
    reference = select_reference(runs)
    if reference is None or bootstrap is None:
        return None
    names = [run.track.name for run in runs]
    tracks = {
        f"{name}, seed {run.seed}" if names.count(name) > 1 else name: run.track.returns
        for name, run in zip(names, runs, strict=True)
    }
    track = reference.track
    found = judge_superiority(tracks, track.name, track.cash_returns, limit, bootstrap, track.sessions_per_year)
    return None if found is None else found.to_json()


def _compare_with_reference(
    run: StrategyRun, reference: StrategyRun | None, limit: CvarLimit, bootstrap: Bootstrap | None
) -> dict[str, Any] | None:
    if reference is None or run is reference:
        return None
    track = run.track
    found = compare_at_same_risk(
        track.returns, reference.track.returns, track.cash_returns, limit, bootstrap, track.sessions_per_year
    )
    return {"reference": reference.track.name, **found.to_json()}


def _takes_risk(run: StrategyRun) -> bool:
    return varies(run.track.returns - run.track.cash_returns, run.track.sessions_per_year)


def _summarise_shield(run: StrategyRun) -> dict[str, Any] | None:
    """What the shield did over a run."""
    if not run.shield:
        return None
    kappas = np.array([day["kappa"] for day in run.shield])
    decided = np.array([bool(day["decided"]) for day in run.shield])
    return json_ready(
        {
            "looks": len(kappas),
            "decisions": int(decided.sum()),
            "scaled": int((kappas < 1.0).sum()),
            "removed": sum(bool(day["removed"]) for day in run.shield),
            # Between decisions κ of the filtered form is a share of what it has left already.
            "mean_kappa": float(kappas[decided].mean()) if decided.any() else None,
            "lowest_kappa": float(kappas.min()),
            "unmet": sum(not day["meets"] for day in run.shield),
        }
    )
