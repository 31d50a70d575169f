"""Claim: reading a device's conditions takes less than 2 ms, after a first time.

    python benchmarks/conditions.py [--device ID] [--times N]

Prints how long the first reading took, the median and the slowest of the others, and what the last
one says while the device has just worked. Exits 1 when the median is over 2 ms, or when this kind
of device tells nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from atrex_core import PluginHost, codec

MOST_MS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    for accelerator in PluginHost.discover().accelerators:
        device = accelerator.device(options.device)
        if device is not None:
            break
    else:
        print(f"no device {options.device!r}", file=sys.stderr)
        return 2
    context = accelerator.open(device)

    import torch

    x = torch.rand(2048, 2048, device=context.torch_device)
    took_ms = []
    found = None
    for _ in range(options.times + 1):
        x @ x
        context.synchronize()
        started = time.perf_counter()
        found = context.conditions()
        took_ms.append((time.perf_counter() - started) * 1e3)
    first_ms, *others_ms = took_ms
    middle_ms = statistics.median(others_ms)
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {device.name}, {dict(context.versions())}")
    print(f"first {first_ms:.2f} ms, median {middle_ms:.3f} ms, slowest {max(others_ms):.3f} ms")
    print(codec.dumps(found))
    return int(found is None or middle_ms > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
