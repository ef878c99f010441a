"""`portfolio-sdpo data ...` from end to end: real processes, real files, a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from portfolio_sdpo.cli import build_app
from portfolio_sdpo.prices.snapshots import Store

KEY = "s3cr3t-k3y"
DATES = pd.bdate_range("2020-03-02", periods=40)


def prices(rows: int, tickers: str = "ABC", seed: int = 0) -> pd.DataFrame:
    values = np.random.default_rng(seed).uniform(50, 60, (len(DATES), len(tickers))).round(2)
    return pd.DataFrame(values, index=DATES, columns=[*tickers]).iloc[:rows]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object, code: int = 0):
    """In this process, with stdout and stderr apart."""
    result = CliRunner().invoke(build_app(), ["data", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def record(*arguments: object, code: int = 0) -> dict:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def start(*arguments: object) -> subprocess.Popen:
    """As a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "portfolio_sdpo", "data", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def csv(home: Path) -> Path:
    prices(30).to_csv(home / "prices.csv", index_label="date")
    return home / "prices.csv"


# Files


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
    result = run(*arguments, code=1)
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
    assert "one of decimal" in run("import", "r.csv", "--name", "n", "--returns", "half", code=1).stderr
    moments = DATES.repeat(2) + np.tile(pd.to_timedelta(["15:59:00", "09:30:00"]), len(DATES))
    pd.DataFrame({"A": np.arange(80.0) + 50}, index=moments).to_csv(home / "i.csv", index_label="date")
    assert "--to-daily" in run("import", "i.csv", "--name", "i", code=1).stderr
    record("import", "i.csv", "--name", "i", "--to-daily")
    assert Store().open("i").frame["A"].tolist() == [50.0 + 2 * day for day in range(40)]


# A source on the network: the real quandl client and a server on loopback


