"""The JSON files of an operator: read, and refused where they cannot be what they should be."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from atrex_core.errors import PluginError
from atrex_core.model import Origin, Phase, Scale, Workload
from atrex_core.suggest import close_match, did_you_mean

GROUPS = (
    ("published", Origin.PUBLISHED, Scale.FULL),
    ("added", Origin.ADDED, Scale.FULL),
    ("smoke", Origin.ADDED, Scale.SMOKE),
)
"""Keys of `shapes.json`, in the order in which workloads are listed."""

_SHAPES_KEYS = ("phase", "regimes", *(key for key, _, _ in GROUPS))
_WORKLOAD_KEYS = ("id", "axes", "init", "phase")
_FACT_KEYS = ("importance", "release_id", "provenance")
_PHASES = {str(phase): phase for phase in Phase}


def read_json(path: Path) -> Any:
    """Return what a pack's JSON file holds.

    Raises:
        PluginError: it cannot be read, or is no JSON; the message names it.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PluginError(f"cannot read {str(path)!r}: {error}") from error


def read_shapes(path: Path) -> tuple[Mapping[str, Any], tuple[Workload, ...]]:
    """Return what `shapes.json` holds, and the workloads it lists.

    Raises:
        PluginError: something is missing, misspelt or of another type; the message says what.
    """
    place = _place(path)
    shapes = _object(place, read_json(path), "it")
    _check_keys(place, shapes, _SHAPES_KEYS, required=("phase", "regimes"), of="")
    _phase(place, shapes["phase"], "")
    regimes = shapes["regimes"]
    if not isinstance(regimes, list) or not all(isinstance(name, str) for name in regimes):
        _refuse(place, f"its regimes are {regimes!r}, not a list of names")
    workloads = tuple(_workloads(place, shapes))
    if not workloads:
        _refuse(place, "it lists no workload")
    return shapes, workloads


def read_facts(path: Path, further: Collection[str]) -> Mapping[str, Any]:
    """Return what `private.json` holds.

    Args:
        path: Of the file.
        further: Keys that it may have beside those that every operator's may have.

    Raises:
        PluginError: something is missing, misspelt or of another type; the message says what.
    """
    place = _place(path)
    facts = _object(place, read_json(path), "it")
    _check_keys(place, facts, (*_FACT_KEYS, *sorted(further)), required=("importance",), of="")
    importance = facts["importance"]
    is_number = isinstance(importance, int | float) and not isinstance(importance, bool)
    if not is_number or not 0 <= importance < math.inf:
        _refuse(place, f"'importance' is {importance!r}, not a number from 0")
    for key in ("release_id", "provenance"):
        if not isinstance(facts.get(key), str | None):
            _refuse(place, f"{key!r} is {facts[key]!r}, not text")
    release_id = facts.get("release_id")
    if release_id and not (release_id.isidentifier() and release_id.isascii()):
        _refuse(place, f"'release_id' is {release_id!r}, not a Python identifier")
    return facts


def _workloads(place: str, shapes: Mapping[str, Any]) -> Iterator[Workload]:
    for key, origin, scale in GROUPS:
        listed = shapes.get(key, [])
        if not isinstance(listed, list):
            _refuse(place, f"{key!r} is {type(listed).__name__}, not a list of workloads")
        for number, entry in enumerate(listed, start=1):
            which = f"workload {number} of {key!r}"
            workload = _object(place, entry, which)
            _check_keys(
                place, workload, _WORKLOAD_KEYS, required=("id", "axes", "init"), of=f" of {which}"
            )
            if not isinstance(workload["id"], str) or not workload["id"]:
                _refuse(place, f"'id' of {which} is {workload['id']!r}, not text")
            phase = workload.get("phase", shapes["phase"])
            yield Workload(
                id=workload["id"],
                axes=_Named.of(place, workload, "axes", which),
                init=_Named.of(place, workload, "init", which),
                phase=_phase(place, phase, f" of {which}"),
                origin=origin,
                scale=scale,
            )


class _Named(dict[str, Any]):
    """What a workload says by name. A name that it lacks is an error that says where."""

    where: str

    @classmethod
    def of(cls, place: str, workload: Mapping[str, Any], key: str, which: str) -> _Named:
        named = cls(_object(place, workload[key], f"{key!r} of {which}"))
        named.where = f"the {key} of workload {workload['id']!r} in {place}"
        return named

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"no {key!r} among {self.where}: {did_you_mean(str(key), self)}")


def _phase(place: str, value: object, of: str) -> Phase:
    if not isinstance(value, str) or value not in _PHASES:
        _refuse(place, f"'phase'{of} is {value!r}, not one of {', '.join(_PHASES)}")
    return _PHASES[value]


def _object(place: str, value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(place, f"{what} is {type(value).__name__}, not an object")
    return value


def _check_keys(
    place: str,
    found: Mapping[str, Any],
    known: Collection[str],
    *,
    required: Collection[str],
    of: str,
) -> None:
    for key in found:
        if key not in known:
            close = close_match(key, known)
            more = f"did you mean {close!r}?" if close else f"it may hold {', '.join(known)}"
            _refuse(place, f"unknown key {key!r}{of}: {more}")
    for key in required:
        if key not in found:
            _refuse(place, f"{key!r}{of} is missing")


def _refuse(place: str, complaint: str) -> NoReturn:
    raise PluginError(f"{place}: {complaint}")


def _place(path: Path) -> str:
    """Return the end of a path: enough to find the file in its pack."""
    return "/".join(path.parts[-3 if path.parent.name == "public" else -2 :])
