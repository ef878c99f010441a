"""Promised against realised CVaR: by hand, and tests whose error rates are what they claim."""

import json
import math

import numpy as np
import pytest

from portfolio_sdpo.backtest import Bootstrap, CvarLimit, acerbi_szekely, check_promise, kupiec
from portfolio_sdpo.backtest.promise import cvar_by_year
from portfolio_sdpo.errors import BacktestError, SettingsError


def test_promise_by_hand():
    returns = np.array([0.0, -0.1, 0.1, 0.1, -0.2, 0.1])
    promise = check_promise(returns, CvarLimit(bound=-0.09, alpha=0.4, horizon=2))
    # Windows −0.1, −0.01, 0.21, −0.12, −0.12: two of five are the tail. Apart: −0.1, 0.21, −0.12.
    assert promise.realised == pytest.approx(-0.12)
    assert promise.kept is False
    assert (promise.windows, promise.breaches) == (3, 2)
    assert promise.breach_p_value == pytest.approx(3 * 0.4**2 * 0.6 + 0.4**3)
    assert math.isnan(promise.p_value)
    assert check_promise(returns, CvarLimit(bound=-0.13, alpha=0.4, horizon=2)).kept is True


def test_every_year_has_windows_of_its_own():
    returns = np.array([0.0, -0.1, 0.1, 0.1, -0.2, 0.1, 0.3])
    days = np.array(["2018-12-31", "2019-12-27", "2019-12-30", "2019-12-31", "2020-01-02", "2020-01-03", "2020-01-06"])
    found = cvar_by_year(returns, days.astype("datetime64[D]"), CvarLimit(bound=-0.09, alpha=0.5, horizon=2))
    # 2018: no window. 2019: −0.01, 0.21. 2020: −0.12, 0.43. The one from December to January belongs to no year.
    assert found == {"2018": None, "2019": pytest.approx(-0.01), "2020": pytest.approx(-0.12)}


def test_a_track_shorter_than_a_window_says_nothing():
    promise = check_promise(np.array([0.1, -0.1]), CvarLimit(), Bootstrap(draws=3))
    assert promise.kept is None and promise.windows == 0
    assert json.loads(json.dumps(promise.to_json(), allow_nan=False))["realised"] is None


def test_bootstrap_test_tells_a_kept_promise_from_a_broken_one():
    returns = np.random.default_rng(0).normal(0.0, 0.01, 500)
    true = -0.01 * 2.0627  # CVaR of a normal law at 5 %
    bootstrap = Bootstrap(draws=400)
    generous, broken = (
        check_promise(returns, CvarLimit(bound=bound, horizon=1), bootstrap) for bound in (1.5 * true, 0.6 * true)
    )
    assert generous.kept and generous.p_value > 0.9
    assert not broken.kept and broken.p_value < 0.01
    assert generous.interval == broken.interval
    assert generous.interval[0] < true < generous.interval[1]


def test_kupiec_by_hand():
    # Kupiec's own setting: 10 failures in 100 where 5 % were promised.
    expected = 2 * (10 * math.log(0.1 / 0.05) + 90 * math.log(0.9 / 0.95))
    test = kupiec(10, 100, 0.05)
    assert test.statistic == pytest.approx(expected)
    assert test.p_value == pytest.approx(math.erfc(math.sqrt(expected / 2)))
    assert kupiec(0, 100, 0.05).statistic == pytest.approx(-200 * math.log(0.95))
    assert kupiec(100, 100, 0.05).statistic == pytest.approx(-200 * math.log(0.05))


def test_kupiec_rejects_about_as_often_as_it_says():
    breaches = np.random.default_rng(0).binomial(500, 0.05, 2000)
    rejected = np.mean([kupiec(int(count), 500, 0.05).p_value < 0.05 for count in breaches])
    assert 0.02 < rejected < 0.09


def test_acerbi_szekely_by_hand():
    returns = np.array([-0.04, 0.01, -0.02, 0.03, 0.02, 0.0, 0.01, 0.01, -0.01, 0.02])
    # Forecast: VaR −1.5 %, CVaR −3 %, α 0.2: Z = 1 − (0.04 + 0.02) / 0.03 / (0.2 · 10) = 0.
    bootstrap = Bootstrap(draws=50)
    assert acerbi_szekely(returns, -0.015, -0.03, 0.2, bootstrap).statistic == pytest.approx(0.0)
    assert acerbi_szekely(returns, -0.015, -0.015, 0.2, bootstrap).statistic == pytest.approx(-1.0)
    forecasts = np.full(10, -0.015)
    assert acerbi_szekely(returns, forecasts, forecasts, 0.2, bootstrap).statistic == pytest.approx(-1.0)


def test_acerbi_szekely_finds_risk_that_was_hidden():
    returns = np.random.default_rng(1).normal(0.0, 0.01, 1000)
    bootstrap = Bootstrap(draws=300)
    assert acerbi_szekely(returns, -0.01645, -0.02063, 0.05, bootstrap).p_value > 0.05
    assert acerbi_szekely(returns, -0.0098, -0.0124, 0.05, bootstrap).p_value < 0.01


def test_bad_input_is_refused():
    for bad in ([np.nan, 0.1], [-1.0, 0.1], [[0.1]]):
        with pytest.raises(BacktestError, match="returns must be"):
            check_promise(np.array(bad), CvarLimit())
    with pytest.raises(BacktestError, match="cannot be"):
        kupiec(3, 2, 0.05)
    with pytest.raises(SettingsError, match="alpha"):
        kupiec(1, 2, 1.5)
    with pytest.raises(BacktestError, match="below 0"):
        acerbi_szekely(np.array([0.1, -0.1]), -0.01, 0.02, 0.05, Bootstrap())
    with pytest.raises(BacktestError, match="at least one return"):
        acerbi_szekely(np.zeros(0), -0.01, -0.02, 0.05, Bootstrap())
    with pytest.raises(SettingsError, match="bound"):
        CvarLimit(bound=0.05)
