"""*Data*: the price snapshots, their quality and provenance, and the upload of a file as a new snapshot."""

from __future__ import annotations

from datetime import date
from typing import Any

import streamlit as st

from portfolio_sdpo.errors import PortfolioSdpoError, SnapshotError
from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.prices.layouts import LAYOUTS
from portfolio_sdpo.prices.manifest import Manifest
from portfolio_sdpo.prices.returns import UNITS
from portfolio_sdpo.prices.snapshots import Snapshot, Store

from ..data.form_errors import UPLOAD_LABELS, describe_error
from ..data.uploads import MAX_MEGABYTES, import_upload, propose_name
from ..widgets.address import LOG, choose_switch, read_choices, write_choice
from ..widgets.figures import show_figure
from ..widgets.snapshot_tables import draw_prices, render_facts, render_list, render_provenance, render_quality
from ..widgets.style import show_html

SNAPSHOT = "snapshot"
"""The query parameter with a snapshot's name: its page can be linked to."""
TICKER = "ticker"
"""The query parameter with the tickers whose prices are drawn."""
TICKERS = 8
"""Tickers whose prices are drawn at first."""
AUTOMATIC = "recognise automatically"
FIRST_DAY, LAST_DAY = date(1800, 1, 1), date(2100, 12, 31)


def render() -> None:
    """The page."""
    st.title("Data")
    _show_message()
    store = Store()
    found = _manifests(store)
    if not found:
        _offer()
    else:
        show_html(render_list(found))
        for problem in (entry for entry in found.values() if isinstance(entry, SnapshotError)):
            st.error(str(problem), icon=":material/error:")
    with st.expander("Upload a price file", icon=":material/upload_file:", expanded=not found):
        _upload()
    readable = [name for name, entry in found.items() if isinstance(entry, Manifest)]
    if readable:
        _inspect(store, readable)


def _show_message() -> None:
    """Show the message that an action left before the page was drawn again."""
    if message := st.session_state.pop("data-message", None):
        st.success(message, icon=":material/check:")


def _manifests(store: Store) -> dict[str, Manifest | SnapshotError]:
    found: dict[str, Manifest | SnapshotError] = {}
    for name in store.list():
        try:
            found[name] = store.find(name)[1]
        except SnapshotError as error:
            found[name] = error
    return found


