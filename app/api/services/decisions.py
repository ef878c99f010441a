"""Turns for decisions on posted prices: one at a time, callers in rotation, and none for clients that left."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from ..errors import ProblemError

MAX_WAITING = 8
"""Requests of one caller that may wait for their turn."""
MAX_CALLERS = 64
"""Callers whose requests may wait."""

T = TypeVar("T")


class DecisionQueue:
    """Computes decisions in one thread, since each takes a whole core.

    With every turn that ends, the caller who waited longest for one gets the next: a caller with many requests delays
    another by one decision and not by all of its own.
    """

    def __init__(self) -> None:
        self.computed = 0
        """Decisions that were computed to their end."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy = False
        self._thread = ThreadPoolExecutor(1, "decisions")

    def close(self) -> None:
        """Take no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def compute(self, request: Request, caller: str, work: Callable[[threading.Event], T], seconds: float) -> T:
        """The result of `work` in its turn, within so many seconds.

        The event that `work` is given is set when nobody waits for its result any more.
        """
        stop = threading.Event()
        decision = asyncio.ensure_future(self._take_turn(caller, work, stop))
        left = asyncio.ensure_future(_wait_until_left(request))
        try:
            await asyncio.wait({decision, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if decision.done():
                return decision.result()
            if left.done():
                raise ClientDisconnect
            raise ProblemError(
                "too-slow",
                f"The decision was not ready after {seconds:g} s and was given up: send fewer new sessions, "
                "or try again when fewer requests wait.",
                headers={"Retry-After": "5"},
            )
        finally:
            stop.set()
            for task in (decision, left):
                task.cancel()

    async def _take_turn(self, caller: str, work: Callable[[threading.Event], T], stop: threading.Event) -> T:
        await self._wait_for_turn(caller)
        try:
            in_context = partial(copy_context().run, work, stop)  # for the request id in the log
            running = asyncio.get_running_loop().run_in_executor(self._thread, in_context)
            try:
                result = await asyncio.shield(running)
            except asyncio.CancelledError:
                with suppress(Exception):
                    await running  # the next turn begins when the thread is free
                raise
            self.computed += 1
            return result
        finally:
            self._end_turn()

    async def _wait_for_turn(self, caller: str) -> None:
        if not self._busy:
            self._busy = True
            return
        if len(self._waiting.get(caller, ())) >= MAX_WAITING or len(self._waiting) >= MAX_CALLERS:
            detail = "Too many requests with prices are waiting: try again later."
            raise ProblemError("busy", detail, headers={"Retry-After": "2"})
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end_turn()  # it came in the same moment
            raise

    def _end_turn(self) -> None:
        """Give the turn to the next caller; those whose requests were cancelled are passed over."""
        while self._waiting:
            caller, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind all others
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
