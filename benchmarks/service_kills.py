"""Kills service, retrains, backups and archives at random moments, and counts what was lost. Prints one JSON object.

python benchmarks/service_kills.py [--kills 20] [--only strict batched retrain backup archive]

Every kill is SIGKILL of a process of its own, on loopback and in a home of its own. After each of them the registry is
verified. `lost`: answers that a client received and that the audit log does not hold (documented for `batched`: those
of the last batch), backups that are there and not sound, rows that neither the table nor an archive holds. `broken`:
kills after which the registry was not sound or its champion was neither the old nor a promoted one. The exit code is 1
if anything was lost that is not documented, or broken.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

KINDS = ("strict", "batched", "retrain", "backup", "archive")
QUICK = {"history": 60, "paths": 8, "first": 5, "further": 1, "learner": {"kind": "analytic", "hidden": [4, 4]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    results = {}
    for kind in options.only:
        with tempfile.TemporaryDirectory() as home:
            os.environ["PORTFOLIO_SDPO_HOME"] = home
            os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
            results[kind] = attack(kind, options.kills, rng, Path(home))
    print(json.dumps(results, indent=2))
    lost = sum(result["lost"] for kind, result in results.items() if kind != "batched")
    sys.exit(1 if lost or any(result["broken"] for result in results.values()) else 0)


def attack(kind: str, kills: int, rng: random.Random, home: Path) -> dict:
    from portfolio_sdpo.portfolio.agent import AgentSettings
    from portfolio_sdpo.portfolio.store import train_agent
    from portfolio_sdpo.registry import AuditEntry, Registry

    with Registry.open() as registry:
        model = registry.add_model(train_agent(AgentSettings.model_validate(QUICK)).folder)
        registry.promote(model.id, "first")
        start = datetime(2026, 1, 1, tzinfo=UTC)
        entries = [AuditEntry(f"r{day}", {"CASH": 1.0}, "a" * 64, at=start + timedelta(days=day)) for day in range(120)]
        registry.append_audit([entry for entry in entries for _ in range(50)])
        result = {"kills": kills, "done": 0, "lost": 0, "broken": 0}
        for number in range(kills):
            if kind in ("strict", "batched"):
                kill_serve(kind, rng, registry, result)
            else:
                kill_command(kind, number, rng, registry, result, home)
            if not is_sound(registry):
                result["broken"] += 1
        result["audit_rows"] = registry.verify_audit().rows
    return result


def is_sound(registry) -> bool:
    """Whether everything is as it was written, and a promoted model is the champion."""
    from portfolio_sdpo.registry.backup import verify_registry

    champion = registry.champion()
    return verify_registry(registry).sound and champion is not None and champion.model_id in registry.model_ids()


def kill_serve(audit: str, rng: random.Random, registry, result: dict) -> None:
    """`done`: answers that clients received."""
    command = [sys.executable, "-m", "portfolio_sdpo", "serve", "--port", "0", "--rate", "0", "--audit", audit]
    process = subprocess.Popen(
        [*command, "--max-age-sessions", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    base = process.stdout.readline().removeprefix("Serving ").strip()
    wait_until_ready(base)
    prefix, received = f"{os.urandom(4).hex()}", {}
    threads = [threading.Thread(target=ask, args=(base, f"{prefix}.{client}", received)) for client in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.1, 1.5))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for thread in threads:
        thread.join()
    rows = {row.entry.request_id: row.entry.response_hash for row in registry.audit(limit=10**6)}
    result["done"] += len(received)
    result["lost"] += sum(rows.get(name) != hashed for name, hashed in received.items())


def wait_until_ready(base: str) -> None:
    for _ in range(1200):
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


def kill_command(kind: str, number: int, rng: random.Random, registry, result: dict, home: Path) -> None:
    """`done`: commands that ended before the kill, or backups that are there."""
    from portfolio_sdpo.errors import PortfolioSdpoError
    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.registry.backup import verify_registry

    backup = home / "backups" / f"{number}.backup"
    settings = [f"--config={key}={json.dumps(value)}" for key, value in {"history": 60, "paths": 8}.items()]
    command = {
        "retrain": ["retrain", "--seed", str(number + 1), "--holdout", "21", *settings],
        "backup": ["registry", "backup", str(backup)],
        "archive": ["registry", "archive", "--keep", str(max(0, 12 - number))],
    }[kind]
    before, rows = registry.model_ids(), registry.verify_audit().rows
    process = subprocess.Popen(
        [sys.executable, "-m", "portfolio_sdpo", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(rng.uniform(0.5, 8.0 if kind == "retrain" else 4.0))
        result["done"] += process.returncode in (0, 3)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if kind == "backup" and backup.exists():
        try:
            with Registry.open(str(backup), create=False) as saved:
                result["lost"] += not verify_registry(saved).sound
        except PortfolioSdpoError:
            result["lost"] += 1
    result["lost"] += max(rows - registry.verify_audit().rows, 0) + len(set(before) - set(registry.model_ids()))


if __name__ == "__main__":
    main()
