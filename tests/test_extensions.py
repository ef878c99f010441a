"""Another package adds a measure, an algorithm, a strategy, a source and an environment; nothing here is changed.

The package is written to a folder of its own, with the metadata that an installer would write, and used as its users
would: by the command line and by scripts, in processes that know of it by their import path alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]

CODE = {
    "measure.py": '''
        """Mean absolute deviation."""
        from typing import Literal

        from portfolio_sdpo import RiskMeasure


        class Deviation(RiskMeasure):
            kind: Literal["deviation"] = "deviation"

            def evaluate(self, values, weights):
                mean = (weights * values).sum(-1, keepdim=True)
                return (weights * (values - mean).abs()).sum(-1)
    ''',
    "algorithm.py": '''
        """PPO that says how often it was called."""
        from typing import ClassVar, Literal

        from portfolio_sdpo import PpoSettings
        from portfolio_sdpo.rl.algorithms.ppo import Ppo


        class CountingSettings(PpoSettings):
            kind: Literal["counting"] = "counting"
            step: int = 1


        class Counting(Ppo):
            settings_type: ClassVar = CountingSettings
            accepts_nonlinear = True
            count = 0

            def update(self, rollout, iteration, generator):
                self.count += self.settings.step
                return super().update(rollout, iteration, generator) | {"count": float(self.count)}
    ''',
    "strategy.py": '''
        """Everything in the stock that has risen most."""


        class Winner:
            def __init__(self, lookback=20):
                self.lookback = lookback
                self.every = 5

            def decide(self, history, held):
                growth = history.gross_returns[-self.lookback :, 1:].prod(axis=0)
                return {history.tickers[int(growth.argmax())]: 1.0}
    ''',
    "source.py": '''
        """Prices that rise by a fixed rate."""
        from typing import ClassVar

        import numpy as np
        import pandas as pd

        from portfolio_sdpo.prices.prices import Prices
        from portfolio_sdpo.prices.sources.base import SourceSettings


        class Compound(SourceSettings):
            name: ClassVar[str] = "compound"
            rate: float = 0.001

            def fetch(self, tickers, start, end, progress=None):
                days = pd.bdate_range(start, end, name="date").as_unit("us")
                steps = np.arange(len(days))[:, None] * self.rate * (1 + np.arange(len(tickers)))
                frame = pd.DataFrame(100 * np.exp(steps), index=days, columns=pd.Index(tickers, name="ticker"))
                return Prices(frame, "close", "total-return")
    ''',
    "environment.py": '''
        """A bandit whose second arm pays more and costs more."""
        import gymnasium
        import numpy as np


        class Bandit(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.left = 5
                return np.ones(1, np.float32), {"risk": 0.0}

            def step(self, action):
                self.left -= 1
                reward = float(action) + self.np_random.normal(0.0, 0.1)
                return np.ones(1, np.float32), reward, self.left == 0, False, {"risk": float(action)}
    ''',
    "__init__.py": '''
        """What `import outsider`, or gymnasium by the name `outsider:outsider/Bandit-v0`, brings."""
        import gymnasium

        gymnasium.register("outsider/Bandit-v0", entry_point="outsider.environment:Bandit")
    ''',
}
ENTRY_POINTS = """
    [portfolio_sdpo.measures]
    deviation = outsider.measure:Deviation

    [portfolio_sdpo.algorithms]
    counting = outsider.algorithm:Counting

    [portfolio_sdpo.strategies]
    winner = outsider.strategy:Winner

    [portfolio_sdpo.sources]
    compound = outsider.source:Compound
