"""One kill of each kind; `benchmarks/service_kills.py --kills 20` is the long version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "service_kills.py"


@pytest.mark.parametrize("kind", ["strict", "batched", "retrain", "backup", "archive"])
def test_a_kill_loses_nothing_beyond_what_is_documented(kind: str):
    command = [sys.executable, str(SCRIPT), "--kills", "1", "--only", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout).values()
    assert result["kills"] == 1 and result["broken"] == 0 and result["audit_rows"] >= 6000
    assert result["lost"] == 0 or kind == "batched"
