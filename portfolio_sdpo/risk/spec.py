"""A constraint as one line, for the command line:

    <measure> of <signal> <sense> <bound> [option=value ...]

    cvar(0.1) of reward >= 51                       tail fraction; the tail follows from the sense
    variance of reward <= 12 eta=1:20:400           eta growing from 1 to 20 over 400 iterations
    expectation of cost <= 25 eta=30 discount=1
    bad-state-probability of crash <= 0.01
    entropic(-0.5) of reward >= 3
    mean-semideviation(0.5, 2) of reward >= 3       weight and order
    wang(0.7) of reward >= 3,  power(2) of reward >= 3
    custom(my_package.risks:spread) of reward <= 3

A researcher's own measure is given by its kind, with its fields in order. Brackets may be round or square, so that
a constraint's derived name is itself such a line, unless it bounds a function (`custom`), of which names carry no path.
"""

import re
from typing import Any

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk.measures import RiskMeasure, Tail
from portfolio_sdpo.risk.spectral import Power, Spectral, Wang

EXAMPLE = "'cvar(0.1) of reward >= 51 eta=30'"
OPTIONS = ("eta", "discount", "margin", "confidence")
DISTORTIONS: dict[str, type[Wang | Power]] = {"wang": Wang, "power": Power}
"""Distortions stand for their spectral measure."""

_LINE = re.compile(
    r"^\s*(?P<word>[\w-]+)\s*(?:[(\[](?P<arguments>[^)\]]*)[)\]])?"
    r"\s+of\s+(?P<signal>[^\s<>=]+)\s*(?P<sense>[<>=]+)\s*(?P<bound>\S+)(?P<options>.*)$"
)


def parse(line: str) -> dict[str, Any]:
    """The fields of the constraint behind such a line, numbers still as text; a SettingsError says what is wrong.

    >>> parse("variance of reward <= 12 eta=1")
    {'signal': 'reward', 'measure': Variance(kind='variance'), 'sense': '<=', 'bound': '12', 'eta': '1'}
    """
    match = _LINE.match(line)
    if match is None:
        raise SettingsError(f"constraint {line!r}: must read like {EXAMPLE}.")
    sense = match["sense"]
    if sense not in ("<=", ">="):
        raise SettingsError(f"constraint {line!r}: sense: must be <= or >=, not {sense}.")
    arguments = [argument.strip() for argument in (match["arguments"] or "").split(",") if argument.strip()]
    return {
        "signal": match["signal"],
        "measure": _measure(match["word"], arguments, "lower" if sense == ">=" else "upper", line),
        "sense": sense,
        "bound": match["bound"],
        **_options(match["options"].split(), line),
    }


def _measure(word: str, arguments: list[str], tail: Tail, line: str) -> RiskMeasure:
    owners: dict[str, type[RiskMeasure | Wang | Power]] = {**RiskMeasure.kinds, **DISTORTIONS}
    del owners["spectral"]
    if word not in owners:
        raise SettingsError(f"constraint {line!r}: measure: {word!r} is none of {', '.join(sorted(owners))}.")
    owner = owners[word]
    fields = {name: field for name, field in owner.model_fields.items() if name not in ("kind", "tail")}
    required = sum(field.is_required() for field in fields.values())
    if not required <= len(arguments) <= len(fields):
        form = f"{word}({', '.join(fields)})" if fields else f"plain {word}"
        raise SettingsError(f"constraint {line!r}: measure: must be given as {form}.")
    given: dict[str, Any] = dict(zip(fields, arguments, strict=False))
    if "tail" in owner.model_fields:
        given["tail"] = tail
    settings = owner(**given)
    return settings if isinstance(settings, RiskMeasure) else Spectral(distortion=settings)


def _options(given: list[str], line: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for option in given:
        name, _, value = option.partition("=")
        if name not in OPTIONS or not value:
            raise SettingsError(f"constraint {line!r}: {option!r} is no option; give {'=, '.join(OPTIONS)}=.")
        if name in options:
            raise SettingsError(f"constraint {line!r}: {name}: given twice.")
        options[name] = value
    if ":" in options.get("eta", ""):
        parts = options["eta"].split(":")
        if len(parts) != 3:
            raise SettingsError(f"constraint {line!r}: eta: must be a number or start:end:iterations.")
        options["eta"] = dict(zip(("start", "end", "iterations"), parts, strict=True))
    return options
