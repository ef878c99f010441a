"""*Data*: which prices there are, what is to be known about them, and a file of one's own as a new snapshot."""

from __future__ import annotations

from typing import Any

import streamlit as st

from portfolio_sdpo.errors import PortfolioSdpoError, SnapshotError
from portfolio_sdpo.market.cleaning import Repairs
from portfolio_sdpo.market.layouts import LAYOUTS
from portfolio_sdpo.market.manifest import Manifest
from portfolio_sdpo.market.snapshots import Snapshot, Store

from .data_tables import facts_of, list_of, provenance_of, quality_of, rebased
from .look import figure, html
from .uploads import LARGEST, import_upload, proposed_name

SNAPSHOT = "snapshot"
"""The query parameter with a snapshot's name: its page can be linked to."""
TICKERS = 8
"""Curves that are shown at first."""


def render() -> None:
    """The page."""
    st.title("Data")
    _told()
    store = Store()
    found = _manifests(store)
    if not found:
        _offer()
    else:
        html(list_of(found))
        for problem in (entry for entry in found.values() if isinstance(entry, SnapshotError)):
            st.error(str(problem), icon=":material/error:")
    with st.expander("Take prices from a file", icon=":material/upload_file:", expanded=not found):
        _upload()
    sound = [name for name, entry in found.items() if isinstance(entry, Manifest)]
    if sound:
        _inspect(store, sound)


def _told() -> None:
    """What the run before this one did."""
    if message := st.session_state.pop("data-told", None):
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
    """Nothing is there yet."""
    st.info("There is no snapshot yet: take a file of yours, or the bundled sample.", icon=":material/info:")
    if st.button("Take the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
        from portfolio_sdpo.market.ingest import fetch_snapshot

        saved = fetch_snapshot("sample", (), None, None, "sample")
        _tell(saved.snapshot.manifest, saved.new)
    st.caption("The sample: nine large US stocks, 2016 to 2021, adjusted for dividends and splits.")


def _tell(manifest: Manifest, new: bool) -> None:
    """Say what came of it after the page was drawn anew."""
    held = f"{len(manifest.tickers)} tickers, {manifest.start} to {manifest.end}"
    st.session_state["data-told"] = (
        f"{manifest.name} is a snapshot now: {held}." if new else f"{manifest.name} holds exactly these prices already."
    )
    st.query_params[SNAPSHOT] = manifest.name
    st.session_state.pop("snapshot", None)
    st.rerun()


def _upload() -> None:
    """A file, what to call it, and what the reader cannot know."""
    file = st.file_uploader(
        "CSV, CSV.gz or Parquet",
        type=["csv", "gz", "parquet"],
        max_upload_size=LARGEST,
        help="Wide (a column per ticker), long (a row per date and ticker), or one ticker's table as Yahoo, Nasdaq or "
        "Quandl write it: the layout is recognised.",
    )
    if file is None:
        st.caption(f"At most {LARGEST} MB; a larger file, or a folder, with `portfolio-sdpo data import`.")
        return
    name = st.text_input("Name of the snapshot", proposed_name(file.name), key=f"name-{file.file_id}")
    with st.popover("Reading and repairs"):
        options = _options()
    if not st.button("Make the snapshot", type="primary", icon=":material/save:"):
        return
    try:
        with st.spinner("Reading and checking the prices"):
            saved = import_upload(file.name, file.getvalue(), name.strip(), **options)
    except PortfolioSdpoError as error:
        st.error(str(error), icon=":material/error:")
        return
    _tell(saved.snapshot.manifest, saved.new)


def _options() -> dict[str, Any]:
    layout = st.selectbox("Layout", [None, *LAYOUTS], format_func=lambda each: each or "recognise it")
    order = {"the file has to tell": None, "day first": True, "month first": False}
    first = st.selectbox("03/01/2011 is", list(order))
    calendar = st.text_input("Calendar", "XNYS", help="Of `exchange_calendars`; none = do not check.")
    duplicates = st.selectbox(
        "Two prices for one day", [None, "first", "last"], format_func=lambda each: each or "stop"
    )
    drop = st.checkbox("Take prices of zero and below as no price")
    closed = st.checkbox("Leave out days on which the exchange is closed")
    return {
        "layout": layout,
        "dayfirst": order[first],
        "calendar": None if calendar.strip().lower() in ("none", "") else calendar.strip(),
        "repairs": Repairs(
            duplicates=duplicates, non_positive="drop" if drop else None, extra_sessions="drop" if closed else None
        ),
    }


def _inspect(store: Store, names: list[str]) -> None:
    """One snapshot: its prices, its quality, its versions."""
    asked = st.query_params.get(SNAPSHOT)
    name = st.selectbox("Snapshot", names, index=names.index(asked) if asked in names else 0, key="snapshot")
    st.query_params[SNAPSHOT] = name
    digest, _ = store.find(name)
    snapshot = _open(str(store.root), name, digest)
    manifest = snapshot.manifest
    html(facts_of(manifest))
    _prices(snapshot)
    st.subheader("Quality")
    html(quality_of(manifest))
    with st.expander("Provenance and versions"):
        html(provenance_of(manifest, [each for _, each in store.history(name)]))


@st.cache_resource(max_entries=4, show_spinner="Reading the prices")
def _open(root: str, name: str, digest: str) -> Snapshot:
    """By the hash of its manifest, so that a new version is read and an old one is not read again."""
    return Store().open(name)


@st.fragment
def _prices(snapshot: Snapshot) -> None:
    st.subheader("Prices")
    tickers = list(snapshot.manifest.tickers)
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    chosen = left.multiselect(
        "Tickers", tickers, default=tickers[:TICKERS], key=f"tickers-{snapshot.digest}", label_visibility="collapsed"
    )
    log = right.toggle("Logarithmic", key="prices-log")
    if chosen:
        alt = f"Prices of {', '.join(chosen[:TICKERS])}, each 100 at its first day."
        figure(rebased(snapshot.frame, chosen), "prices", alt, legend=True, log=log)
    more = f" {len(tickers) - len(chosen)} more can be chosen." if len(chosen) < len(tickers) else ""
    st.caption(f"Each ticker is 100 on its first day.{more}")
