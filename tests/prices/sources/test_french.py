"""Kenneth French's library from a server on loopback."""

import io
import threading
import zipfile
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from portfolio_sdpo.errors import SettingsError, SourceUnreachableError
from portfolio_sdpo.prices.sources import NasdaqDataLink, RetrySettings, make_source

TEXT = """This file was created by CMPT_IND_RETS_DAILY using the 202301 CRSP database.

  Average Value Weighted Returns -- Daily
,NoDur,Durbl
19260701,   0.11,  -0.17
19260702,   0.31, -99.99
19260706,   0.25,   0.10

  Average Equal Weighted Returns -- Daily
,NoDur,Durbl
19260701,   9.11,  9.17
"""


@pytest.fixture
def library():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("10_Industry_Portfolios_Daily.csv", TEXT)

    class Handler(BaseHTTPRequestHandler):
        broken = 0

        def do_GET(self) -> None:
            status = 503 if Handler.broken else 200 if "10_Industry_Portfolios_daily_CSV.zip" in self.path else 404
            Handler.broken = max(0, Handler.broken - 1)
            content = buffer.getvalue() if status == 200 else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Handler
    server.shutdown()
    server.server_close()
    thread.join()


QUICK = RetrySettings(attempts=2, sleep=lambda seconds: None)


def test_levels_of_the_first_table(library, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    source = make_source("french", base_url=library[0], retry=QUICK)
    prices = source.fetch([], None, None)
    assert prices.frame["NoDur"].round(6).tolist() == [100.0, 100.11, 100.420341, 100.671392]
    assert str(prices.frame.index[0].date()) == "1926-06-30"
    assert prices.frame["Durbl"].dropna().round(6).tolist() == [100.0, 99.83, 99.92983]
    assert (prices.column, prices.adjustment) == ("returns", "total-return")
    library[1].broken = 1
    assert list(source.fetch(["nodur"], date(1926, 7, 2), None).frame.columns) == ["NoDur"]
    library[1].broken = 2
    with pytest.raises(SourceUnreachableError, match="HTTP status 503"):
        source.fetch([], None, None)
    with pytest.raises(SettingsError, match=r"no file 3_Industry_CSV.zip.*industries, factors"):
        make_source("french", base_url=library[0], dataset="3_Industry", retry=QUICK).fetch([], None, None)


def test_nasdaq_data_link_asks_a_table(data_link, monkeypatch):
    source = make_source("nasdaq-data-link")
    assert isinstance(source, NasdaqDataLink) and source.table == "QUOTEMEDIA/PRICES" and source.settings() == {}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    columns = [("ticker", "String"), ("date", "Date"), ("close", "double"), ("adj_close", "double")]
    rows = [["AAPL", "2023-01-03", 125.07, 124.2], ["AAPL", "2023-01-04", 126.36, 125.5]]
    data_link.tables["QUOTEMEDIA/PRICES"] = columns, rows
    prices = NasdaqDataLink(api_base=f"{data_link.url}/api/v3", retry=QUICK).fetch(["AAPL", "APPL"], None, None)
    assert prices.frame["AAPL"].tolist() == [124.2, 125.5]
    assert (prices.column, prices.adjustment, list(prices.failures)) == ("adj_close", "total-return", ["APPL"])
