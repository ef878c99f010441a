"""The pages of `reproduce`: one for each question, and an index, each one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from portfolio_sdpo.common.numbers import Format, number, percent, span
from portfolio_sdpo.experiments.paper.claims import QUESTIONS
from portfolio_sdpo.experiments.paper.plan import Scale
from portfolio_sdpo.experiments.paper.reproduce import QuestionResult, StudyResult
from portfolio_sdpo.experiments.paper.verdicts import RULES, Finding
from portfolio_sdpo.experiments.statistics.evidence import Evidence, LabelStatistics, SeedStatistics
from portfolio_sdpo.experiments.statistics.seeds import Comparison, Estimate, Violations
from portfolio_sdpo.experiments.tables import display_name
from portfolio_sdpo.report.formats import NONE, table
from portfolio_sdpo.report.page import render_document

STYLE = """
nav { display: flex; flex-wrap: wrap; gap: 6px 16px; margin: 0 0 14px; font-size: .9rem; }
nav a, .more-link { color: var(--accent); } nav [aria-current] { color: var(--muted); }
.warning { border-left: 4px solid var(--bad); }
.chip { display: inline-block; white-space: nowrap; font-size: .82rem; font-weight: 600; border: 1px solid currentColor;
  border-radius: 999px; padding: 0 10px; line-height: 1.65; }
