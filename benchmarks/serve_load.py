"""The service under load while champions are promoted: errors, torn answers, latency. Prints one JSON object.

python benchmarks/serve_load.py [--seconds 30] [--clients 64] [--audit batched|strict] [--no-backups]
    [--requests 200000]

`portfolio_sdpo_app` as a process, with an API key and the audit on, and in the same process, on the same port, a bare
`FastAPI()` whose one empty route has no gate before it. The clients, in a process of their own, ask for one thing at a
time: a second of `GET /weights`, a second of the empty route, and so on. Then the same with a single client, and prices
sent by `--posters` clients for as long. Meanwhile another champion is promoted every half second, a session of prices
arrives every three seconds, on which champion and challenger (in shadow) train before they decide, and a backup is made
every five seconds, which has to be sound. With `--requests`, the clients then ask for weights until so many more were
answered, and `memory` says what the service takes as they go on. Torn is an answer whose bytes are not those that its
ETag names, or whose weights are not those of the model and the prices that it names.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

BARE = "/bare"
SNAPSHOT, SESSIONS = "load", 1300
"""Prices, and how many of their sessions the models were trained on."""
WEIGHTS = "/api/v1/weights"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for the weights; as many for the empty route")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--audit", choices=["batched", "strict"], default="batched")
    parser.add_argument("--no-backups", action="store_true", help="make no backups meanwhile")
    parser.add_argument("--requests", type=int, default=0, help="how many more answers `memory` is about")
    parser.add_argument("--posters", type=int, default=8, help="clients that send prices at the end")
    parser.add_argument("--server", metavar="SHADOW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        serve(options.audit, options.server)
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["PORTFOLIO_SDPO_HOME"] = home
        os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
        print(json.dumps(measure(options), indent=2))


def serve(audit: str, shadow: str) -> None:
    """The service and the bare application behind one port, which is printed."""
    import torch
    import uvicorn
    from fastapi import FastAPI

    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo_app.api.config import ServeSettings
    from portfolio_sdpo_app.api.main import create_app
    from portfolio_sdpo_app.api.protocol import ConnectionLimits, bound_connections
    from portfolio_sdpo_app.api.server import listen

    torch.set_num_threads(1)
    bare = FastAPI()

    @bare.get(BARE)
    async def empty() -> dict[str, str]:
        return {}

    settings = ServeSettings(port=0, max_age_sessions=10**6, rate=0.0, audit=audit, shadow=shadow)
    with Registry.open() as registry:
        service = create_app(settings, registry)

        async def both(scope, receive, send):
            await (bare if scope.get("path") == BARE else service)(scope, receive, send)

        listener = listen(settings)
        print(listener.getsockname()[1], flush=True)
        protocol = bound_connections(ConnectionLimits.from_settings(settings))
        config = uvicorn.Config(both, log_config=None, proxy_headers=False, lifespan="on", http=protocol)
        uvicorn.Server(config).run([listener])


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, requests: dict[str, bytes]) -> None:
        self.requests = requests
        self.asked = ""
        self.took: dict[str, list[float]] = {path: [] for path in requests}
        self.bodies: Counter[tuple[bytes, bytes]] = Counter()
        self.failures: Counter[str] = Counter()
        self.idle = asyncio.Event()
        self._buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def ask(self, path: str) -> None:
        self.asked, self.on = path, True
        self.idle.clear()
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(self.requests[self.asked])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) < int(headers[b"content-length"]):
            return
        self._buffer = b""
        self.took[self.asked].append(time.perf_counter() - self._began)
        if not head.startswith(b"HTTP/1.1 200"):
            self.failures[(head.split(b"\r\n")[0] + b" " + body).decode()] += 1
        elif self.asked == WEIGHTS:
            self.bodies[headers[b"etag"], body] += 1
        if self.on:
            self._send()
        else:
            self.idle.set()

    def connection_lost(self, error) -> None:
        if self.on or not self.idle.is_set():
            self.failures["connection lost"] += 1
            self.idle.set()


async def load(port: int, key: str, clients: int, seconds: float) -> list[Client]:
    """Turns of a second each, weights and empty route in alternation."""
    requests = {
        path: f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        for path in (WEIGHTS, BARE)
    }
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(lambda: Client(requests), "127.0.0.1", port))[1] for _ in range(clients)]
    for turn in range(2 * max(1, round(seconds))):
        for client in made:
            client.ask((WEIGHTS, BARE)[turn % 2])
        await asyncio.sleep(1.0)
        for client in made:
            client.on = False
        await asyncio.gather(*(client.idle.wait() for client in made))
    for client in made:
        client.transport.close()
    return made


async def ask_on(port: int, key: str, clients: int, requests: int, pid: int) -> tuple[list[Client], list[dict]]:
    """Ask for weights until so many were answered, and note the memory of the service at every tenth of them."""
    request = f"GET {WEIGHTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    made = [
        (await loop.create_connection(lambda: Client({WEIGHTS: request}), "127.0.0.1", port))[1] for _ in range(clients)
    ]
    for client in made:
        client.ask(WEIGHTS)
    points: list[dict] = []
    while len(points) <= 10:
        answered = sum(len(client.took[WEIGHTS]) for client in made)
        if answered >= len(points) * requests / 10:
            points.append({"answered": answered, "rss_mb": measure_rss(pid)})
        await asyncio.sleep(0.05)
    for client in made:
        client.on = False
    await asyncio.gather(*(client.idle.wait() for client in made))
    for client in made:
        client.transport.close()
    return made, points


def measure_rss(pid: int) -> float:
    """Megabytes of memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def measure(options) -> dict:
    from portfolio_sdpo.portfolio.agent import AgentSettings
    from portfolio_sdpo.portfolio.store import train_agent
    from portfolio_sdpo.registry import Registry

    quick = AgentSettings(history=60, paths=8, first=5, further=1, learner={"kind": "analytic", "hidden": (4, 4)})
    with Registry.open() as registry:
        prices = Prices()
        prices.save()
        folders = [train_agent(quick, snapshot=SNAPSHOT, seed=seed).folder for seed in (1, 2, 3)]
        *models, shadow = [registry.add_model(folder).id for folder in folders]
        registry.promote(models[0], "first")
        _, key = registry.create_key("load", "read")
        command = [sys.executable, __file__, "--server", shadow, "--audit", options.audit]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            port = int(process.stdout.readline())
            wait_until_ready(port)
            stop = threading.Event()
            promoter = threading.Thread(target=promote, args=(registry, models, stop))
            promoter.start()
            arrival = threading.Thread(target=prices.run, args=(stop,))
            arrival.start()
            backups = Backups(registry)
            saver = threading.Thread(target=backups.run, args=(stop,))
            if not options.no_backups:
                saver.start()
            many = asyncio.run(load(port, key, options.clients, options.seconds))
            one = asyncio.run(load(port, key, 1, min(options.seconds, 5.0)))
            more, memory = asyncio.run(ask_on(port, key, options.clients, options.requests, process.pid))
            stop.set()
            promoter.join()
            arrival.join()
            if not options.no_backups:
                saver.join()
            posts = post_prices(port, key, options.posters, min(options.seconds, 10.0))
        finally:
            process.terminate()
            process.wait()
        clients = (*many, *one, *more)
        answers = posts["answered"] + sum(sum(client.bodies.values()) for client in clients)
        check = registry.verify_audit()
        return {
            "clients": options.clients,
            "audit": options.audit,
            "load_average": round(os.getloadavg()[0], 1),
            **judged(clients, registry),
            "promotions": len(registry.promotions()),
            "backups": backups.made,
            "backups_sound": backups.sound,
            "posted_prices": posts,
            "answers": answers,
            "answers_in_shadow": len(registry.audit(limit=1000, model_id=shadow)),
            "sessions_arrived": prices.sessions - SESSIONS,
            "audit_rows": check.rows,
            "audit_sound": check.sound,
            "under_load": compared(many),
            "alone": compared(one),
            "memory": memory,
        }


