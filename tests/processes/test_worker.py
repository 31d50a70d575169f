"""Real workers, forked from a real server, whose candidates speak the protocol wrongly."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Container, Device, Stage, TensorSpec
from atrex_core.model import DType
from atrex_core.processes import linux
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.processes.messages import (
    Call,
    CloseWorkload,
    Collect,
    Done,
    Fault,
    Load,
    OpenWorkload,
    Refused,
    Run,
    Start,
)
from atrex_core.processes.workers import Died, Worker
from atrex_core.referee.arena import Arena

_DEVICE = Device(id="anvil:0", accelerator="anvil", vendor="acme", name="Acme Anvil 2", arch="av2")
_VECTOR = TensorSpec(name="x", dtype=DType.FP32, shape=(64,))
_OUT = TensorSpec(name="out", dtype=DType.FP32, shape=(64,))

Spawn = Callable[..., Worker]

_PRELUDE = """
import ctypes, gc, os, signal, struct, time
import torch; from atrex_core import Stage
from atrex_core.processes.channel import Channel
from atrex_core.processes.messages import *

def channel():
    found = [c for c in gc.get_objects() if type(c) is Channel and c.fileno() >= 0]
    (mine,) = found
    return mine

class Model(torch.nn.Module):
    def forward(self, x):
