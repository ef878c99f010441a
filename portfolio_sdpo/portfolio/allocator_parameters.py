"""The parameters of `SafeAllocator`: what is wrong with them, and those of a policy that was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.presets import NO_AGENT, PRESETS

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.allocator import SafeAllocator

LIMITS = ("max_weight", "max_turnover", "groups")
"""Parameters that are fields of `Limits`."""


def check_parameters(policy: SafeAllocator) -> None:
    """Refuse wrong parameters with a sentence that names them."""
    cap = 1.0 if policy.max_weight is None else policy.max_weight
    pace = 0.0 if policy.max_turnover is None else policy.max_turnover
    for name, right, wanted in (
        ("cvar", _is_number(policy.cvar) and -1 < policy.cvar <= 0, "a loss is negative: give -0.05 for 5 %"),
        ("alpha", _is_number(policy.alpha) and 0 < policy.alpha < 1, "must be a share between 0 and 1, such as 0.05"),
        ("horizon", _is_whole(policy.horizon) and policy.horizon >= 1, "must be a number of sessions, such as 15"),
        ("fee_bps", _is_number(policy.fee_bps) and 0 <= policy.fee_bps < 1e4, "must be basis points, such as 5"),
        ("max_weight", _is_number(cap) and 0 < cap <= 1, "must be a share of at most 1, such as 0.4, or None"),
        ("max_turnover", _is_number(pace) and 0 <= pace < np.inf, "must be a share from 0 on, such as 0.2, or None"),
        ("algorithm", policy.algorithm != NO_AGENT, "must name an agent of the preset, such as sdpo"),
        ("settings", isinstance(policy.settings or {}, Mapping), "must map fields of AgentSettings to values"),
        ("seed", _is_whole(policy.seed) and policy.seed >= 0, "must be a whole number from 0 on"),
    ):
        if not right:
            raise SettingsError(f"{name}: {wanted} (got {getattr(policy, name)!r}).")


def find_limits(policy: SafeAllocator) -> Limits:
    """What the parameters say about weights and turnover."""
    cap, pace = (None if value is None else float(value) for value in (policy.max_weight, policy.max_turnover))
    try:
        return Limits(max_weight=cap, max_turnover=pace, groups=policy.find_groups())
    except SettingsError as error:
        raise SettingsError(str(error).removeprefix("Limits.")) from None


def read_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a policy that `portfolio-sdpo train` wrote, or that was saved before there was `execution`."""
    settings = AgentSettings.from_record(config["settings"]).model_dump(mode="json")
    limit, fee, limits = settings.pop("limit"), settings.pop("fee"), settings.pop("limits")
    given = config.get("allocator", {})
    return {
        "cvar": limit.pop("bound"),
        **limit,
        "fee_bps": round(fee * 1e4, 9),
        "cash": config["cash"],
        "execution": settings.pop("execution"),
        "algorithm": config["label"] if config["label"] in PRESETS["default"].agents else "sdpo",
        "settings": settings,
        "seed": config["seed"],
        **{name: limits[name] for name in LIMITS if limits[name] not in (None, [], ())},
        **{name: given[name] for name in ("max_weight", "shield", "retrain") if name in given},
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
