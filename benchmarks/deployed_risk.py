"""Whether what is trained is what trades: the CVaR of an agent as training counts it, and as it is deployed.

    python benchmarks/deployed_risk.py --preset lstm --seeds 0,1,2 --end 2018-12-31
    python benchmarks/deployed_risk.py --training through-shield --seeds 0,1,2 --end 2018-12-31

An agent is trained up to the end on scenarios that it resamples from the past. Then the same scenarios are drawn as one
long history, and the agent, which learns no more, is simulated on it as in any backtest: from cash, at its rhythm and
execution, with its fee, and behind the shield if it is trained through it. `promised` is what it promises at the end,
`deployed` the CVaR of the periods of that simulation, and `trained` that of the same periods as training counts them.
"""

from __future__ import annotations

import argparse
from datetime import date

import numpy as np

from portfolio_sdpo.backtest.deployed_risk import measure_deployed_risk
from portfolio_sdpo.portfolio.market import load_market
from portfolio_sdpo.portfolio.presets import plan
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="lstm")
    parser.add_argument("--snapshot", help="a snapshot's name; the bundled sample by default")
    parser.add_argument("--training", choices=["as-deployed", "through-shield"], help="the preset's by default")
    parser.add_argument("--execution", choices=["next-close", "same-close"], help="the preset's by default")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--end", type=date.fromisoformat, help="the last close that is trained on")
    parser.add_argument("--first", type=int, help="updates; the preset's by default")
    parser.add_argument("--paths", type=int, help="paths per update; the preset's by default")
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions of the simulation")
    options = parser.parse_args()
    fields = ("training", "execution", "first", "paths")
    changes = {name: value for name in fields if (value := getattr(options, name)) is not None}
    planned = plan(options.preset, ["sdpo"], config=changes)
    market, _, _ = load_market(options.snapshot, planned.cash, None, options.end)
    if options.end is not None:
        market = market.between(None, options.end)
    print("seed  promised  trained  deployed  ratio")
    for seed in (int(part) for part in options.seeds.split(",")):
        agent = build_agent(planned.agents["sdpo"], seed)
        agent.decide(market, np.eye(len(market.assets))[0])
        found = measure_deployed_risk(agent, market, options.sessions)
        ratio = found.deployed / found.trained
        print(f"{seed:4}  {found.promised:8.2%}  {found.trained:7.2%}  {found.deployed:8.2%}  {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