def wait_until_ready(port: int) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    for _ in range(600):
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/ready"):
                return
        except URLError:
            time.sleep(0.1)
    raise SystemExit("the service did not become ready")


def promote(registry, models: list[str], stop: threading.Event) -> None:
    turn = 1
    while not stop.wait(0.5):
        registry.promote(models[turn % 2], f"turn {turn}")
        turn += 1


class Prices:
    """The bundled prices as a snapshot that one more session arrives in every few seconds."""

    def __init__(self) -> None:
        self.sessions = SESSIONS

    def save(self) -> None:
        from portfolio_sdpo.prices.cleaning import clean
        from portfolio_sdpo.prices.manifest import Request
        from portfolio_sdpo.prices.prices import Prices as Table
        from portfolio_sdpo.prices.samples import load_sample
        from portfolio_sdpo.prices.snapshots import Store

        sample = load_sample("sample")
        known = Table(sample.frame.iloc[: self.sessions], sample.column, sample.adjustment)
        Store().save(SNAPSHOT, clean(known), known, Request(source="file"))

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(3.0):
            self.sessions += 1
            self.save()


class Backups:
    """A backup every few seconds, each of which was checked before it got its name."""

    def __init__(self, registry) -> None:
        self.registry = registry
        self.made = 0
        self.sound = True

    def run(self, stop: threading.Event) -> None:
        from portfolio_sdpo.errors import PortfolioSdpoError
        from portfolio_sdpo.registry.backup import back_up

        while not stop.wait(5.0):
            try:
                back_up(self.registry, Path(os.environ["PORTFOLIO_SDPO_HOME"]) / f"{self.made}.backup")
                self.made += 1
            except PortfolioSdpoError as error:
                self.sound = False
                print(error, file=sys.stderr)


