"""Snapshots as tables and a chart, for the page *Data*."""

from __future__ import annotations

from datetime import UTC, date, datetime
from html import escape

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import SnapshotError
from portfolio_sdpo.prices.cleaning import Finding, Report
from portfolio_sdpo.prices.manifest import Manifest
from portfolio_sdpo.report.looks import COLOURS, DASHARRAYS, Spec

from ..data.form_errors import UPLOAD_LABELS, describe_error

POINTS = 1500
"""Days that are drawn at most; of a longer history, every n-th day."""
ROWS = 200
"""Findings that are listed at most."""
SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}


def render_list(found: dict[str, Manifest | SnapshotError]) -> str:
    """One line per snapshot."""
    headings = ("Name", "Prices", "Sessions", "Tickers", "Source", "Last price", "Warnings", "Hash")
    rows = []
    for name, entry in found.items():
        if isinstance(entry, SnapshotError):
            rows.append(f"<tr><th scope='row'>{escape(name)}</th><td colspan='7' class='bad'>damaged</td></tr>")
            continue
        cells = [
            f"{entry.start} to {entry.end}",
            f"{entry.rows:,}",
            f"{len(entry.tickers):,}",
            escape(entry.source),
            _age(entry.end),
            str(len(entry.warnings) or "none"),
            f"<code>{entry.sha256[:12]}</code>",
        ]
        rows.append(f"<tr><th scope='row'>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th scope='col'>{heading}</th>" for heading in headings)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _age(last: date) -> str:
    days = (datetime.now(UTC).date() - last).days
    if days >= 730:
        return f"{days / 365.25:.0f} years ago"
    return f"{days} day{'s' * (days != 1)} ago" if days > 0 else "today"


def render_facts(manifest: Manifest) -> str:
    """The headline figures of one snapshot."""
    carried = sum(map(len, manifest.carried.values()))
    cells = {
        "Sessions": (f"{manifest.rows:,}", f"{manifest.start} to {manifest.end}"),
        "Tickers": (f"{len(manifest.tickers):,}", escape(_abbreviate(manifest.tickers, 6))),
        "Last price": (_age(manifest.end), f"fetched {manifest.fetched_at:%Y-%m-%d %H:%M} UTC"),
        "Carried over gaps": (f"{carried:,}", f"of {manifest.rows * len(manifest.tickers):,} prices"),
    }
    made = "".join(
        f"<div class='card'><dt>{name}</dt><dd><span class='figure'>{value}</span><br><span class='more'>{more}</span>"
        "</dd></div>"
        for name, (value, more) in cells.items()
    )
    return f"<dl class='cards'>{made}</dl>"


def draw_prices(frame: pd.DataFrame, tickers: list[str]) -> Spec:
    """Prices of some tickers, each scaled to 100 at its first; gaps are not filled."""
    step = max(1, -(-len(frame) // POINTS))
    # The last day is always there.
    rows = np.arange(len(frame) - 1, -1, -step)[::-1]
    days = [str(day.date()) for day in frame.index[rows]]
    data = []
    for number, ticker in enumerate(tickers):
        prices = frame[ticker].to_numpy()
        observed = prices[~np.isnan(prices)]
        scaled = 100.0 * prices[rows] / observed[0]
        turn, colour = divmod(number, len(COLOURS))
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escape(ticker),
                "x": days,
                "y": [None if np.isnan(value) else round(float(value), 3) for value in scaled],
                "line": {"color": COLOURS[colour], "dash": tuple(DASHARRAYS)[turn % len(DASHARRAYS)], "width": 1.8},
                "hovertemplate": "%{fullData.name}  %{y:.1f}<extra></extra>",
            }
        )
    axis = {"gridcolor": "var(--line)", "linecolor": "var(--line)", "zeroline": False, "automargin": True}
    layout = {
        "height": 380,
        "margin": {"l": 48, "r": 12, "t": 10, "b": 32},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "xaxis": axis | {"type": "date", "showgrid": False},
        "yaxis": axis,
    }
    return {"data": data, "layout": layout}


def render_quality(manifest: Manifest) -> str:
    """The findings of the cleaning, the most serious first."""
    findings = Report.from_json(manifest.report).findings
    messages = [
        *(f"{ticker} could not be fetched: {reason}" for ticker, reason in manifest.failures.items()),
        *manifest.notes,
    ]
    notes = "".join(f"<li>{escape(text)}</li>" for text in messages[:ROWS])
    notes = f"<ul>{notes}</ul>" if notes else ""
    if not findings:
        return f"<p>Cleaning found no problems in these prices.</p>{notes}"
    rows = "".join(_row(finding) for finding in findings[:ROWS])
    head = "".join(f"<th scope='col'>{heading}</th>" for heading in ("Kind", "Ticker", "Days"))
    head += "<th scope='col' style='text-align: left'>Finding</th>"
    left = (
        f"<p class='note'>{len(findings) - ROWS} more findings are listed by the command "
        "<code>portfolio-sdpo data show</code>.</p>"
        if len(findings) > ROWS
        else ""
    )
    table = f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    return f"<p class='sub'>{_count_by_severity(findings)}</p>{table}{left}{notes}"


def _row(finding: Finding) -> str:
    sentence = escape(describe_error(finding.sentence, UPLOAD_LABELS))
    colour = "" if finding.severity == "info" else " class='bad'"
    return (
        f"<tr><th scope='row'{colour}>{escape(finding.kind)}</th><td>{escape(finding.ticker or 'all')}</td>"
        f"<td>{finding.count:,}</td><td class='words'>{sentence}</td></tr>"
    )


def _count_by_severity(findings: tuple[Finding, ...]) -> str:
    counts = {word: sum(each.severity == severity for each in findings) for severity, word in SEVERITIES.items()}
    messages = [f"{count} {word}{'s' * (count != 1)}" for word, count in counts.items() if count]
    return f"Cleaning reported {', '.join(messages)}."


def render_provenance(manifest: Manifest, versions: list[Manifest]) -> str:
    """Where the prices came from, and all versions."""
    facts = {
        "Column": f"{manifest.column}, adjusted: {manifest.adjustment}",
        "Source": manifest.source,
        "Calendar": manifest.request.calendar or "none",
        "sha256": manifest.sha256,
        "Created with": f"portfolio_sdpo {manifest.package_version}",
    }
    rows = "".join(
        f"<tr><th scope='row'>{name}</th><td class='words'>{escape(text)}</td></tr>" for name, text in facts.items()
    )
    past = "".join(
        f"<tr><th scope='row'>{len(versions) - place}</th><td>{each.start} to {each.end}</td>"
        f"<td>{len(each.tickers):,}</td><td>{each.fetched_at:%Y-%m-%d %H:%M}</td>"
        f"<td><code>{each.sha256[:12]}</code></td></tr>"
        for place, each in enumerate(versions)
    )
    head = "".join(f"<th scope='col'>{each}</th>" for each in ("Version", "Prices", "Tickers", "Fetched, UTC", "Hash"))
    return (
        f"<div class='scroll'><table><tbody>{rows}</tbody></table></div>"
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{past}</tbody></table></div>"
    )


def _abbreviate(names: tuple[str, ...], most: int) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
