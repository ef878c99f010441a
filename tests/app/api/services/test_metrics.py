"""Counters in the text format of Prometheus."""

from __future__ import annotations

from portfolio_sdpo_app.api.services.metrics import Metrics


def test_metrics_are_what_prometheus_reads():
    metrics = Metrics()
    for seconds in (0.0001, 0.003, 99.0):
        metrics.count("GET", 'a"\\\n', 200, seconds)
    lines = metrics.render({"up": ("gauge", "Up.", 1)}).splitlines()
    assert 'portfolio_sdpo_requests_total{method="GET",route="a\\"\\\\\\n",status="200"} 3' in lines
    steps = [line for line in lines if "_bucket" in line]
    assert [int(line.rpartition(" ")[2]) for line in steps] == [1, 1, 1, *[2] * 11, 3]
    assert 'le="+Inf"' in steps[-1] and lines[-1] == "up 1"
    assert any(line.endswith(" 99.0031") and "_sum" in line for line in lines)