def _offer() -> None:
    """Offer the bundled sample where there is no snapshot yet."""
    st.info("There is no snapshot yet. Upload a file, or use the bundled sample.", icon=":material/info:")
    if st.button("Use the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
        from portfolio_sdpo.prices.ingest import fetch_snapshot

        saved = fetch_snapshot("sample", (), None, None, "sample")
        _leave_message(saved.snapshot.manifest, saved.new)
    st.caption("The sample holds nine large US stocks from 2016 to 2021, adjusted for dividends and splits.")


def _leave_message(manifest: Manifest, new: bool) -> None:
    """Keep a message about a new snapshot, and draw the page again."""
    content = f"{len(manifest.tickers)} tickers, {manifest.start} to {manifest.end}"
    st.session_state["data-message"] = (
        f"Snapshot {manifest.name} was created: {content}."
        if new
        else f"Snapshot {manifest.name} already holds exactly these prices."
    )
    st.query_params[SNAPSHOT] = manifest.name
    st.session_state.pop("snapshot", None)
    st.rerun()


def _upload() -> None:
    """A form with a file, the name of its snapshot, and the options for reading it."""
    file = st.file_uploader(
        "CSV, CSV.gz or Parquet",
        type=["csv", "gz", "parquet"],
        max_upload_size=MAX_MEGABYTES,
        help="Wide (a column per ticker), long (a row per date and ticker), or one ticker's table as Yahoo, Nasdaq or "
        "Quandl write it. The layout is recognised automatically.",
    )
    if file is None:
        st.caption(
            f"At most {MAX_MEGABYTES} MB. The command `portfolio-sdpo data import` reads larger files and folders."
        )
        return
    name = st.text_input("Name of the snapshot", propose_name(file.name), key=f"name-{file.file_id}")
    with st.popover("Reading options and repairs"):
        options = _options()
    if not st.button("Create the snapshot", type="primary", icon=":material/save:"):
        return
    try:
        with st.spinner("Reading and checking the prices"):
            saved = import_upload(file.name, file.getvalue(), name.strip(), **options)
    except PortfolioSdpoError as error:
        st.error(describe_error(error, UPLOAD_LABELS), icon=":material/error:")
        return
    _leave_message(saved.snapshot.manifest, saved.new)


def _options() -> dict[str, Any]:
    labels = UPLOAD_LABELS
    layout = st.selectbox(
        labels["layout"],
        [AUTOMATIC, *LAYOUTS],
        accept_new_options=True,
        help="You can also type a layout with options, such as long:ticker=tic,price=close.",
    )
    order = {"decided from the file": None, "day first": True, "month first": False}
    first = st.selectbox(labels["dayfirst"], list(order))
    numbers = st.selectbox(
        labels["returns"],
        [None, *UNITS],
        format_func=lambda unit: "prices" if unit is None else f"{unit} returns",
        help="Returns are turned into prices that start at 100. 1 % is 0.01 as a decimal, 1.0 as a percentage, "
        "ln(1.01) as a log return and 1.01 as a gross return.",
    )
    to_daily = st.checkbox(labels["to_daily"], help="For intraday prices: a snapshot holds one price per day.")
    tickers = st.text_input(labels["tickers"], placeholder="all", help="Only these, separated by commas.")
    start, end = (
        column.date_input(labels[edge], None, FIRST_DAY, LAST_DAY, format="YYYY-MM-DD")
        for column, edge in zip(st.columns(2), ("start", "end"), strict=True)
    )
    calendar = st.text_input(
        labels["calendar"], "XNYS", help="A calendar of `exchange_calendars`, or none for no check."
    )
    duplicates = st.selectbox(
        labels["duplicates"], [None, "first", "last"], format_func=lambda each: each or "refuse the file"
    )
    drop = st.checkbox(labels["non_positive"])
    closed = st.checkbox(labels["extra_sessions"])
    return {
        "layout": None if layout == AUTOMATIC else layout,
        "dayfirst": order[first],
        "returns": numbers,
        "to_daily": to_daily,
        "tickers": tuple(name.strip() for name in tickers.split(",") if name.strip()),
        "start": start,
        "end": end,
        "calendar": None if calendar.strip().lower() in ("none", "") else calendar.strip(),
        "repairs": Repairs(
            duplicates=duplicates, non_positive="drop" if drop else None, extra_sessions="drop" if closed else None
        ),
    }


def _inspect(store: Store, names: list[str]) -> None:
    """Show one snapshot: its prices, quality, provenance and versions."""
    requested_name = st.query_params.get(SNAPSHOT)
    name = st.selectbox(
        "Snapshot", names, index=names.index(requested_name) if requested_name in names else 0, key="snapshot"
    )
    st.query_params[SNAPSHOT] = name
    digest, _ = store.find(name)
    snapshot = _open(str(store.root), name, digest)
    manifest = snapshot.manifest
    show_html(render_facts(manifest))
    _prices(snapshot)
    st.subheader("Quality")
    show_html(render_quality(manifest))
    with st.expander("Provenance and versions"):
        show_html(render_provenance(manifest, [each for _, each in store.history(name)]))


@st.cache_resource(max_entries=4, show_spinner="Reading the prices")
def _open(root: str, name: str, digest: str) -> Snapshot:
    """Open a snapshot; it is cached by the hash of its manifest, so that a new version is read."""
    return Store().open(name)


@st.fragment
def _prices(snapshot: Snapshot) -> None:
    st.subheader("Prices")
    tickers = list(snapshot.manifest.tickers)
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    usual = tickers[:TICKERS]
    selection = left.multiselect(
        "Tickers",
        tickers,
        default=read_choices(TICKER, tickers, usual),
        key=f"tickers-{snapshot.digest}",
        label_visibility="collapsed",
    )
    write_choice(TICKER, selection, usual)
    log = choose_switch(right, "Logarithmic", LOG, key="prices-log")
    if selection:
        alt = f"Prices of {', '.join(selection[:TICKERS])}, each 100 at its first day."
        show_figure(draw_prices(snapshot.frame, selection), "prices", alt, legend=True, log=log)
    rest = len(tickers) - len(selection)
    more = f" {rest} more ticker{'s' * (rest > 1)} can be added." if rest else ""
    st.caption(f"The price of each ticker is scaled to 100 on its first day.{more}")
