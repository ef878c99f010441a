"""One kill of each kind; `benchmarks/service_kills.py --kills 20` is the long version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "service_kills.py"


def test_a_kill_loses_nothing_beyond_what_is_documented():
    command = [sys.executable, str(SCRIPT), "--kills", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert results.keys() == {"strict", "batched", "retrain", "import", "backup", "archive"}
    for kind, result in results.items():
        assert result["kills"] == 1 and result["broken"] == 0 and result["audit_rows"] >= 6000, kind
        assert result["lost"] == 0 or kind == "batched", kind
