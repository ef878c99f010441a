"""Kills service, retrains, imports, backups and archives at random moments, and counts what was lost. Prints one JSON
object.

python benchmarks/service_kills.py [--kills 20] [--only strict batched retrain import backup archive]

Every kill is SIGKILL of a process of its own, on loopback and in a home of its own, at a random moment of what the
command takes here and now. The processes are forked from one that has done the imports. After each kill the registry
and the snapshots are verified. `lost`: answers that a client received and that the audit log does not hold (documented
for `batched`: those of the last batch), backups that are there and not sound, rows that neither the table nor an
archive holds, models and snapshots that were there before. `broken`: kills after which the registry or a snapshot was
not sound, or its champion was neither the old nor a promoted one. The exit code is 1 if anything was lost that is not
documented, or broken.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import hashlib
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

KINDS = ("strict", "batched", "retrain", "import", "backup", "archive")
QUICK = """
history = 60
paths = 8
first = 5
further = 1
learner = {kind = "analytic", hidden = [4, 4]}
"""
FORKS = multiprocessing.get_context("forkserver")
IMPORTS = ["portfolio_sdpo.cli", "portfolio_sdpo.registry.retrain", "portfolio_sdpo_app.api.server"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(". ")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    FORKS.set_forkserver_preload(IMPORTS)
    os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
    results = {}
    with tempfile.TemporaryDirectory() as place:
        agent = train(Path(place) / "agent")
        for kind in options.only:
            home = Path(place) / kind
            os.environ["PORTFOLIO_SDPO_HOME"] = str(home)
            results[kind] = attack(kind, options.kills, rng, home, agent)
    print(json.dumps(results, indent=2))
    lost = sum(result["lost"] for kind, result in results.items() if kind != "batched")
    sys.exit(1 if lost or any(result["broken"] for result in results.values()) else 0)


def train(folder: Path) -> Path:
    from portfolio_sdpo.portfolio.agent import AgentSettings
    from portfolio_sdpo.portfolio.store import train_agent

    return train_agent(AgentSettings.model_validate(tomllib.loads(QUICK)), folder=folder).folder


def attack(kind: str, kills: int, rng: random.Random, home: Path, agent: Path) -> dict:
    from portfolio_sdpo.registry import AuditEntry, Registry

    with Registry.open() as registry:
        model = registry.add_model(agent)
        registry.promote(model.id, "first")
        start = datetime(2026, 1, 1, tzinfo=UTC)
        entries = [AuditEntry(f"r{day}", {"CASH": 1.0}, "a" * 64, at=start + timedelta(days=day)) for day in range(120)]
        registry.append_audit([entry for entry in entries for _ in range(50)])
        result = {"kills": kills, "done": 0, "lost": 0, "broken": 0}
        (home / "agent.toml").write_text(QUICK)
        if kind == "import":
            write_prices(home / "prices.csv")
        if kind in ("strict", "batched"):
            for _ in range(kills):
                kill_serve(kind, rng, registry, result, home)
                result["broken"] += not is_sound(registry)
        else:
            seconds = 0.0
            for number in range(kills + 1):  # the first one is timed, not killed
                moment = rng.uniform(0.0, seconds) if number else None
                seconds = max(seconds, run_command(kind, number, moment, registry, result, home))
                result["broken"] += not is_sound(registry)
        result["audit_rows"] = registry.verify_audit().rows
    return result


def is_sound(registry) -> bool:
    """Whether everything is as it was written, and a promoted model is the champion."""
    from portfolio_sdpo.errors import SnapshotError
    from portfolio_sdpo.prices.snapshots import Store
    from portfolio_sdpo.registry.backup import verify_registry

    try:
        for name in Store().list():
            Store().open(name)
    except SnapshotError:
        return False
    champion = registry.champion()
    return verify_registry(registry).sound and champion is not None and champion.model_id in registry.model_ids()


def start(home: Path, *arguments: str) -> tuple[multiprocessing.Process, Path]:
    """The command line in a process of its own, and the file that it prints to."""
    output = home / f"output-{os.urandom(4).hex()}"
    process = FORKS.Process(target=run, args=(str(home), arguments, str(output)))
    process.start()
    return process, output


def run(home: str, arguments: tuple[str, ...], output: str) -> None:
    from portfolio_sdpo import cli

    os.environ["PORTFOLIO_SDPO_HOME"] = home
    os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
    for number, path in ((1, output), (2, os.devnull)):
        with open(path, "a") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["portfolio-sdpo", *arguments]
    cli.main()


def kill_serve(audit: str, rng: random.Random, registry, result: dict, home: Path) -> None:
    """`done`: answers that clients received."""
    command = ["serve", "--port", "0", "--rate", "0", "--audit", audit, "--max-age-sessions", "1000000"]
    process, output = start(home, *command)
    while not (output.exists() and output.read_text().endswith("\n")):
        if not process.is_alive():
            raise SystemExit("the service did not start")
        time.sleep(0.02)
    base = output.read_text().removeprefix("Serving ").strip()
    wait_until_ready(base)
    prefix, received = f"{os.urandom(4).hex()}", {}
    threads = [threading.Thread(target=ask, args=(base, f"{prefix}.{client}", received)) for client in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.1, 1.5))
    process.kill()
    process.join()
    for thread in threads:
        thread.join()
    rows = {row.entry.request_id: row.entry.response_hash for row in registry.audit(limit=10**6)}
    result["done"] += len(received)
    result["lost"] += sum(rows.get(name) != hashed for name, hashed in received.items())


def wait_until_ready(base: str) -> None:
    for _ in range(2400):
        try:
            with urlopen(f"{base}/ready", timeout=30):
                return
        except (HTTPError, URLError, OSError):
            time.sleep(0.05)
    raise SystemExit("the service did not become ready")


def ask(base: str, prefix: str, received: dict[str, str]) -> None:
    for turn in range(10**9):
        name = f"{prefix}.{turn}"
        try:
            with urlopen(Request(f"{base}/weights", headers={"X-Request-ID": name}), timeout=30) as answer:
                received[name] = hashlib.sha256(answer.read()).hexdigest()
        except Exception:  # killed, also amid an answer
            return


def write_prices(path: Path) -> None:
    """The bundled prices as a file."""
    from portfolio_sdpo.prices.samples import load_sample

    load_sample("sample").frame.rename_axis("Date").to_csv(path)


def run_command(kind: str, number: int, moment: float | None, registry, result: dict, home: Path) -> float:
    """Run a command, and kill it after so many seconds; returns how long it ran.

    `done`: commands that ended before the kill.
    """
    from portfolio_sdpo.errors import PortfolioSdpoError
    from portfolio_sdpo.prices.snapshots import Store
    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.registry.backup import verify_registry

    backup = home / "backups" / f"{number}.backup"
    command = {
        "retrain": ["retrain", "--seeds", str(number + 1), "--holdout", "21", "--config", str(home / "agent.toml")],
        "import": ["data", "import", str(home / "prices.csv"), "--name", f"prices-{number}"],
        "backup": ["registry", "backup", str(backup)],
        "archive": ["registry", "archive", "--keep", str(max(0, 12 - number))],
    }[kind]
    before, rows, snapshots = registry.model_ids(), registry.verify_audit().rows, Store().list()
    began = time.monotonic()
    process, _ = start(home, *command)
    process.join(moment)
    if process.is_alive():
        process.kill()
        process.join()
    seconds = time.monotonic() - began
    result["done"] += process.exitcode in (0, 3)
    if moment is None and process.exitcode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {process.exitcode}")
    if kind == "backup" and backup.exists():
        try:
            with Registry.open(str(backup), create=False) as saved:
                result["lost"] += not verify_registry(saved).sound
        except PortfolioSdpoError:
            result["lost"] += 1
    result["lost"] += max(rows - registry.verify_audit().rows, 0) + len(set(before) - set(registry.model_ids()))
    result["lost"] += len(set(snapshots) - set(Store().list()))
    return seconds


if __name__ == "__main__":
    main()
