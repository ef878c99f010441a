"""Kenneth French's data library: daily and monthly returns of industries, factors and sorted portfolios."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from portfolio_sdpo.errors import SettingsError, SourceError, SourceUnreachableError
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.returns import accumulate_returns
from portfolio_sdpo.prices.sources.base import NetworkSource, Progress, select
from portfolio_sdpo.prices.sources.retry import Retrier, TransientFault, parse_retry_after

MAX_MEGABYTES = 64
"""The largest file of the library unpacks to less than half of this."""
_SHORT = {
    "industries": "10_Industry_Portfolios_daily",
    "factors": "F-F_Research_Data_Factors_daily",
    "factors5": "F-F_Research_Data_5_Factors_2x3_daily",
    "momentum": "F-F_Momentum_Factor_daily",
}
"""Names for what is asked for most."""


class French(NetworkSource):
    """Total returns of industries and factors since 1926, as levels that start from 100."""

    name: ClassVar[str] = "french"
    reads_everything: ClassVar[bool] = True

    dataset: str = Field("industries", pattern=r"^[\w\-]+$")
    """`industries` (ten of them), `factors`, `factors5`, `momentum`, or a file of the library without `_CSV.zip`, such
    as `49_Industry_Portfolios_daily`."""
    base_url: str = "https://mba.tuck.dartmouth.edu/pages/faculty/ken.french/ftp"
    """Where the library is."""

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """See `Source.fetch`; tickers are the names of the columns (`NoDur`, `Mkt-RF`), none = all of them."""
        report = progress or (lambda ticker, status: None)
        wait = partial(_report_wait, report, self.dataset)
        report(self.dataset, "fetching")
        content = Retrier(self.retry).call(self._download, wait)
        frame = parse_french(content, self.dataset)
        notes = (
            "Returns in percent were turned into levels that start from 100; the first table of the file was used"
            " (value-weighted where there are several).",
        )
        prices = Prices(to_wide(accumulate_returns(frame, "percent")), "returns", "total-return", notes=notes)
        names = {name.upper(): name for name in frame.columns}
        wanted = [names.get(ticker.strip().upper(), ticker) for ticker in tickers]
        return select(prices, f"Kenneth French's {self.dataset}", wanted, start, end, progress)

    def _download(self) -> bytes:
        file = f"{_SHORT.get(self.dataset, self.dataset)}_CSV.zip"
        url = f"{self.base_url.rstrip('/')}/{file}"
        try:
            with urllib.request.urlopen(url, timeout=self.timeout) as answer:
                content: bytes = answer.read(MAX_MEGABYTES << 20)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise SettingsError(
                    f"French.dataset: the library has no file {file}; use {', '.join(_SHORT)}, or a name of its page."
                ) from None
            fault = _unreachable(f"HTTP status {error.code}")
            raise TransientFault(fault, parse_retry_after(error.headers.get("Retry-After"))) from None
        except (OSError, ValueError) as error:
            raise TransientFault(_unreachable(f"there was no complete answer, {type(error).__name__}")) from error
        return content


def parse_french(content: bytes, dataset: str) -> pd.DataFrame:
    """The first table of a zipped CSV file of the library: returns in percent, date × column."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            [part] = archive.infolist()
            if part.file_size > MAX_MEGABYTES << 20:
                raise SourceError(f"The file of {dataset} unpacks to more than {MAX_MEGABYTES} MB; it is not French's.")
            text = archive.read(part).decode("latin-1")
    except (zipfile.BadZipFile, ValueError, OSError):
        raise _unreachable("the answer is cut off or is not a file of the library") from None
    header: list[str] = []
    days: list[str] = []
    rows: list[list[float]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if cells[0].isdigit() and len(cells[0]) in (6, 8) and len(cells) == len(header):
            days.append(cells[0])
            rows.append([float(cell) if cell else np.nan for cell in cells[1:]])
        elif rows:
            break
        elif len(cells) > 1:
            header = cells
    if not rows:
        raise SourceError(f"The file of {dataset} holds no table of returns; choose another dataset.")
    index = pd.to_datetime(days, format="%Y%m%d" if len(days[0]) == 8 else "%Y%m")
    if len(days[0]) == 6:
        index = index + pd.offsets.MonthEnd(0)
    frame = pd.DataFrame(rows, index=index, columns=header[1:])
    return frame.mask(frame.isin([-99.99, -999.0]))


def _unreachable(what: str) -> SourceUnreachableError:
    return SourceUnreachableError(
        f"Kenneth French's library could not be reached ({what}): check the connection and run the same command again."
    )


def _report_wait(report: Progress, dataset: str, wait: float, error: SourceError) -> None:
    report(dataset, f"waiting {wait:.3g} s: unreachable")
