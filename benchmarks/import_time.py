"""How long `import portfolio_sdpo` and `portfolio-sdpo --help` take, beside the same of an older revision.

    python benchmarks/import_time.py [REVISION] [--rounds 15]

Both are run in turn in fresh processes with the same interpreter and packages, the sources of the older revision from
`git archive`; ratios below 1 mean that today's code is faster. REVISION is by default where this branch left `main`,
and on `main` itself the commit before.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CALLS = {
    "import portfolio_sdpo": "import portfolio_sdpo",
    "portfolio-sdpo --help": "sys.argv = ['portfolio-sdpo', '--help']; from portfolio_sdpo.cli import main; main()",
}


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def default_revision() -> str:
    base = git("merge-base", "HEAD", "main").decode().strip()
    return f"{base}~1" if base == git("rev-parse", "HEAD").decode().strip() else base


def seconds(sources: Path, code: str) -> float:
    """Of one fresh process, from its start to its end."""
    # The folder of the sources comes before the installed package.
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(sources)!r}); {code}"]
    begun = time.perf_counter()
    subprocess.run(command, cwd=sources, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default=None)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    revision = git("rev-parse", options.revision or default_revision()).decode().strip()
    result: dict[str, object] = {"before": revision, "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder)
        with tarfile.open(fileobj=io.BytesIO(git("archive", revision, "portfolio_sdpo"))) as archive:
            archive.extractall(before, filter="data")
        for name, code in CALLS.items():
            for sources in (before, ROOT):  # compiles, and fills the caches of files
                seconds(sources, code)
            pairs = [(seconds(before, code), seconds(ROOT, code)) for _ in range(options.rounds)]
            result[name] = {
                "before_ms": round(1e3 * statistics.median(pair[0] for pair in pairs), 1),
                "now_ms": round(1e3 * statistics.median(pair[1] for pair in pairs), 1),
                "ratio": round(statistics.median(now / then for then, now in pairs), 3),
            }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
