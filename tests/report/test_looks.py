"""A strategy looks the same wherever it is drawn."""

import pytest

from portfolio_sdpo.backtest.record import StrategyGroup
from portfolio_sdpo.backtest.strategies import BENCHMARKS
from portfolio_sdpo.report.comparisons import find_strongest_shielded, select_rivals
from portfolio_sdpo.report.looks import DASHARRAYS, hidden_at_first, line_styles


def group(name, kind="benchmark", wealth=1.0, growth=None):
    same_risk = None if growth is None else {"growth": growth}
    return StrategyGroup(name, kind, ({"final_wealth": wealth, "seed": None, "same_risk": same_risk},))


AGENTS = [group("sdpo", "agent"), group("sdpo + shield", "shielded", 1.1, 0.02)]
EVERY = [*AGENTS, *(group(name) for name in BENCHMARKS)]


def test_a_colour_goes_with_the_name_and_not_with_the_company():
    alone = {name: line_styles([group(name)])[name] for name in BENCHMARKS}
    together = line_styles(EVERY)
    assert {name: together[name] for name in BENCHMARKS} == alone
    colours = [style["color"] for name, style in together.items() if not name.endswith("+ shield")]
    assert len(set(colours)) == len(colours)
    assert all(style["dash"] in DASHARRAYS for style in together.values())


def test_the_shielded_form_is_dashed():
    styles = line_styles([*AGENTS, group("equal-weight"), group("equal-weight + shield")])
    for name in ("sdpo", "equal-weight"):
        assert styles[f"{name} + shield"]["color"] == styles[name]["color"]
        assert (styles[name]["dash"], styles[f"{name} + shield"]["dash"]) == ("solid", "dash")


def test_the_same_strategy_of_two_runs_differs_by_its_dash():
    styles = line_styles([group("A · sdpo", "agent"), group("B · sdpo", "agent"), group("B · sdpo + shield")])
    assert len({style["color"] for style in styles.values()}) == 1
    assert len({style["dash"] for style in styles.values()}) == 3


def test_names_of_others_get_colours_that_are_free():
    found = [group("mine", "agent"), group("yours", "agent"), group("theirs"), group("equal-weight")]
    colours = [style["color"] for style in line_styles(found).values()]
    assert len(set(colours)) == 4
    assert line_styles(found[:1])["mine"]["color"] == line_styles(AGENTS)["sdpo"]["color"]


def test_agents_and_whom_they_are_compared_with_are_shown_at_first():
    rivals = [group("equal-weight + shield"), group("hrp + shield", growth=0.01), group("maximum-return + shield")]
    hidden = hidden_at_first([*EVERY, *rivals])
    shown = {each.name for each in [*EVERY, *rivals]} - set(hidden)
    assert shown >= {"sdpo", "sdpo + shield", "equal-weight", "equal-weight + shield", "hrp + shield"}
    assert len(shown) == 6
    assert hidden_at_first(EVERY[:6]) == []


@pytest.mark.parametrize(("main", "names"), [(1, ["equal-weight + shield", "hrp + shield"]), (0, ["equal-weight"])])
def test_the_main_strategy_is_shown_beside_its_likes(main, names):
    """Behind the shield beside 1/N and the strongest at the same risk, of which the richest is not."""
    rivals = [
        group("equal-weight"),
        group("equal-weight + shield"),
        group("hrp + shield", growth=0.01),
        group("maximum-return + shield", wealth=3.0, growth=-0.05),
    ]
    found = [*AGENTS, *rivals]
    assert [each.name for each in select_rivals(found, found[main])] == names
    assert find_strongest_shielded(found).name == "hrp + shield"
    assert find_strongest_shielded(AGENTS) is None
