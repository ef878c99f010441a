"""The process around one job: it starts the command, waits for it, and writes its exit code to the job's folder.

Arguments: the job's folder, and the file descriptor of its lock. The command inherits the lock, so that the job counts
as running while either of the two processes is alive.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from portfolio_sdpo.common.files import write_atomically


def main(folder: Path, lock: int) -> int:
    """Run the command of the job; its exit code, negative for the signal that ended it, goes to `exit.json`."""
    # Handlers of Python are not inherited by a new program. So Ctrl-C interrupts the command, even if the shell
    # ignores it for background jobs, and this process stays to record the exit code.
    signal.signal(signal.SIGINT, lambda *_: None)
    command = json.loads((folder / "job.json").read_text())["command"]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as error:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=error, pass_fds=(lock,))
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
    ended = {"code": code, "ended_at": datetime.now(UTC).isoformat()}
    write_atomically(folder / "exit.json", json.dumps(ended).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
