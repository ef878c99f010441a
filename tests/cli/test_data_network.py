"""`portfolio-sdpo data fetch` and `update` over the network: the real quandl client and a server on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from portfolio_sdpo.prices.snapshots import Store
from tests.cli.data_commands import prices, record, run, start

KEY = "s3cr3t-k3y"


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
