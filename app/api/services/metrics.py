"""Counters for Prometheus, in its text format.

Written here instead of using its client library: a request costs two additions in a dictionary and no lock, since only
one thread counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by method, route and status, and their durations by route."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.seconds: dict[str, list[float]] = {}
        """By route: a count for every bucket, one for all longer requests, and the sum."""

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = (method, route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        steps = self.seconds.get(route)
        if steps is None:
            steps = self.seconds[route] = [0.0] * (len(BOUNDS) + 2)
        steps[bisect_left(BOUNDS, seconds)] += 1
        steps[-1] += seconds

    def render(self, gauges: Mapping[str, tuple[str, str, float]]) -> str:
        """All counters as text; `gauges`: type, help and value by name."""
        lines = list(_render_head("portfolio_sdpo_requests_total", "counter", "Requests by method, route and status."))
        for (method, route, status), number in sorted(self.requests.items()):
            labels = f'method="{_escape(method)}",route="{_escape(route)}",status="{status}"'
            lines.append(f"portfolio_sdpo_requests_total{{{labels}}} {number}")
        name = "portfolio_sdpo_request_seconds"
        lines.extend(_render_head(name, "histogram", "Seconds from request to response, by route."))
        for route, steps in sorted(self.seconds.items()):
            total, label = 0, f'route="{_escape(route)}"'
            for bound, many in zip((*BOUNDS, None), steps, strict=False):
                total += int(many)
                lines.append(f'{name}_bucket{{{label},le="{"+Inf" if bound is None else bound}"}} {total}')
            lines += [f"{name}_sum{{{label}}} {steps[-1]}", f"{name}_count{{{label}}} {total}"]
        for gauge, (kind, help_text, value) in gauges.items():
            lines += [*_render_head(gauge, kind, help_text), f"{gauge} {value:.15g}"]
        return "\n".join(lines) + "\n"


def _render_head(name: str, kind: str, help_text: str) -> Iterable[str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
