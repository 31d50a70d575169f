"""How long the command line takes to answer, and what it imports to do so.

Targets: `--help` 0.25 s, `list plugins` 0.5 s.   Run: python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

_RUNS = 9
_CASES = {("--help",): 0.25, ("list", "plugins"): 0.5}


def seconds(arguments: tuple[str, ...]) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "atrex_core", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    late = False
    print(f"{'command':16} {'median s':>9} {'best s':>9} {'target s':>9}")
    for arguments, target_s in _CASES.items():
        runs = [seconds(arguments) for _ in range(_RUNS)]
        late |= median(runs) > target_s
        name = " ".join(arguments)
        print(f"{name:16} {median(runs):9.3f} {min(runs):9.3f} {target_s:9.2f}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
