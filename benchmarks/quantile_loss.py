"""Fast against pairwise quantile Huber loss, forward and backward: times, ratio, peak memory. Prints one JSON object.

python benchmarks/quantile_loss.py [--batch 1280] [--atoms 32 64 128 256 512] [--threads 1 2] [--repeats 5]

Both forms are timed alternately in one process; the ratio is that of their medians. Peak memory is what torch holds at
once during one call. The pairwise form is skipped, its fields null, where its tables would not fit into --limit-gb.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from portfolio_sdpo.nn.quantiles import pairwise_quantile_huber_loss, quantile_huber_loss

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
PAIRWISE_TABLES = 6.5
"""Tables of batch × atoms × atoms floats that the pairwise form holds at its peak (measured: 6.3)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1280)
    parser.add_argument("--atoms", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit-gb", type=float, default=1.0, help="largest memory to spend on the pairwise form")
    options = parser.parse_args()

    results = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for atoms in options.atoms:
            needed = PAIRWISE_TABLES * 4 * options.batch * atoms**2
            results.append(
                {"threads": threads} | compare(options.batch, atoms, options.repeats, needed, options.limit_gb)
            )
    print(json.dumps({"benchmark": "quantile_loss", "torch": torch.__version__, "results": results}, indent=2))


def compare(batch: int, atoms: int, repeats: int, needed: float, limit_gb: float) -> dict[str, float | int | None]:
    """One line of the result: both forms on the same random batch."""
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(batch, atoms, generator=generator).requires_grad_()
    tau = torch.rand(atoms, generator=generator)
    target = torch.randn(batch, atoms, generator=generator)
    forms: list[Loss] = [quantile_huber_loss]
    if needed <= limit_gb * 1e9:
        forms.append(pairwise_quantile_huber_loss)
    seconds: list[list[float]] = [[] for _ in forms]
    for repeat in range(repeats + 1):  # the first one warms up
        for form, times in zip(forms, seconds, strict=True):
            pred.grad = None
            start = time.perf_counter()
            form(pred, tau, target).backward()
            if repeat:
                times.append(time.perf_counter() - start)
    fast, pairwise = (statistics.median(seconds[i]) if i < len(forms) else None for i in range(2))
    fast_bytes, pairwise_bytes = (peak_bytes(forms[i], pred, tau, target) if i < len(forms) else None for i in range(2))
    assert fast is not None
    assert fast_bytes is not None
    return {
        "batch": batch,
        "atoms": atoms,
        "fast_ms": round(1e3 * fast, 3),
        "pairwise_ms": pairwise and round(1e3 * pairwise, 3),
        "ratio": pairwise and round(pairwise / fast, 1),
        "fast_peak_mb": round(fast_bytes / 1e6, 2),
        "pairwise_peak_mb": pairwise_bytes and round(pairwise_bytes / 1e6, 2),
        "fast_bytes_per_atom_and_row": round(fast_bytes / (batch * atoms), 1),
    }


def peak_bytes(form: Loss, pred: Tensor, tau: Tensor, target: Tensor) -> int:
    """The largest sum of torch's live allocations during one forward and backward pass."""
    pred.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        form(pred, tau, target).backward()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


if __name__ == "__main__":
    main()
