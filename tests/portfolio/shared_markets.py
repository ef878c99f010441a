"""Markets with and without a signal, for the tests of the shared policy."""

import numpy as np

from portfolio_sdpo.portfolio.market import Market


def make_market(gross_returns: np.ndarray, listed: np.ndarray | None = None) -> Market:
    """A market of gross returns [T, 1 + N] on weekdays from 1990 on."""
    days = np.busday_offset("1990-01-01", np.arange(len(gross_returns)), roll="forward")
    names = tuple(f"S{i:02d}" for i in range(gross_returns.shape[1] - 1))
    if listed is None:
        listed = np.ones(gross_returns.shape, dtype=np.bool_)
    return Market(days.astype("datetime64[D]"), names, gross_returns, listed)


def draw_noise(sessions: int, assets: int, seed: int) -> Market:
    """Prices without a signal: a common factor, clustered volatility, the same expected excess return for all."""
    rng = np.random.default_rng(seed)
    level = np.exp(np.convolve(rng.normal(0.0, 0.1, sessions + 120), 0.97 ** np.arange(120), "valid")[:sessions])
    common = rng.normal(0.0, 0.008, sessions) * level
    own = rng.normal(0.0, 0.01, (sessions, assets)) * level[:, None]
    gross_returns = np.ones((sessions, 1 + assets))
    gross_returns[:, 1:] += 0.0002 + common[:, None] + own
    return make_market(np.maximum(gross_returns, 0.5))


def plant_momentum(sessions: int, assets: int, seed: int, edge: float = 0.0005) -> Market:
    """What rose more than the others in the last 252 sessions (but five) rises more: by `edge` a standard deviation."""
    rng = np.random.default_rng(seed)
    moves = rng.normal(0.0002, 0.008, (sessions, 1)) + rng.normal(0.0, 0.007, (sessions, assets))
    for t in range(260, sessions):
        past = np.log1p(moves[t - 257 : t - 5]).sum(axis=0)
        moves[t] += edge * np.clip((past - past.mean()) / past.std(), -2.0, 2.0)
    return make_market(np.concatenate([np.ones((sessions, 1)), 1.0 + moves], axis=1))
