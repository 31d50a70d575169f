"""The folder that a worker may write to: made, filled and removed by us."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PREFIX = "atrex-worker-"


def make_scratch(files: Mapping[str, bytes]) -> Path:
    """Make a new folder that holds `files`, by relative path."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        for name, content in files.items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError:
        remove_scratch(scratch)
        raise
    return scratch


def remove_own() -> None:
    """Remove every folder that this process made and that is still there."""
    for scratch in Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*"):
        remove_scratch(scratch)


def remove_scratch(scratch: Path) -> None:
    """Remove a folder, whatever rights its owner has taken from itself. Absent is fine."""
    shutil.rmtree(scratch, ignore_errors=True)
    if not scratch.exists():
        return
    for folder, names, _ in os.walk(scratch):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(scratch, ignore_errors=True)
