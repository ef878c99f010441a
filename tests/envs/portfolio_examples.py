"""Prices of two stocks written down by hand, and episodes that are played on them."""

import numpy as np
import pandas as pd
from hypothesis import strategies as st

nan = np.nan
CASH, A, B = np.eye(3)
DATES = pd.to_datetime(["2019-01-02", "2019-01-03", "2019-01-04", "2019-01-07"])


SAME_CLOSE = {"execution": "same-close"}
EXECUTIONS = st.sampled_from(["next-close", "same-close"])


def by_hand():
    """A doubles, halves, doubles; B lists on the second day, rises by a half and is gone on the last."""
    return pd.DataFrame({"A": [1.0, 2.0, 1.0, 2.0], "B": [nan, 2.0, 3.0, nan]}, index=DATES)


def some_weights(rng, *shape):
    """Weights with zeros, from all in one asset to evenly spread."""
    parts = rng.standard_exponential(shape) ** rng.choice([0.1, 1, 10]) * (rng.random(shape) < 0.7)
    parts[..., 0] += 1e-3
    return parts / parts.sum(-1, keepdims=True)


def play(env, actions, **options):
    """Observations, rewards and infos of one episode of the scalar environment."""
    seen, rewards, infos = [env.reset(seed=0, options=options)[0]], [], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append(observation)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return np.array(seen), np.array(rewards), infos