.yes { color: var(--good); } .no { color: var(--bad); } .unsure { color: var(--muted); font-weight: 500; }
.claim { border-top: 1px solid var(--line); padding: 12px 0 8px; } .claim:first-of-type { border-top: 0; }
.claim h3 { font-size: 1rem; font-weight: 600; margin: 0; } .claim h3 span { color: var(--muted); font-weight: 500; }
.claim > .note { margin: 0 0 8px; }
.says { display: grid; grid-template-columns: 15rem 1fr; gap: 2px 18px; margin: 0 0 8px; align-items: start; }
.says code { font-size: .8rem; color: var(--muted); } .says ul { margin: 0; padding-left: 18px; font-size: .86rem; }
.picture { background: #fff; border-radius: 6px; padding: 8px; margin: 6px 0 4px; }
.picture img { display: block; max-width: 100%; min-width: min(560px, 100%); height: auto; margin: 0 auto; }
h3.part { font-size: .98rem; margin: 20px 0 2px; }
@media (max-width: 640px) { .says { grid-template-columns: 1fr; gap: 4px; margin-bottom: 12px; }
  .verdicts td { white-space: normal; } .verdicts th { min-width: 12em; max-width: 70vw; } }
"""
_SCALES = {
    "smoke": "Toys that show that everything runs. They prove nothing, and every verdict says so.",
    "laptop": "What a small machine can run within hours.",
    "paper": "The paper's settings and its numbers of runs.",
}
_KINDS = {"borne out": ("yes", "✓"), "not borne out": ("no", "✗")}
_SHRINK = 0.62
"""Of figures with 200 dots per inch, so that what is written in them is as large as the page's own words."""
_ANSWERS = {
    True: ("yes", "✓", "yes"),
    False: ("no", "✗", "no"),
    None: ("unsure", "?", "these runs do not decide it"),
}
_CAPTIONS = {
    "learning": "The paper's figure: return and bounded risk while learning; the dashed line is the bound.",
    "equal-steps": "The same, up to the steps that all runs have.",
    "evaluation": "Returns of the trained policies on episodes that no learner has seen (the paper's figure 7).",
    "stocks": "The paper's figure: wealth through the year, where each seed ended, and the constraint in training.",
    "scores": "Every run is a dot. The band is the 95 % interval, of the interquartile mean (a) and of the profile "
    "(b); a dotted line marks the exact optimum where there is one.",
    "violations": "Violations while learning, as a distribution: how often runs are beyond “{constraint}”, and how "
    "far.",
}


def render_question_page(answer: QuestionResult) -> str:
    """One question: claims and verdicts first, then every experiment with figure, tables and size."""
    question = answer.question
    body = [
        _nav(question.key),
        f"<header><h1>Question ({question.key}): {escape(question.title)}</h1>"
        f"<p class='sub'>The paper, {escape(question.section)} · scale {answer.scale} · {escape(answer.made_at)}</p>"
        f"</header><p class='lead'>{escape(question.asks)}</p>",
        _warning(answer.scale),
        _section("The paper’s claims, and what these runs show", _claims(answer)),
        *(_study(result, answer) for result in answer.results),
        _section("What was run", _provenance(answer)),
        _rules(),
    ]
    return render_document(f"Question {question.key}: {question.title}", "\n".join(body), answer.to_json(), style=STYLE)


def render_index_page(records: Sequence[dict[str, Any]], scale: Scale) -> str:
    """All questions with their verdicts."""
    counts = Counter(
        each["verdict"] for record in records for judged in record["claims"] for each in judged["judgements"]
    )
    spelled = " · ".join(f"{_chip(verdict)} {count}" for verdict, count in counts.items())
    missing = [key for key in QUESTIONS if key not in {record["question"] for record in records}]
    note = f"<p class='note'>Not yet run at this scale: question {', '.join(missing)}.</p>" if missing else ""
    body = [
        "<header><h1>The paper’s experiments, reproduced</h1>"
        "<p class='sub'>“Safe Distributional Reinforcement Learning”, section 6 and appendices · "
        f"scale {scale}</p></header>",
        f"<p class='lead'>{_SCALES[scale]}</p>",
        f"<p>{spelled}</p>{note}",
        *(_summary(record) for record in records),
        _rules(),
    ]
    return render_document(
        "The paper’s experiments, reproduced", "\n".join(body), {"records": list(records)}, style=STYLE
    )


def _summary(record: dict[str, Any]) -> str:
    """A question on the index: claims by experiments."""
    key = record["question"]
    link = f"<a class='more-link' href='{key.lower()}.html'>figures, tables and evidence</a>"
    runs = ", ".join(
        f"{each['finished']} of {each['wanted']} runs of {each['experiment']}" for each in record["studies"]
    )
    if not record["claims"]:
        return _section(
            f"({key}) {record['title']}", f"<p>{escape(record['asks'])}</p><p>No run is finished yet.</p>", link
        )
    headings = ["Claim", *(f"<code>{escape(judged['where'])}</code>" for judged in record["claims"])]
    rows = []
    for judgements in zip(*(judged["judgements"] for judged in record["claims"]), strict=True):
        chips = "".join(f"<td>{_chip(each['verdict'])}</td>" for each in judgements)
        first = judgements[0]
        rows.append(f"<tr><th scope='row'>{first['key']} · {escape(first['text'])}</th>{chips}</tr>")
    content = f"<p>{escape(record['asks'])}</p>{table(escape(runs), headings, rows, 'verdicts')}"
    return _section(f"({key}) {record['title']}", content, link)


def _claims(answer: QuestionResult) -> str:
    if not answer.judged:
        return "<p>No run is finished yet, so no claim can be judged.</p>"
    blocks = []
    for judgements in zip(*(judged.judgements for judged in answer.judged), strict=True):
        says = []
        for judged, judgement in zip(answer.judged, judgements, strict=True):
            toy = answer.scale == "smoke"
            items = "".join(f"<li>{'' if toy else _mark(each)}{escape(each.text)}</li>" for each in judgement.findings)
            says.append(
                f"<div class='says'><div>{_chip(judgement.verdict)}<br><code>{escape(judged.where)}</code></div>"
                f"<ul>{items}</ul></div>"
            )
        first = judgements[0]
        blocks.append(
            f"<article class='claim'><h3><span>{first.key}</span> {escape(first.text)}</h3>"
            f"<p class='note'>The paper, {escape(first.section)}; paraphrased.</p>{''.join(says)}</article>"
        )
    return "".join(blocks)


def _study(result: StudyResult, answer: QuestionResult) -> str:
    study = result.study
    head = f"<code>{escape(study.name)}</code>"
    lines = [f"<p class='note'>{escape(study.role[0].upper() + study.role[1:])}.</p>", _sizes(result, answer)]
    lines += [f"<p class='bad'>{escape(each.run)} failed: {escape(each.message)}</p>" for each in result.failed]
    if result.foreign:
        lines.append(
            f"<p class='bad'>{_foreign(result.foreign)} of another version of portfolio_sdpo: not counted here. "
            "Run the command with --restart to replace them.</p>"
        )
    if result.finished < study.planned_runs:
        lines.append(
            f"<p class='bad'>{result.finished} of {study.planned_runs} runs are finished; the others are not shown.</p>"
        )
    if result.evidence is None or result.statistics is None:
        return _section(study.experiment.title, "".join(lines), head)
    lines += [_picture(path, result.evidence) for path in result.pictures]
    lines += [f"<p>No iteration of any run was beyond “{escape(name)}”.</p>" for name in _never(result.evidence)]
    lines.append(_statistics(result.statistics, result.evidence))
    if result.statistics.comparisons:
        lines.append(_comparisons(result.statistics.comparisons))
    return _section(study.experiment.title, "".join(lines), head)


def _sizes(result: StudyResult, answer: QuestionResult) -> str:
    ours, paper = result.study.size(), answer.question.size
    rows = [
        f"<tr><th scope='row'>{escape(key[0].upper() + key[1:])}</th><td class='words'>{escape(ours[key])}</td>"
        f"<td class='words'>{escape(value)}</td></tr>"
        for key, value in paper.items()
    ]
    content = table("", ["", "Here", "The paper"], rows)
    return f"<details><summary>Compare with the size of the paper’s runs</summary>{content}</details>"


def _statistics(found: SeedStatistics, evidence: Evidence) -> str:
    form: Format = percent if evidence.to_optimum else (lambda value: number(value, 3))
    several = len(evidence.constraints) > 1
    headings = ["Policy", "Runs", "Score, IQM", *(["Gap to the optimum"] if evidence.to_optimum else [])]
    for name in evidence.constraints:
        which = f" “{escape(name)}”" if several else ""
        headings += [f"Beyond{which}, median of runs", "Mean share", "Worst run", "Depth where beyond, mean", "Deepest"]
    rows = [_statistics_row(label, each, evidence, form) for label, each in found.labels.items()]
    beyond = "" if several else f" Beyond: share of a run’s iterations beyond “{escape(evidence.constraints[0])}”."
    caption = (
        f"Score: {escape(found.score)}; IQM is the interquartile mean.{beyond} Small print: intervals, and quartiles "
        f"below a median. {escape(found.resampling)}"
    )
    return f"<h3 class='part'>Across seeds</h3>{table(caption, headings, rows)}"


def _statistics_row(label: str, each: LabelStatistics, evidence: Evidence, form: Format) -> str:
    cells = [str(each.runs), _estimate(each.score, form)]
    if evidence.to_optimum:
        cells.append(_estimate(each.gap, form))
    for found in each.violations:
        cells += _violations(found)
    styled = " class='agent'" if label.startswith("sdpo") else ""
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{styled}><th scope='row'>{escape(display_name(label))}</th>{row}</tr>"


def _violations(found: Violations | None) -> list[str]:
    if found is None:
        return [NONE] * 5
    _, lower, median, upper, most = found.quantiles
    return [
        f"{percent(median)}<small>{span(lower, upper, percent)}</small>",
        _estimate(found.share, percent),
        percent(most),
        NONE if found.depth is None else f"{found.depth:.3g}",
        f"{found.worst:.3g}",
    ]


def _comparisons(found: Sequence[Comparison]) -> str:
    rows = []
    for pair in found:
        names = f"{escape(display_name(pair.better))} &gt; {escape(display_name(pair.worse))}"
        chance = f"{min(pair.chance, pair.chance_below):.3f}"
        rows.append(
            f"<tr><th scope='row'>{names}</th><td>{_estimate(pair.probability, number)}</td><td>{pair.pairs}</td>"
            f"<td>{chance}</td></tr>"
        )
    caption = (
        "Probability that a run of the first has the higher score, a tie counting half: every run of one with every "
        "run of the other on the same problem (unpaired), which is a paired comparison where each has one run there. "
        "p: share of permutations of the labels that give a probability as far on the same side."
    )
    return f"<h3 class='part'>Probability of improvement</h3>{table(caption, ['', 'P', 'Pairs', 'p'], rows)}"


def _provenance(answer: QuestionResult) -> str:
    facts = {"Scale": f"{answer.scale}. {_SCALES[answer.scale]}", "Pages made": answer.made_at}
    for result in answer.results:
        versions = f", made with portfolio_sdpo {' and '.join(result.versions)}" if result.versions else ""
        took = f"; making them took {_duration(result.seconds)}" if result.seconds else ""
        facts[result.study.name] = f"{result.finished} of {result.study.planned_runs} runs{versions}{took}"
    facts["Software"] = ", ".join(f"{name} {version}" for name, version in answer.software.items())
    facts["Command"] = f"portfolio-sdpo reproduce --scale {answer.scale} --question {answer.question.key}"
    items = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f"<dl class='facts'>{items}</dl>"


def _picture(path: Path, evidence: Evidence) -> str:
    stem = path.stem
    kind = next((kind for kind in _CAPTIONS if kind in stem), "learning")
    index = int(stem.rpartition("-")[2]) if kind == "violations" else 0
    caption = escape(_CAPTIONS[kind].format(constraint=evidence.constraints[index]))
    content = path.read_bytes()
    width = round(_SHRINK * int.from_bytes(content[16:20], "big"))  # of a PNG's header
    image = base64.b64encode(content).decode()
    shown = f"<img alt='{caption}' width='{width}' src='data:image/png;base64,{image}'>"
    return f"<figure><div class='scroll picture' tabindex='0'>{shown}</div><figcaption>{caption}</figcaption></figure>"


def _estimate(found: Estimate | None, form: Format) -> str:
    if found is None:
        return NONE
    value = f"<data value='{found.value!r}'>{form(found.value)}</data>"
    if found.low is None or found.high is None:
        return value
    return f"{value}<small>{span(found.low, found.high, form)}</small>"


def _chip(verdict: str) -> str:
    kind, mark = _KINDS.get(verdict, ("unsure", "?"))
    return f"<span class='chip {kind}'>{mark} {escape(verdict)}</span>"


def _mark(finding: Finding) -> str:
    """Whether this part of a claim holds."""
    kind, mark, words = _ANSWERS[finding.answer]
    return f"<span class='{kind}' title='{words}'>{mark}</span> "


def _warning(scale: Scale) -> str:
    return f"<section class='warning'><strong>Smoke.</strong> {_SCALES['smoke']}</section>" if scale == "smoke" else ""


def _nav(current: str) -> str:
    links = {key: f"<a href='{key.lower()}.html'>({key})</a>" for key in QUESTIONS}
    links[current] = f"<span aria-current='page'>({current})</span>"
    return f"<nav><a href='index.html'>All questions</a>{''.join(links.values())}</nav>"


def _never(evidence: Evidence) -> list[str]:
    """Constraints that all iterations of all runs kept."""
    kept = []
    for index, name in enumerate(evidence.constraints):
        excesses = [run.excess[index] for run in evidence.runs]
        if any(map(len, excesses)) and not any(excess.any() for excess in excesses):
            kept.append(name)
    return kept


def _foreign(count: int) -> str:
    return (
        "1 run in its folder has other settings, or is" if count == 1 else f"{count} runs have other settings, or are"
    )


def _rules() -> str:
    items = "".join(f"<li>{escape(rule)}</li>" for rule in RULES)
    return _section("How claims are judged", f"<ul class='notes'>{items}</ul>")


def _section(title: str, content: str, control: str = "") -> str:
    return f"<section><div class='head'><h2>{escape(title)}</h2>{control}</div>{content}</section>"


def _duration(seconds: float) -> str:
    """
    >>> _duration(41.2), _duration(3700)
    ('41 s', '1 h 2 min')
    """
    minutes, hours = round(seconds / 60), int(seconds // 3600)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if hours == 0 else f"{hours} h {minutes - 60 * hours} min"