class DataLink:
    """Serves prices as Nasdaq Data Link does. pause: seconds before each answer."""

    def __init__(self) -> None:
        self.table = prices(40)
        self.until = 30
        self.pause = 0.0
        self.asked: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(owner.pause)
                owner.asked.append(self.path)
                parts = urlsplit(self.path)
                ticker = parts.path.split("/")[-2]
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                status, content = owner.answer(ticker, query, self.headers.get("x-api-token"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/api/v3"

    def answer(self, ticker: str, query: dict[str, str], key: str | None) -> tuple[int, bytes]:
        if key != KEY:
            return 403, json.dumps({"quandl_error": {"code": "QEPx04", "message": "A valid key, please."}}).encode()
        if ticker not in self.table:
            return 404, json.dumps({"quandl_error": {"code": "QECx02", "message": "Incorrect code."}}).encode()
        rows = self.table[ticker].iloc[: self.until].loc[query.get("start_date") : query.get("end_date")]
        data = [[f"{day:%Y-%m-%d}", price] for day, price in rows.items()]
        record = {"dataset_data": {"column_names": ["Date", "Adj. Close"], "data": data, "order": query.get("order")}}
        return 200, json.dumps(record).encode()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def data_link(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NASDAQ_DATA_LINK_API_KEY", KEY)
    server = DataLink()
    yield server
    server.close()


def fetch(server: DataLink, tickers: str, *more: str) -> list[str]:
    options = ["fetch", "--source", "quandl", "--tickers", tickers, "--start", "2020-03-02", "--name", "n"]
    return [*options, "--setting", f"api_base={server.url}", *more]


def test_fetch_and_update_over_the_network(data_link: DataLink, home: Path, monkeypatch: pytest.MonkeyPatch):
    result = run(*fetch(data_link, "A,B,D", "--setting", f"api_key={KEY}", "--json"), code=3)
    made = json.loads(result.stdout)
    assert result.stderr == "" and made["tickers"] == ["A", "B"]
    assert made["warnings"][0].startswith("D did not arrive: ") and "D" in made["failures"]
    data_link.until = 40
    data_link.table["D"] = 7.0
    data_link.asked.clear()
    result = run("update", "n")
    assert "10 new sessions" in result.stdout and "New in the snapshot: D." in result.stdout
    assert "A: arrived" in result.stderr and "D: arrived" in result.stderr
    starts = {path.split("/")[-2]: parse_qs(urlsplit(path).query)["start_date"][0] for path in data_link.asked}
    assert starts == {"A": "2020-03-30", "B": "2020-03-30", "D": "2020-03-02"}
    frame = Store().open("n").frame
    assert (frame[["A", "B"]].to_numpy() == prices(40)[["A", "B"]].to_numpy()).all() and (frame["D"] == 7.0).all()
    data_link.table /= 2
    assert "has adjusted its history of A, B, D" in run("update", "n").stdout
    assert record("verify")["sound"] and len(record("show", "n")["versions"]) == 3
    secret = KEY.encode()
    assert not any(secret in path.read_bytes() for path in (home / "home").rglob("*") if path.is_file())
    monkeypatch.delenv("NASDAQ_DATA_LINK_API_KEY")
    assert "key" in run("update", "n", code=1).stderr
    assert not record("update", "n", "--setting", f"api_key={KEY}")["new"]


# Kills and rivals, as real processes of the command line


def test_sigkill_during_fetch_import_and_update(data_link: DataLink, csv: Path):
    """While the server is slow, while files are written, whenever: what was there stays, and the next try succeeds."""
    record(*fetch(data_link, "A,B,C"))
    record("import", csv, "--name", "file")
    old = {name: Store().open(name).manifest.sha256 for name in ("n", "file")}
    data_link.until, data_link.pause = 40, 0.3
    prices(40).to_csv(csv, index_label="date")
    commands = [["update", "n"], fetch(data_link, "A,B,C"), ["import", csv, "--name", "file"]]
    data_link.asked.clear()
    processes = [start(*command) for command in commands]
    deadline = time.monotonic() + 60
    while len(data_link.asked) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(data_link.asked) >= 3, "the processes never got to the server"
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert [process.returncode for process in processes[:2]] == [-signal.SIGKILL] * 2
    assert record("verify")["sound"]
    data_link.pause = 0.0
    assert Store().open("n").manifest.sha256 == old["n"]  # both were killed before their last answer
    for command in commands:
        record(*command)
    new = {name: Store().open(name).manifest for name in ("n", "file")}
    assert all(manifest.rows == 40 and manifest.parent == old[name] for name, manifest in new.items())
    assert record("verify")["sound"]


@pytest.mark.parametrize("slow", ["A", "B"])
def test_ctrl_c_during_a_fetch_keeps_what_arrived(data_link: DataLink, slow: str):
    """And says what to do next; where nothing has arrived, that too."""
    answer, waiting, go_on = data_link.answer, threading.Event(), threading.Event()

    def hesitant(ticker: str, *rest):
        if ticker == slow:
            waiting.set()
            go_on.wait(60)
        return answer(ticker, *rest)

    data_link.answer = hesitant
    process = subprocess.Popen(
        [sys.executable, "-m", "portfolio_sdpo", "data", *fetch(data_link, "A,B,C"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Also where the tests run in the background, whose processes ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert waiting.wait(120)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    finally:
        go_on.set()
        process.kill()
        process.communicate()
    assert process.returncode == 130
    told = json.loads(errors)
    assert told["kind"] == "Interrupted"
    if slow == "A":
        assert told["error"].startswith(
            "no ticker has arrived yet, so nothing is saved; continue with `portfolio-sdpo data"
        )
        assert out == "" and record("list")["snapshots"] == []
        return
    assert told["error"] == (
        "n holds the one ticker that had arrived; `portfolio-sdpo data update n` asks for the others."
    )
    assert json.loads(out)["tickers"] == ["A"] and Store().open("n").manifest.tickers == ("A",)
    data_link.answer = answer
    assert record("update", "n")["tickers"] == ["A", "B", "C"]


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
