"""A candidate that looks for canaries in everything a worker can see, and raises what it found.

Copied into a folder of candidates and run there; never imported by the evaluator. A canary is a
fixed mark and random digits. What is found is kept and reported with its digits backwards and
without the mark, so that a find is not found again.

A public half that defines `hold(look)` may surround the search with things to be seen: that is how
the spy is proved able to see.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import socket
import stat
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

LAST = 6
"""The call that raises what was found: the last of correctness; one more is a timed one."""
MARK = b"atrexcanary"
DIGITS = 16
_MOST_BYTES = 1 << 26
_BLOCK = 1 << 23
_MOST_KEPT = 12
_DEPTH = 3
_CANARY = re.compile(MARK + b"([0-9a-f]{%d})" % DIGITS)
_LONGEST = 4 * (len(MARK) + DIGITS)
"""Bytes of a canary in text of four bytes a character."""

found: dict[str, set[str]] = defaultdict(set)
looked: dict[str, int] = defaultdict(int)
readable: dict[str, bool] = {}


def see(channel: str, data: bytes) -> None:
    """Look into some bytes."""
    looked[channel] += len(data)
    narrow = data.translate(None, b"\0")  # text of two or four bytes a character becomes one
    if MARK in narrow:
        found[channel] |= {digits.decode()[::-1] for digits in _CANARY.findall(narrow)}


def read(channel: str, place: str | Path) -> bool:
    """Look into a file, its beginning at most; return whether it could be read."""
    try:
        with Path(place).open("rb") as file:
            see(channel, file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return False
    return True


def look() -> None:
    """Look everywhere once."""
    look_lightly()
    look_at_objects()
    look_at_tracebacks()
    look_at_memory_of(os.getpid(), "memory", everything=True)
    look_at_memory_of(os.getppid(), "parent")


def look_lightly() -> None:
    """Look wherever that takes no time."""
    look_at_frames()
    look_at_environment()
    look_at_descriptors()
    look_at_files()
    look_at_parent()


def look_at_environment() -> None:
    own = (dict(os.environ), sys.argv, sys.orig_argv, sys.path, sys.flags, list(sys.modules))
    see("environment", "\n".join(map(repr, own)).encode(errors="replace"))
    for name in ("cmdline", "environ", "maps", "mountinfo", "comm", "status", "cgroup", "auxv"):
        read("environment", f"/proc/self/{name}")
    for name in ("cwd", "exe", "root"):
        with suppress(OSError):
            see("environment", os.fsencode(Path(f"/proc/self/{name}").readlink()))


def look_at_descriptors() -> None:
    for place in list(Path("/proc/self/fd").iterdir()):
        try:
            see("descriptors", os.fsencode(place.readlink()))
            mode = place.stat().st_mode
        except OSError:  # the listing's own, closed by now
            continue
        if stat.S_ISREG(mode):
            read("descriptors", place)
        elif stat.S_ISSOCK(mode):
            with suppress(OSError), socket.socket(fileno=os.dup(int(place.name))) as twin:
                see("descriptors", twin.recv(_BLOCK, socket.MSG_PEEK | socket.MSG_DONTWAIT))


def look_at_files() -> None:
    for folder, folders, files in os.walk("."):
        see("files", "\n".join([folder, *folders, *files]).encode(errors="replace"))
        for place in (Path(folder, name) for name in files):
            if place.is_file() and not place.is_symlink():
                read("files", place)


def look_at_parent() -> None:
    pid = os.getppid()
    for name in ("cmdline", "environ", "comm"):
        read("parent", f"/proc/{pid}/{name}")


def look_at_objects() -> None:
    gc.unfreeze()
    known: set[int] = set()
    texts: list[bytes] = []
    for held in gc.get_objects():
        for item in (held, *gc.get_referents(held)):
            if id(item) not in known:
                known.add(id(item))
                texts += _texts(item)
    see("objects", b"\0".join(texts))


def look_at_frames() -> None:
    for frame in sys._current_frames().values():
        _look_at_frames_from(frame, "frames")


def look_at_tracebacks() -> None:
    # By type: a proxy may claim to be of any class, or raise when it is asked.
    errors = [held for held in gc.get_objects() if issubclass(type(held), BaseException)]
    see("tracebacks", str(len(errors)).encode())
    for error in errors:
        see("tracebacks", b"\0".join(_texts(error.args)))
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            _look_at_frames_from(trace.tb_frame, "tracebacks")
            trace = trace.tb_next


def look_at_memory_of(pid: int, channel: str, *, everything: bool = False) -> bool:
    """Look into the memory of a process; return whether any could be read."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return False
    came = False
    for line in lines:
        span, rights = line.split()[:2]
        if not rights.startswith("r" if everything else "rw"):
            continue
        start, end = (int(word, 16) for word in span.split("-"))
        for at in range(start, end, _BLOCK):
            try:
                block = os.pread(memory, min(_BLOCK + _LONGEST, end - at), at)
            except (OSError, OverflowError):  # pages of the kernel's, or gone by now
                continue
            came = came or bool(block)
            see(channel, block)
    os.close(memory)
    return came


