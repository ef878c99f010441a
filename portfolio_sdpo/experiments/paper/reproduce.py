"""The paper's whole evaluation: make the runs that are missing, judge its claims by them, write one page per question.

<out>/                            by default <home>/reproduce/<scale>
    index.html                    all questions and verdicts
    a.html, b.html, c.html, d.html
    a.json, ...                   the same for other programs

A folder has pages of one scale. What a page shows is read from the runs' folders every time; only how long runs took
is remembered here.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import portfolio_sdpo
from portfolio_sdpo.common.files import data_directory, json_ready
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.engine.folders import read_json, write_content, write_json
from portfolio_sdpo.experiments.engine.grid import Outcome
from portfolio_sdpo.experiments.paper.claims import QUESTIONS, Question
from portfolio_sdpo.experiments.paper.plan import Scale, plan_studies
from portfolio_sdpo.experiments.paper.verdicts import Judgement, judge
from portfolio_sdpo.experiments.statistics.evidence import Evidence, SeedStatistics, merge_evidence
from portfolio_sdpo.experiments.statistics.figures import make_seeds_figures
from portfolio_sdpo.experiments.study import Study

Make = Callable[[Study], list[Outcome]]
"""Makes what is missing of a study."""
PICTURES = "pictures"
"""Folder in a study's own, for the figures across seeds."""


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What came of one experiment."""

    study: Study
    evidence: Evidence | None
    """None if no run is finished"""
    statistics: SeedStatistics | None
    pictures: tuple[Path, ...]
    failed: tuple[Outcome, ...]
    versions: tuple[str, ...]
    foreign: int
    """runs of other settings that are in the folder and do not count"""
    seconds: float
    """that this command spent on making runs, now and earlier"""

    @property
    def finished(self) -> int:
        """Runs that are there."""
        return len(self.evidence.runs) if self.evidence else 0

    def to_json(self) -> dict[str, Any]:
        """Without the pictures."""
        return {
            "experiment": self.study.name,
            "title": self.study.experiment.title,
            "role": self.study.role,
            "size": self.study.size(),
            "wanted": self.study.planned_runs,
            "finished": self.finished,
            "foreign": self.foreign,
            "seconds": self.seconds,
            "versions": list(self.versions),
            "failed": {each.run: each.message for each in self.failed},
            "statistics": asdict(self.statistics) if self.statistics else None,
        }


@dataclass(frozen=True)
class ClaimVerdicts:
    """The question's claims, by the runs of one study or of several tasks together."""

    where: str
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, eq=False)
class QuestionResult:
    """What came of one question."""

    question: Question
    scale: Scale
    results: tuple[StudyResult, ...]
    judged: tuple[ClaimVerdicts, ...]
    made_at: str
    software: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it, None for what is not defined."""
        record = {
            "question": self.question.key,
            "title": self.question.title,
            "asks": self.question.asks,
            "section": self.question.section,
            "paper": self.question.size,
            "scale": self.scale,
            "made_at": self.made_at,
            "software": self.software,
            "studies": [result.to_json() for result in self.results],
            "claims": [asdict(judged) for judged in self.judged],
        }
        return dict(json_ready(record))


def default_folder(scale: Scale) -> Path:
    """Where the pages of a scale are."""
    return data_directory() / "reproduce" / scale


def parse_questions(text: str | None) -> tuple[str, ...]:
    """`A,c` as letters in order; all four if nothing is asked for.

    >>> parse_questions("d, A")
    ('A', 'D')
    """
    if text is None:
        return tuple(QUESTIONS)
    asked = {part.strip().upper() for part in text.split(",")}
    unknown = sorted(asked - set(QUESTIONS))
    if unknown:
        raise SettingsError(f"--question: the paper has no question {unknown[0]!r}; choose from A, B, C and D.")
    return tuple(key for key in QUESTIONS if key in asked)


def reproduce(
    questions: Sequence[str],
    scale: Scale,
    out: Path | None = None,
    make: Make | None = None,
    plan: Callable[[str], list[Study]] | None = None,
) -> list[QuestionResult]:
    """Answer the questions, one after the other, and write each one's page as soon as its runs are there.

    make: how missing runs are made; None makes none and shows what is there. plan: what is run for a question, by
    default what the scale says.
    """
    from portfolio_sdpo.experiments.paper.page import render_index_page, render_question_page

    folder = out or default_folder(scale)
    _check(folder, scale)
    answers = []
    for key in questions:
        question = QUESTIONS[key]
        before = read_json(folder / _file(key)) if (folder / _file(key)).exists() else None
        found = plan(key) if plan else plan_studies(key, scale)
        results = tuple(_result(study, make, _sum_seconds(before, study.name)) for study in found)
        answer = QuestionResult(
            question=question,
            scale=scale,
            results=results,
            judged=tuple(_judge_all(question, results, scale)),
            made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            software=_software(),
        )
        write_json(folder / _file(key), answer.to_json())
        write_content(folder / f"{key.lower()}.html", render_question_page(answer).encode())
        answers.append(answer)
        write_content(folder / "index.html", render_index_page(_records(folder), scale).encode())
    return answers


def _result(study: Study, make: Make | None, seconds: float) -> StudyResult:
    outcomes: list[Outcome] = []
    if make is not None:
        begun = time.perf_counter()
        outcomes = make(study)
        if any(outcome.status == "finished" for outcome in outcomes):
            seconds += time.perf_counter() - begun
    failed = tuple(outcome for outcome in outcomes if outcome.status == "failed")
    runs = study.finished()
    if not runs.names:
        return StudyResult(study, None, None, (), failed, (), runs.foreign, seconds)
    evidence = study.evidence(runs)
    drawn = [path for path in study.draw(runs) if path.suffix == ".png"]
    stem = study.root / PICTURES / f"seeds-{len(evidence.runs)}"
    return StudyResult(
        study=study,
        evidence=evidence,
        statistics=SeedStatistics.of(evidence),
        pictures=(*drawn, *make_seeds_figures(evidence, stem)),
        failed=failed,
        versions=tuple(study.versions(runs)),
        foreign=runs.foreign,
        seconds=seconds,
    )


def _judge_all(question: Question, results: Sequence[StudyResult], scale: Scale) -> list[ClaimVerdicts]:
    """By every study; of several tasks by the first, which is the paper's own example, and by all of them together."""
    there = [(result.study, result.evidence) for result in results if result.evidence is not None]
    if not there:
        return []
    groups = [(study.name, evidence) for study, evidence in there]
    if question.key == "B" and len(there) > 1:
        groups = [groups[0], (f"all {len(there)} tasks together", merge_evidence([evidence for _, evidence in there]))]
    toy = scale == "smoke"
    return [
        ClaimVerdicts(name, tuple(judge(claim, evidence, toy=toy) for claim in question.claims))
        for name, evidence in groups
    ]


def _check(folder: Path, scale: Scale) -> None:
    for record in _records(folder):
        if record["scale"] != scale:
            raise SettingsError(f"--out: {folder} has pages of scale {record['scale']}; choose another folder.")


def _records(folder: Path) -> list[dict[str, Any]]:
    """What the folder's JSON files say, by letter."""
    return [read_json(folder / _file(key)) for key in QUESTIONS if (folder / _file(key)).exists()]


def _file(key: str) -> str:
    return f"{key.lower()}.json"


def _sum_seconds(before: dict[str, Any] | None, name: str) -> float:
    """Seconds of earlier calls."""
    return sum(float(each["seconds"]) for each in (before["studies"] if before else ()) if each["experiment"] == name)


def _software() -> dict[str, str]:
    names = ("torch", "numpy")
    return {
        "portfolio_sdpo": portfolio_sdpo.__version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in names},
    }
