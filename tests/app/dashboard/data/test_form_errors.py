"""Errors on a form name its fields, never a class or a flag."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.errors import PortfolioSdpoError
from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.dashboard.data.form_errors import RUN_LABELS, UPLOAD_LABELS, describe_error
from portfolio_sdpo_app.dashboard.data.job_requests import BacktestRequest, RetrainRequest
from portfolio_sdpo_app.dashboard.data.uploads import import_upload

FOREIGN = re.compile(r"(^|\W)--[a-z]|[A-Z]\w+Settings|CvarLimit|fee_bps|max_weight|input should")
"""A flag, the name of a class, or the name of a setting."""
GROUPS = "ticker,group,max_weight\n"
DAYS = [f"2020-01-{day:02}" for day in (2, 3, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alpha": 2.0}, "Tail α: must be less than 1 (got 2.0)."),
        ({"bound": -1.5}, "CVaR limit: must be greater than -1 (got -1.5)."),
        ({"horizon": 0}, "Horizon, sessions: must be greater than or equal to 1 (got 0)."),
        ({"fee_bps": -1.0}, "Fee, basis points: must be at least 0 and less than 10,000 (got -1)."),
        ({"max_weight": 2.0}, "Maximum weight per stock: must be less than or equal to 1 (got 2.0)."),
        ({"max_turnover": -1.0}, "Maximum turnover per decision: must be greater than or equal to 0 (got -1.0)."),
        (
            {"groups": GROUPS + "AAPL,tech,4\n"},
            "Groups of stocks, CSV: row 1 (AAPL): '4' is no share of the account; write 0.4 for 40 %.",
        ),
        ({"jobs": 0}, "Strategies in parallel: must be at least 1 (got 0)."),
        ({"strategies": ()}, "Benchmarks: choose at least one benchmark to compare the agents with."),
        ({"config": "nope = 1"}, "Agent settings (TOML), nope: there is no such field (got 1)."),
        (
            {"start": date(2020, 1, 2), "end": date(2019, 1, 2)},
            "First decision: must be before “Last day” (got 2020-01-02 and 2019-01-02).",
        ),
    ],
)
def test_a_wrong_backtest_is_explained_by_the_labels_of_the_form(settings: dict[str, Any], sentence: str):
    usual: dict[str, Any] = {"strategies": ("equal-weight",), "algos": ("sdpo",)}
    with pytest.raises(PortfolioSdpoError) as error:
        BacktestRequest(**(usual | settings)).check()
    assert describe_error(error.value, RUN_LABELS) == sentence


@pytest.mark.parametrize(
    "settings",
    [
        {"horizon": 100_000},
        {"cash": "abc"},
        {"seeds": "1,1"},
        {"config": "a ="},
        {"config": "[learner]\nkind = 'q'"},
        {"start": date(1990, 1, 1)},
        {"snapshot": "nope"},
    ],
)
def test_no_error_of_a_backtest_speaks_of_classes_or_flags(settings: dict[str, Any]):
    usual: dict[str, Any] = {"strategies": ("equal-weight",), "algos": ("sdpo",)}
    with pytest.raises(PortfolioSdpoError) as error:
        BacktestRequest(**(usual | settings)).check()
    assert not FOREIGN.search(describe_error(error.value, RUN_LABELS))


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"holdout": 0}, "Held-out sessions: "),
        ({"seed": -1}, "Seed: "),
        ({"update": True}, "Update the prices first: "),
        ({"max_weight": 2.0}, "Maximum weight per stock: "),
        ({"max_turnover": -1.0}, "Maximum turnover per decision: "),
        ({"groups": GROUPS + "NONE,tech,0.4\n"}, "Groups of stocks, CSV: NONE of the group tech is not among"),
        ({"config": "limits = 3", "max_weight": 0.2}, "Agent settings (TOML): limits must be a table"),
        ({"config": "limit = 3", "alpha": 0.1}, "Agent settings (TOML): limit must be a table"),
    ],
)
def test_a_wrong_retrain_is_explained_by_the_labels_of_the_form(settings: dict[str, Any], label: str):
    with Registry.open() as registry, pytest.raises(PortfolioSdpoError) as error:
        RetrainRequest(**settings).check(registry)
    text = describe_error(error.value, RUN_LABELS)
    assert text.startswith(label) and not FOREIGN.search(text)


def test_a_retrain_and_a_backtest_take_the_caps_of_the_commands():
    caps: dict[str, Any] = {"max_weight": 0.25, "max_turnover": 0.5, "groups": GROUPS + "AAPL,tech,0.4\nMSFT,tech,\n"}
    tech = {"name": "tech", "tickers": ("AAPL", "MSFT"), "max_weight": 0.4}
    backtest = BacktestRequest(strategies=("equal-weight",), algos=("sdpo",), **caps)
    limits = backtest.check().limits
    assert (limits.max_weight, limits.max_turnover, limits.groups[0].model_dump()) == (0.25, 0.5, tech)
    request = RetrainRequest(**caps, config="[limits]\nmax_weight = 0.9")
    with Registry.open() as registry:
        stated = request.check(registry).config["limits"]
    assert (stated["max_weight"], stated["max_turnover"]) == (0.25, 0.5)
    for each in (backtest, request):
        assert {"--max-weight=0.25", "--max-turnover=0.5"} <= set(each.arguments())


@pytest.mark.parametrize(
    ("rows", "field", "repair"),
    [
        ([f"{day},{-1.0 if n == 3 else 100.0 + n}" for n, day in enumerate(DAYS)], "non_positive", "drop"),
        ([f"{day},{100.0 + n}" for n, day in enumerate([*DAYS, DAYS[0]])], "duplicates", "last"),
    ],
)
def test_an_error_of_an_upload_names_the_field_that_repairs_it(rows: list[str], field: str, repair: str):
    content = "\n".join(["Date,AAPL", *rows]).encode()
    with pytest.raises(PortfolioSdpoError) as error:
        import_upload("mine.csv", content, "mine")
    text = describe_error(error.value, UPLOAD_LABELS)
    assert f"“{UPLOAD_LABELS[field]}”" in text and not FOREIGN.search(text)
    assert import_upload("mine.csv", content, "mine", repairs=Repairs(**{field: repair})).new


def test_a_file_of_returns_names_the_field_that_turns_them_into_prices():
    content = "\n".join(["Date,AAPL", *(f"{day},{(-1) ** n * 0.01}" for n, day in enumerate(DAYS))]).encode()
    with pytest.raises(PortfolioSdpoError) as error:
        import_upload("mine.csv", content, "mine")
    text = describe_error(error.value, UPLOAD_LABELS)
    assert f"set “{UPLOAD_LABELS['returns']}” to “decimal”" in text and not FOREIGN.search(text)
    assert import_upload("mine.csv", content, "mine", returns="decimal").new


def test_a_sentence_about_prices_stays_as_it_is():
    assert describe_error("AAPL: 2 prices are missing.", UPLOAD_LABELS) == "AAPL: 2 prices are missing."
