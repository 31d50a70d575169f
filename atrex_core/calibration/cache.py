"""Calibrations on disk: one file for each device, driver and torch, written whole or not at all."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from atrex_core import codec
from atrex_core.errors import HarnessError
from atrex_core.model.calibration import Calibration, DeviceIdentity
from atrex_core.printable import one_line

SCHEMA: Final = 1
_MOST_BYTES: Final = 16 * 2**20

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class _Document:
    schema: int
    calibration: Calibration


def state_folder(environment: Mapping[str, str]) -> Path | None:
    """Return where calibrations are kept; None when this user has no home."""
    base = Path(environment.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the XDG rules say to ignore a relative one
        try:
            base = Path.home() / ".local" / "state"
        except RuntimeError:
            return None
    return base / "atrex-eval" / "calibrations"


def file_name(identity: DeviceIdentity) -> str:
    """Return the name of the file for `identity`: a readable part, and a digest that decides."""
    digest = hashlib.sha256(codec.dumps(identity).encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", f"{identity.accelerator} {identity.name}").strip("-")
    return f"{readable[:60].lower()}-{digest}.json"


def load(folder: Path | None, identity: DeviceIdentity) -> Calibration | None:
    """Return what is kept for `identity`; None where there is nothing that can be trusted.

    A file that is damaged, or of another version of this program, is left alone and told of.
    """
    if folder is None:
        return None
    path = folder / file_name(identity)
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("it is too large")
        document = codec.loads(text.decode(), _Document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, codec.DecodeError) as error:
        _ignored(path, str(error))
        return None
    if document.schema != SCHEMA or document.calibration.identity != identity:
        _ignored(path, "it was written by another version, or for another device")
        return None
    return document.calibration


def save(folder: Path | None, calibration: Calibration) -> Path:
    """Keep `calibration` in place of an earlier one; return the file.

    Raises:
        HarnessError: it cannot be written.
    """
    if folder is None:
        raise HarnessError(
            "the calibration cannot be kept: there is no home folder", hint="set XDG_STATE_HOME"
        )
    path = folder / file_name(calibration.identity)
    text = codec.dumps(_Document(schema=SCHEMA, calibration=calibration))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                stream.write(text + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise HarnessError(
            f"the calibration cannot be kept in {str(folder)!r}: {(error.strerror or '').lower()}",
            hint="set XDG_STATE_HOME to a folder that can be written",
        ) from error
    return path


def _ignored(path: Path, why: str) -> None:
    log.warning("the calibration %s is not used: %s", path, one_line(why, 200))