def post_prices(port: int, key: str, clients: int, seconds: float) -> dict:
    """Decisions on posted prices, which are those of the bundled sample."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from portfolio_sdpo.prices.samples import load_sample

    content = load_sample("sample").frame.to_csv().encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "text/csv"}
    codes: Counter[int] = Counter()
    took: list[float] = []
    deadline = time.monotonic() + seconds

    def ask() -> None:
        while time.monotonic() < deadline:
            began = time.perf_counter()
            try:
                with urlopen(Request(f"http://127.0.0.1:{port}{WEIGHTS}", content, headers), timeout=60) as answer:
                    answer.read()
                    codes[answer.status] += 1
                    took.append(time.perf_counter() - began)
            except HTTPError as error:
                codes[error.code] += 1

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "clients": clients,
        "answered": codes[200],
        "codes": {str(code): number for code, number in codes.items()},
        "per_second": round(codes[200] / seconds, 1),
        "p99_ms": round(1e3 * float(np.quantile(took, 0.99)), 1) if took else None,
    }


def judged(clients: list[Client], registry) -> dict:
    """Errors, and answers that are not wholly one model's."""
    failures = sum((client.failures for client in clients), Counter())
    champions = {entry.seq: entry.model_id for entry in registry.promotions()}
    weights, torn, seen = {}, 0, set()
    for (etag, body), number in sum((client.bodies for client in clients), Counter()).items():
        content = json.loads(body)
        model, prices = content["model"], content["data"]["sha256"]
        whole = etag.decode() == f'"{hashlib.sha256(body).hexdigest()}"'
        right = champions[model["promotion"]] == model["id"]
        same = weights.setdefault((model["id"], prices), content["weights"]) == content["weights"]
        torn += 0 if whole and right and same else number
        seen.add(model["promotion"])
    return {"errors": sum(failures.values()), "failures": dict(failures), "torn": torn, "promotions_seen": len(seen)}


def compared(clients: list[Client]) -> dict:
    """Milliseconds of the weights and of the empty route."""
    told = {}
    for name, path in (("weights", WEIGHTS), ("empty_route", BARE)):
        took = 1e3 * np.array([value for client in clients for value in client.took[path]])
        told[name] = {
            "requests": len(took),
            "median_ms": round(float(np.median(took)), 3),
            "p99_ms": round(float(np.quantile(took, 0.99)), 3),
        }
    told["median_ratio"] = round(told["weights"]["median_ms"] / told["empty_route"]["median_ms"], 2)
    return told


if __name__ == "__main__":
    main()
