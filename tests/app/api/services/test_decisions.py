"""Turns for decisions: callers in rotation, none for clients that left, and an end to what takes too long."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import decision
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.services.posted_prices import JSON, PostedDecisions

from ..helpers import ANY_AGE, problem, save_snapshot
from ..routes.test_weights import body_of


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Updates of the training take a fifth of a second each; what was begun and what was ended."""
    steps: list[str] = []
    decide = decision.decide

    def crawl(agent: Any, *arguments: Any) -> Any:
        watch = agent.watch
        if watch is None:  # the publisher's
            return decide(agent, *arguments)

        def wait(number: int) -> None:
            time.sleep(0.2)
            watch(number)

        agent.watch = wait
        steps.append("begun")
        done = decide(agent, *arguments)
        steps.append("ended")
        return done

    monkeypatch.setattr(decision, "decide", crawl)
    return steps


def post(running: Any, content: bytes) -> socket.socket:
    line = socket.create_connection((running.http.base_url.host, running.http.base_url.port))
    line.sendall(
        b"POST /api/v1/weights HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(content) + content
    )
    return line


def test_what_a_client_left_behind_is_not_computed(
    serve: Callable[..., Any], champion: Callable[..., str], slow: list[str]
):
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    running = serve()
    content = json.dumps(body_of(frame)).encode()
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(post(running, content)) for _ in range(6)]
        while not slow:
            time.sleep(0.01)
        for line in lines:
            line.close()
    began = time.monotonic()
    answer = running.http.post("/weights", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert time.monotonic() - began < 5.0
    assert slow == ["begun", "begun", "ended"]  # the one that was running was given up, those that waited never began
    assert running.services.queue.computed == 1 and running.services.bodies.used == 0


def test_a_decision_has_a_deadline(serve: Callable[..., Any], champion: Callable[..., str], slow: list[str]):
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    running = serve(decision_timeout=0.3)
    problem(running.http.post("/weights", json=body_of(frame)), 503, "too-slow")
    running.settle()
    assert running.services.queue.computed == 0 and slow == ["begun"]


def test_callers_have_few_places_each(serve: Callable[..., Any], champion: Callable[..., str], slow: list[str]):
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    running = serve()
    content = json.dumps(body_of(frame)).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(post(running, content))
        deadline = time.monotonic() + 10
        while len(running.services.queue._waiting.get("127.0.0.1", ())) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        busy = running.http.post("/weights", content=content, headers={"Content-Type": "application/json"})
    problem(busy, 429, "busy")


def test_what_was_learned_from_prices_is_used_again(
    champion: Callable[..., str], registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    """The same body is decided once, and another account on the same prices trains nothing; both to the last byte."""
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    loaded: list[str] = []
    load = registry.load_agent

    def count(model_id: str) -> Any:
        loaded.append(model_id)
        return load(model_id)

    monkeypatch.setattr(registry, "load_agent", count)
    settings = ServeSettings(max_age_sessions=ANY_AGE)
    bodies = [body_of(frame), body_of(frame) | {"held": {"CASH": 0.5, frame.columns[0]: 0.5}}]
    contents = [json.dumps(body).encode() for body in bodies]
    kept = PostedDecisions(registry, settings)
    answers = [kept.answer(content, JSON, threading.Event()) for content in (*contents, *contents)]
    assert len(loaded) == 1 and len(kept._known) == 2
    assert [answer.body for answer in answers[:2]] == [answer.body for answer in answers[2:]]
    for content, answer in zip(contents, answers, strict=False):
        assert PostedDecisions(registry, settings).answer(content, JSON, threading.Event()).body == answer.body
    assert answers[0].content.promised_cvar == answers[1].content.promised_cvar
    other = champion("june", label="other")
    assert kept.answer(contents[0], JSON, threading.Event()).content.model.id == other  # type: ignore[union-attr]
