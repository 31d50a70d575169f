"""A driver is asked in a short-lived process, which may crash or hang without harm."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class UnansweredError(Exception):
    """Nothing could be learnt; the text says why, and what would change that."""


def ask(
    reader: Path,
    arguments: Sequence[str] = (),
    *,
    timeout_s: float,
    library: str,
    driver: str,
    tool: str,
) -> bytes:
    """Run the script `reader`, which imports the standard library only; return what it prints.

    Args:
        library: What the script asks, for messages.
        driver: What answers, or hangs.
        tool: A program that shows whether the driver works.

    Raises:
        UnansweredError: it ended badly, or not at all.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(reader), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnansweredError(
            f"{driver} did not answer within {timeout_s:g} s: "
            f"check that {tool} works, or restart the machine"
        ) from None
    except OSError as error:
        raise UnansweredError(
            f"{sys.executable} cannot be started to ask {library}: {error}"
        ) from error
    if done.returncode != 0:
        raise UnansweredError(
            f"asking {library} ended with {_ending(done.returncode)}: "
            f"reinstall {driver}, or check that {tool} works"
        )
    return done.stdout


def _ending(returncode: int) -> str:
    if returncode > 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