"""


class Surroundings:
    """A folder to work in, and processes that find the other package on their path."""

    def __init__(self, place: Path) -> None:
        self.place = place
        site = place / "site"
        (site / "outsider").mkdir(parents=True)
        for name, text in CODE.items():
            (site / "outsider" / name).write_text(dedent(text))
        metadata = site / "outsider-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(dedent(ENTRY_POINTS))
        self.variables = {
            **os.environ,
            "PYTHONPATH": str(site),
            "PORTFOLIO_SDPO_HOME": str(place / "home"),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=self.place, env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def cli(self, line: str) -> str:
        return self.run("-m", "portfolio_sdpo", *line.split())

    def script(self, text: str) -> str:
        return self.run("-c", dedent(text))


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Surroundings:
    before = sources()
    yield Surroundings(tmp_path_factory.mktemp("outside"))
    assert sources() == before


def sources() -> dict[str, int]:
    """Every source file of the repository with its time of change."""
    files = [path for folder in ("portfolio_sdpo", "app") for path in (ROOT / folder).rglob("*.py")]
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_a_source_and_a_strategy_by_the_command_line(outside):
    outside.cli("data fetch --source compound --tickers A,B,C --start 2020-01-02 --end 2021-12-31 --name rising")
    line = "backtest --snapshot rising --algo none --strategies winner,equal-weight --start 2021-06-01 --json"
    records = {each["strategy"]: each for each in json.loads(outside.cli(line))["records"]}
    assert records["winner"]["next"]["weights"] == {"C": 1.0}
    assert records["winner"]["final_wealth"] > records["equal-weight"]["final_wealth"]


def test_a_strategy_by_the_front_door(outside):
    out = outside.script(
        """
        from portfolio_sdpo import backtest, load_prices
        prices = load_prices("sample").loc["2019":"2020"]
        result = backtest(prices, {"best": "winner", "1/N": "equal-weight"}, start="2020-11-02", intervals=False)
        print(*result.returns, sep=",")
        """
    )
    assert out.strip() == "best,1/N"


def test_an_algorithm_measure_and_environment_in_one_training(outside):
    """Settings from JSON, as files have them: kinds of the other package are known without an import of it."""
    table = {
        "problem": {
            "constraints": [{"signal": "risk", "measure": {"kind": "deviation"}, "sense": "<=", "bound": 5.0}],
            "discount": 0.9,
        },
        "algorithm": {"kind": "counting", "step": 2, "actor": {"hidden": [8]}},
        "iterations": 3,
        "steps": 5,
        "tensorboard": False,
    }
    (outside.place / "settings.json").write_text(json.dumps(table))
    out = outside.script(
        """
        from pathlib import Path
        import gymnasium
        from portfolio_sdpo import Trainer, TrainSettings
        settings = TrainSettings.model_validate_json(Path("settings.json").read_text())
        assert TrainSettings.model_validate_json(settings.model_dump_json()) == settings
        env = gymnasium.make_vec("outsider:outsider/Bandit-v0", num_envs=4, vectorization_mode="sync")
        rows = Trainer(settings, env, Path("run")).run()
        print(type(settings.algorithm).__module__, settings.problem.constraints[0].name, rows[-1]["count"], sep="|")
        """
    )
    assert out.strip() == "outsider.algorithm|deviation of risk <= 5|6.0"


def test_an_algorithm_learns_to_allocate_by_the_command_line(outside):
    """The learner of an agent may be any algorithm, chosen in the file that `--config` names."""
    (outside.place / "counting.toml").write_text(
        'first = 2\npaths = 8\nepisodes = 8\n[learner]\nkind = "counting"\nstep = 3\n'
        '[learner.actor]\nhidden = [4, 4]\n[learner.critic]\nkind = "mean"\nhidden = [4, 4]\n'
    )
    trained = json.loads(outside.cli("train --config counting.toml --algo ppo --out agent --json"))
    assert trained["settings"]["learner"]["kind"] == "counting" and trained["settings"]["learner"]["step"] == 3
    assert abs(sum(trained["today"]["weights"].values()) - 1.0) < 1e-6


def test_a_broken_declaration_stops_nobody(outside, tmp_path):
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[portfolio_sdpo.strategies]\nlost = nowhere:Strategy\n")
    variables = outside.variables | {"PYTHONPATH": f"{outside.variables['PYTHONPATH']}{os.pathsep}{tmp_path}"}
    script = "from portfolio_sdpo.backtest.strategies import STRATEGIES; print(*STRATEGIES)"
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert "winner" in done.stdout.split() and "lost" not in done.stdout.split()
    assert "broken: its extension 'lost' (nowhere:Strategy)" in done.stderr
