"""`portfolio-sdpo data ...` from end to end on files: import, versions, export, damage, several at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.prices.snapshots import Store
from tests.cli.data_commands import DATES, prices, record, run, start


def test_import_show_list_verify_export(home: Path, csv: Path):
    made = record("import", csv, "--name", "n")
    assert made["new"] and made["tickers"] == ["A", "B", "C"] and made["rows"] == 30
    shown = record("show", "n")
    assert {key: shown[key] for key in ("name", "start", "end", "rows", "source")} == {
        "name": "n",
        "start": "2020-03-02",
        "end": "2020-04-10",
        "rows": 30,
        "source": "file",
    }
    assert shown["sha256"] == made["sha256"] and shown["column"] and shown["tickers"] == ["A", "B", "C"]
    assert any("XNYS" in warning for warning in shown["warnings"])  # Good Friday
    assert [version["sha256"] for version in shown["versions"]] == [made["sha256"]]
    [listed] = record("list")["snapshots"]
    assert listed["name"] == "n" and listed["sha256"] == made["sha256"] and listed["tickers"] == 3
    assert record("verify") == {
        "sound": True,
        "checks": [{"name": "n", "sha256": made["sha256"], "problem": None}],
    }
    exported = record("export", "n", "--layout", "long", "--out", home / "long.csv")
    assert exported["sha256"] == made["sha256"]
    assert record("import", home / "long.csv", "--name", "again")["sha256"] == made["sha256"]


def test_pages_for_people(home: Path, csv: Path):
    assert "There is no snapshot yet" in run("list").stdout
    made = run("import", csv, "--name", "n").stdout
    assert "2020-03-02 to 2020-04-10, 30 sessions" in made and "3: A, B, C" in made
    assert "XNYS" in made
    assert "exactly these prices already" in run("import", csv, "--name", "n").stdout
    assert run("list").stdout.splitlines()[1].split()[:4] == ["n", "file", "2020-03-02", "2020-04-10"]
    assert "Snapshots: 1, versions: 1, damaged: 0." in run("verify").stdout
    shown = run("show", "n").stdout
    assert Store().open("n").manifest.sha256 in shown and "version" in shown
    assert "Wrote n to" in run("export", "n", "--layout", "wide", "--out", home / "wide.csv").stdout
    assert "n is up to date" in run("update", "n").stdout


def test_the_whole_report_is_shown_after_an_import(home: Path):
    (home / "one.csv").write_text("date,A\n2020-01-02,1\n")
    lines = run("import", "one.csv", "--name", "one").stdout.splitlines()
    assert lines[1].split(maxsplit=1)[1].strip() == "2020-01-02 to 2020-01-02, 1 session"
    (home / "late.csv").write_text("date,A,B\n2020-01-02,1,\n2020-01-03,1,5\n2020-01-04,,\n")
    shown = run("import", "late.csv", "--name", "late").stdout
    assert "B has no price before 2020-01-03" in shown and "1 row without any price left out (2020-01-04)" in shown


def test_a_home_that_cannot_be_used(home: Path, csv: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(csv))
    for arguments in (["list"], ["show", "n"], ["verify"], ["import", csv, "--name", "n"]):
        assert "PORTFOLIO_SDPO_HOME" in run(*arguments, code=1).stderr


def test_versions(home: Path, csv: Path):
    first = record("import", csv, "--name", "n")
    prices(40).to_csv(csv, index_label="date")
    second = record("update", "n")
    assert second["new"] and second["parent"] == first["sha256"] and second["rows"] == 40
    assert second["sentences"][0] == "10 new sessions, 2020-04-13 to 2020-04-24." and second["readjusted"] == []
    assert [version["rows"] for version in record("show", "n")["versions"]] == [40, 30]
    assert record("show", f"n@{first['sha256'][:10]}")["rows"] == 30
    run("export", f"n@{first['sha256'][:10]}", "--layout", "wide", "--out", "old.csv")
    assert record("import", "old.csv", "--name", "old")["sha256"] == first["sha256"]
    (prices(40) / 2).to_csv(csv, index_label="date")
    assert record("update", "n")["readjusted"] == ["A", "B", "C"]
    assert "adjusted its history" in run("show", "n").stdout


def test_options_of_import(home: Path):
    path = home / "prices.csv"
    path.write_text("date,A\n03/02/2020,1\n04/02/2020,-2\n05/02/2020,3\n")
    assert "03/02/2020" in run("import", path, "--name", "n", code=1).stderr
    assert "non_positive=drop" in run("import", path, "--name", "n", "--dayfirst", code=1).stderr
    repaired = ["--repair", "non_positive=drop", "--calendar", "none"]
    assert record("import", path, "--name", "n", "--dayfirst", *repaired)["start"] == "2020-02-03"
    assert record("import", path, "--name", "n", "--monthfirst", "--layout", "wide", *repaired)["start"] == "2020-03-02"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "x"], "There is no snapshot x"),
        (["update", "x"], "There is no snapshot x"),
        (["export", "x", "--layout", "wide", "--out", "f.csv"], "There is no snapshot x"),
        (["import", "nowhere.csv", "--name", "n"], "nowhere.csv"),
        (["import", "prices.csv", "--name", "../n"], "cannot be called"),
        (["import", "prices.csv", "--name", "n", "--layout", "heap"], "heap"),
        (["import", "prices.csv", "--name", "n", "--repair", "duplicates"], "key=value"),
        (["import", "prices.csv", "--name", "n", "--repair", "magic=on"], "--repair: there is no 'magic'; there are"),
        (["import", "prices.csv", "--name", "n", "--calendar", "MOON"], "MOON"),
        (["fetch", "--source", "oracle", "--tickers", "A", "--name", "n"], "no source 'oracle'"),
        (["fetch", "--source", "sample", "--tickers", "A", "--name", "n"], "no ticker A"),
        (["fetch", "--source", "sample", "--start", "1.2.2020", "--name", "n"], "--start: must be a date"),
        (["fetch", "--source", "sample", "--tickers", "@nowhere", "--name", "n"], "nowhere cannot be read"),
        (["fetch", "--source", "sample", "--setting", "x=1", "--name", "n"], "x"),
        (["fetch", "--source", "sample", "--setting", "a=1", "--setting", "a.b=1", "--name", "n"], "--setting: a.b"),
        (["verify", "x"], "There is no snapshot x"),
    ],
)
def test_errors_are_one_sentence(csv: Path, arguments: list[str], sentence: str):
    found_there = ("There is no snapshot", "nowhere.csv", "cannot be called", "heap", "no ticker A")
    result = run(*arguments, code=1 if sentence.startswith(found_there) else 2)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ") and sentence in last and result.stdout == ""
    assert Store().list() == ()


def test_fetch_from_the_sample_with_tickers_in_a_file(home: Path):
    (home / "tickers.txt").write_text("AAPL, MSFT\nDOW\n")
    options = ["--source", "sample", "--tickers", "@tickers.txt", "--start", "2019-03-01", "--end", "2019-06-28"]
    made = record("fetch", *options, "--name", "s")
    assert made["tickers"] == ["AAPL", "DOW", "MSFT"] and (made["start"], made["end"]) == ("2019-03-01", "2019-06-28")
    assert "nothing to update" in run("update", "s").stdout


def test_damage_is_refused_by_every_command(home: Path, csv: Path):
    sha256 = record("import", csv, "--name", "n")["sha256"]
    record("import", csv, "--name", "sound", "--calendar", "none", "--layout", "wide")
    prices(20).to_csv(csv, index_label="date")
    record("import", csv, "--name", "sound")
    for path in sorted((home / "home").rglob("objects/*/*")):
        content = path.read_bytes()
        if path.suffix == ".json" and b'"name": "n"' not in content:
            continue
        if path.suffix == ".parquet" and path.stem != Store().open("n").manifest.file_sha256:
            continue
        path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        for arguments in (
            ["show", "n"],
            ["show", f"n@{sha256[:8]}"],
            ["update", "n"],
            ["export", "n", "--layout", "wide", "--out", "out.csv"],
        ):
            assert "Error: Snapshot n is damaged" in run(*arguments, code=1).stderr
        assert not (home / "out.csv").exists()
        assert "Snapshot n is damaged" in run("verify", "n", code=1).stderr
        found = record("verify", code=1)
        assert not found["sound"] and any(check["name"] == "n" and check["problem"] for check in found["checks"])
        if path.suffix == ".json":
            broken, fine = record("list")["snapshots"]
            assert "is damaged" in broken["problem"] and fine["problem"] is None
            assert "damaged" in run("list").stdout
        path.write_bytes(content)
    assert record("verify")["sound"]


def test_a_part_of_a_file_and_a_typo_among_its_tickers(csv: Path):
    options = ["--tickers", "A,C", "--start", "2020-03-10", "--end", "2020-03-20"]
    made = record("import", csv, "--name", "n", *options)
    assert made["tickers"] == ["A", "C"] and (made["start"], made["end"]) == ("2020-03-10", "2020-03-20")
    assert made["frequency"] == "daily" and made["periods_per_year"] == 252
    typo = run("fetch", "--source", "file", "--setting", f"path={csv}", "--tickers", "A,CC", "--name", "m", code=3)
    assert "1: A" in typo.stdout and "There is no ticker CC" in typo.stdout


def test_returns_and_intraday_prices_on_request(home: Path):
    returns = np.random.default_rng(0).normal(0, 1, len(DATES)).round(3)
    pd.DataFrame({"A": returns}, index=DATES).to_csv(home / "r.csv", index_label="date")
    assert "--returns percent" in run("import", "r.csv", "--name", "n", code=1).stderr
    assert record("import", "r.csv", "--name", "n", "--returns", "percent")["column"] == "returns"
    assert "one of decimal" in run("import", "r.csv", "--name", "n", "--returns", "half", code=2).stderr
    moments = DATES.repeat(2) + np.tile(pd.to_timedelta(["15:59:00", "09:30:00"]), len(DATES))
    pd.DataFrame({"A": np.arange(80.0) + 50}, index=moments).to_csv(home / "i.csv", index_label="date")
    assert "--to-daily" in run("import", "i.csv", "--name", "i", code=1).stderr
    record("import", "i.csv", "--name", "i", "--to-daily")
    assert Store().open("i").frame["A"].tolist() == [50.0 + 2 * day for day in range(40)]


def test_processes_that_import_at_once_all_succeed(home: Path):
    for seed in (1, 2):
        prices(40, seed=seed).to_csv(home / f"{seed}.csv", index_label="date")
    jobs = [("1.csv", "x"), ("1.csv", "x"), ("2.csv", "x"), ("1.csv", "y")]
    processes = [start("import", file, "--name", name, "--calendar", "none", "--json") for file, name in jobs]
    results = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [code for _, code in results] == [0, 0, 0, 0], results
    made = [json.loads(output) for (output, _), _ in results]
    assert record("verify")["sound"]
    assert {manifest.sha256 for _, manifest in Store().history("x")} == {made[0]["sha256"], made[2]["sha256"]}
    assert made[3]["sha256"] == made[0]["sha256"] == Store().open("y").manifest.sha256
    assert not list((home / "home").rglob(".?*.*"))


def test_help_of_every_command(home: Path):
    for command in ("fetch", "import", "update", "list", "show", "verify", "export"):
        assert "--json" in run(command, "--help").stdout
    assert not os.listdir(home)


@pytest.mark.parametrize("layout", ["wide", "long", "nasdaq"])
def test_carried_prices_are_not_exported_as_observed(home: Path, layout: str):
    table = prices(40)
    table.iloc[10:13, 0] = np.nan  # a gap that is carried
    table.iloc[15:25, 1] = np.nan  # a suspension
    table.iloc[30:, 2] = np.nan  # a delisting, carried for five sessions like a gap
    table.to_csv("ragged.csv")
    first = record("import", "ragged.csv", "--name", "ragged")
    out = "out" if layout == "nasdaq" else "out.csv"
    run("export", "ragged", "--layout", layout, "--out", out)
    assert record("import", out, "--name", "again")["sha256"] == first["sha256"]
    assert Store().open("ragged").frame["A"].notna().all()