def look_at_relatives() -> None:
    """Look at the processes above the parent: is the judge within reach?"""
    pid = os.getppid()
    for _ in range(2):
        with suppress(OSError, ValueError, IndexError):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            for name in ("environ", "cmdline"):
                opened = read("relatives", f"/proc/{pid}/{name}")
                if name == "environ":
                    readable["relatives' environment"] |= opened
            readable["relatives' memory"] |= look_at_memory_of(pid, "relatives")


def look_at_disk() -> None:
    """Look for private halves where modules are imported from."""
    for entry in dict.fromkeys(sys.path):
        for pattern in ("*/*/private.json", "*/*/private.py", "*/*/*/private.json"):
            with suppress(OSError):
                for place in Path(entry).glob(pattern):
                    readable["private files"] |= read("disk", place)


def report() -> str:
    """Return all that was found, as one line."""
    return "REPORT " + json.dumps(
        {
            "looked": looked,
            "found": {c: sorted(digits)[:_MOST_KEPT] for c, digits in found.items() if digits},
            "count": {channel: len(digits) for channel, digits in found.items()},
            "readable": readable,
        }
    )


def _look_at_frames_from(frame: FrameType | None, channel: str) -> None:
    while frame is not None:
        texts = [text for value in frame.f_locals.values() for text in _texts(value)]
        see(channel, b"\0".join([*texts, *_texts(frame.f_code)]))
        frame = frame.f_back


def _texts(value: Any, depth: int = _DEPTH) -> Iterator[bytes]:
    """Yield the texts that a value is or holds; what it computes when asked is left alone."""
    kind = type(value)
    if kind is str:
        yield value.encode(errors="replace")
    elif kind in (bytes, bytearray):
        yield bytes(value)
    elif kind is CodeType:
        yield from _texts((value.co_name, value.co_filename, value.co_names, value.co_varnames))
        for constant in value.co_consts:
            yield from _texts(constant, depth)
    elif depth and kind in (tuple, list, set, frozenset):
        for item in list(value)[:4096]:
            yield from _texts(item, depth - 1)
    elif depth and kind is dict:
        for pair in list(value.items())[:4096]:
            yield from _texts(pair, depth - 1)


def surrounded(search: Callable[[], None]) -> str:
    """Search, inside of what the public half may hold up; return what it wants to be said."""
    spec = importlib.util.spec_from_file_location("reference", "problem/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hold = getattr(module, "hold", None)
    if hold is None:
        search()
    else:
        hold(search)
    return str(getattr(module, "SAY", ""))


look_lightly()


class Model(torch.nn.Module):
    """Twice x, plus y; and a search in the last call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        look_lightly()

    def forward(self, x: Any, y: Any) -> Any:
        """Return the right answer until the last call."""
        self.calls += 1
        if self.calls == LAST:
            say = surrounded(look)
            readable.update({"relatives' environment": False, "relatives' memory": False})
            readable["private files"] = False
            look_at_relatives()
            look_at_disk()
            raise RuntimeError(f"{say} {report()}")
        return 2 * x + y