"""


@pytest.fixture(scope="module")
def server(acme_here: Path) -> Iterator[ForkServerProcess]:
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    server = ForkServerProcess("hammer", "anvil", ("acme",), environment)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def spawn(server: ForkServerProcess) -> Iterator[Spawn]:
    """Return what forks a worker whose forward has the given body, ready to be called."""
    from atrex_acme.accelerator import AnvilContext

    started: list[Worker] = []
    arena = Arena.allocate(AnvilContext(), [_VECTOR], [_OUT], sets=1)

    def spawn(body: str, *, memory_limit_bytes: int | None = None) -> Worker:
        source = _PRELUDE + textwrap.indent(textwrap.dedent(body), " " * 8)
        files = {"candidate.py": source.encode()}
        worker = Worker.spawn(server, files, memory_limit_bytes=memory_limit_bytes)
        started.append(worker)
        for request, fields in (
            (Start, {"device": _DEVICE, "candidate": "candidate.py"}),
            (Load, {"memory_limit_bytes": None}),
            (OpenWorkload, _opening(arena)),
        ):
            assert isinstance(worker.ask(request, timeout_s=30, **fields), Done)
        return worker

    spawn.arena = arena  # type: ignore[attr-defined]
    yield spawn
    for worker in started:
        worker.stop()
        assert not worker.scratch.exists()
    arena.close()


def _opening(arena: Arena) -> dict[str, Any]:
    handles, fds = arena.export()
    return {
        "fds": fds,
        "init": {},
        "container": Container.TENSOR,
        "buffers": handles,
        "input_sets": arena.input_sets,
        "output_sets": arena.output_sets,
    }


def _call(worker: Worker, timeout_s: float = 30) -> Any:
    return worker.ask(Call, timeout_s=timeout_s, stage=Stage.CORRECTNESS)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("channel().send(Done(number=1))", "an answer to another question", id="old"),
        pytest.param("channel().send(Done(number=9))", "an answer to another question", id="early"),
        pytest.param(
            "channel().send(Warm(seconds=1.0))", "an answer to another question", id="not an answer"
        ),
        pytest.param(
            "channel().send(Kill(pid=1))", "an answer to another question", id="an order to us"
        ),
        pytest.param(
            "channel().sock.sendall(b'\\0' * 64)", "a frame without a valid header", id="zeros"
        ),
        pytest.param(
            "channel().sock.sendall(struct.pack('!4sHHI', b'ATRX', 11, 0, 1 << 30))",
            "a frame of 1073741824 bytes; the limit is 4194304",
            id="a frame too large",
        ),
        pytest.param(
            "channel().send(Refused(number=4, stage='import', fault='contract', reason='\\udc80'))",
            "not a valid message",
            id="text that cannot be written",
        ),
    ],
)
def test_wrong_answer_ends_the_worker(spawn: Spawn, body: str, reason: str) -> None:
    worker = spawn(f"{body}\ntime.sleep(60)")

    answer = _call(worker)

    assert isinstance(answer, Died)
    assert answer.reason.startswith(f"broke the protocol: {reason}")
    assert answer.stage is Stage.CORRECTNESS
    assert not worker.alive


def test_second_answer_is_no_answer_to_the_next_question(spawn: Spawn) -> None:
    worker = spawn("channel().send(Done(number=4))\nreturn x.clone()")

    first, second = _call(worker), _call(worker)

    assert isinstance(first, Done)
    assert isinstance(second, Died)
    assert second.reason == "broke the protocol: an answer to another question"


def test_answer_in_drops_does_not_outlast_the_limit(spawn: Spawn) -> None:
    worker = spawn("""
        for byte in b"ATRX" * 1000:
            channel().sock.sendall(bytes([byte]))
            time.sleep(0.02)
    """)
    started = time.monotonic()

    answer = _call(worker, timeout_s=0.7)

    assert isinstance(answer, Died)
    assert time.monotonic() - started < 10


def test_half_an_answer_does_not_hide_what_the_worker_takes(spawn: Spawn) -> None:
    body = """
        channel().sock.sendall(struct.pack("!4sHHI", b"ATRX", 11, 0, 1000))
        kept = torch.ones((5 << 28) // 4)
        time.sleep(60)
    """
    worker = spawn(body, memory_limit_bytes=1 << 28)

    answer = _call(worker)

    assert isinstance(answer, Died)
    assert answer.reason == "exceeded the memory limit of 0.25 GiB"


def test_worker_that_closes_its_channel_and_lives_is_ended(spawn: Spawn) -> None:
    worker = spawn("os.closerange(3, 256)\ntime.sleep(60)")

    answer = _call(worker)

    assert isinstance(answer, Died)
    assert answer.reason == "closed the descriptors that its answers go through"


def test_hang_is_shown_at_its_line(spawn: Spawn) -> None:
    worker = spawn("while True:\n    pass")

    answer = _call(worker, timeout_s=0.5)

    assert isinstance(answer, Died)
    assert answer.reason == "gave no answer within 0.5 s and was ended"
    assert answer.where in ("line 14, in forward", "line 15, in forward")


@pytest.mark.parametrize(
    ("marked", "charged"),
    [
        pytest.param(Stage.STARTUP, Stage.CORRECTNESS, id="our fault"),
        pytest.param(Stage.AUTHENTICITY, Stage.CORRECTNESS, id="another gate"),
        pytest.param(Stage.COMPILE, Stage.COMPILE, id="compiling"),
        pytest.param(None, Stage.CORRECTNESS, id="no stage"),
    ],
)
def test_stage_is_believed_only_where_it_can_be(
    spawn: Spawn, marked: Stage | None, charged: Stage
) -> None:
    value = 255 if marked is None else list(Stage).index(marked)
    worker = spawn(f"""
        with open("/proc/self/maps") as maps:
            cell = next(int(line.split("-")[0], 16) for line in maps if "memfd:stage" in line)
        ctypes.memset(cell, {value}, 1)
        os._exit(0)
    """)

    answer = _call(worker)

    assert isinstance(answer, Died)
    assert answer.stage is charged


def test_refusal_is_charged_to_what_was_asked(spawn: Spawn) -> None:
    worker = spawn("""
        channel().send(Refused(number=4, stage=Stage.IMPORT, fault=Fault.CONTRACT, reason="no"))
        return x.clone()
    """)

    answer = _call(worker)

    assert isinstance(answer, Refused)
    assert answer.stage is Stage.CORRECTNESS
    assert answer.fault is Fault.CONTRACT


def test_workloads_on_one_worker_leave_no_descriptor_open(spawn: Spawn) -> None:
    worker = spawn("""
        with open("counts", "a") as counts:
            counts.write(f"{len(os.listdir('/proc/self/fd'))} ")
        return x.clone()
    """)

    for _ in range(4):
        assert isinstance(_call(worker), Done)
        assert isinstance(worker.ask(CloseWorkload, timeout_s=30), Done)
        opening = _opening(spawn.arena)  # type: ignore[attr-defined]
        assert isinstance(worker.ask(OpenWorkload, timeout_s=30, **opening), Done)

    counts = (worker.scratch / "counts").read_text().split()
    assert len(counts) == 4
    assert counts[1] == counts[2] == counts[3]


def test_exception_leaves_the_worker_alive(spawn: Spawn) -> None:
    worker = spawn("raise ValueError('no')")

    first, second = _call(worker), _call(worker)

    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert first.reason == "ValueError: no (line 14, in forward)"
    assert worker.alive


def test_exception_in_a_timed_output_is_the_candidates_own(spawn: Spawn) -> None:
    worker = spawn("return x.new_empty(64, requires_grad=False).as_strided((64,), (0,))")

    ran = worker.ask(Run, timeout_s=30, calls=1)
    collected = worker.ask(Collect, timeout_s=30, index=0)

    assert isinstance(ran, Done)
    assert isinstance(collected, Refused)
    assert collected.reason == "output 'out' has strides (0,): it is not contiguous"


def test_detached_process_is_named_and_ended(spawn: Spawn) -> None:
    worker = spawn("""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open("daemon", "w").write(str(os.getpid()))
                time.sleep(1000)
            os._exit(0)
        os.wait()
        while not os.path.exists("daemon"):
            time.sleep(0.01)
        return x.clone()
    """)
    assert isinstance(_call(worker), Done)
    daemon = int((worker.scratch / "daemon").read_text() or 0)

    strays = worker.strays()
    worker.stop()

    assert f"python3 ({daemon})" in strays or f"python ({daemon})" in strays
    assert linux.command_of(daemon) == ""


def test_folder_without_rights_is_removed(spawn: Spawn) -> None:
    worker = spawn("""
        os.makedirs("a/b/c")
        for folder in ("a/b/c", "a/b", "a"):
            os.chmod(folder, 0)
        return x.clone()
    """)
    assert isinstance(_call(worker), Done)

    worker.stop()

    assert not worker.scratch.exists()


def test_what_was_printed_is_kept_at_both_ends(spawn: Spawn) -> None:
    worker = spawn("""
        print("first words", flush=True)
        for _ in range(2000):
            print("x" * 99)
        os.write(2, b"last words")
        os._exit(4)
    """)

    answer = _call(worker)

    assert isinstance(answer, Died)
    assert answer.reason == "exited with status 4 instead of returning"
    assert answer.output.startswith("first words\nxxx")
    assert "\n[... " in answer.output
    assert answer.output.endswith("\nlast words")
    assert len(answer.output) < 20_000


def test_fork_that_comes_back_has_no_say(spawn: Spawn) -> None:
    worker = spawn("""
        if os.fork() == 0:
            return x.clone()
        os.wait()
        return x + 1
    """)

    answers = [_call(worker) for _ in range(3)]

    assert all(isinstance(answer, Done) for answer in answers)
