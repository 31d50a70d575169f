"""What decides a verdict never enters the process that a candidate runs in.

The referee's parts run here, in the test, so that the worker's memory can be searched for what
only they may know.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from atrex_core import Evaluation, Gate, Outcome, Problem, Protocol, Tolerance, Workload, dense
from atrex_core.processes.messages import Setup
from atrex_core.referee import main as referee
from atrex_core.referee.bench import Bench
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.trial import Trial

pytest.importorskip("numba", reason="the candidate is written in it")

_CANDIDATE = """
import gc, json, os, sys
import numba
import numpy as np
import torch

@numba.njit
def norm(x, weight, out, eps):
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        scale = 1 / np.sqrt(total / x.shape[1] + eps)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * weight[j]

def look_around():
    gc.unfreeze()
    fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.lexists(f"/proc/self/fd/{fd}")}
    numbers, texts = set(), set()
    for found in gc.get_objects():
        for item in gc.get_referents(found):
            if type(item) is int and item > 1 << 32:
                numbers.add(item)
            elif type(item) is str and len(item) < 300:
                texts.add(item)
    kinds = {type(found) for found in gc.get_objects()}
    return {
        "environ": open("/proc/self/environ").read(),
        "cmdline": open("/proc/self/cmdline").read(),
        "fds": fds,
        "modules": sorted(sys.modules),
        "numbers": sorted(numbers),
        "texts": sorted(text.encode(errors="replace").decode() for text in texts),
        "kinds": sorted(f"{kind.__module__}.{kind.__name__}" for kind in kinds),
    }

class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps, self.calls = eps, 0

    def forward(self, x, weight):
        self.calls += 1
        if self.calls == 6:  # in the last case of all
            seen = json.dumps(look_around())
            with open("seen", "w") as file:
                file.write(seen)
        out = torch.empty(x.shape)
        norm(x.float().numpy(), weight.float().numpy(), out.numpy(), self.eps)
        return out.to(x.dtype)
"""


@frozen
class Scene:
    """A trial that has ended, and the worker it used, still alive."""

    trial: Trial
    problem: Problem
    workload: Workload
    seen: Any
    pid: int


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
        bench, _ = referee._prepare(_setup(), referee.Startup())
        problem = bench.problems["rms_norm"]
        workload = next(w for w in problem.workloads if w.id == "smoke-3x1999")
        docket = _docket(bench, problem)
        trial = Trial(bench, docket, problem, workload, lambda gate, result: None)
        trial.run()
        assert docket.worker is not None
        seen = json.loads((docket.worker.scratch / "seen").read_text())
        yield Scene(trial, problem, workload, seen, docket.worker.pid)
        docket.close()
        bench.server.stop()


def _setup() -> Setup:
    return Setup(
        backend="numba",
        device="cpu",
        targets=(),
        protocol=Protocol.STRICT,
        until=Gate.CORRECTNESS,
        profile=None,
        cases=5,
        timeout_s=60,
        memory_limit_bytes=None,
        perf_budget_s=0.1,
    )


def _docket(bench: Bench, problem: Problem) -> Docket:
    return Docket(
        server=bench.server,
        device=bench.device,
        limits=Limits(timeout_s=60, memory_limit_bytes=None),
        source=_CANDIDATE.encode(),
        public_files={f"problem/{p.name}": p.read_bytes() for p in problem.public_files},
    )


def test_candidate_passed_while_it_looked(scene: Scene) -> None:
    assert {gate: result.outcome for gate, result in scene.trial.gates.items()} == {
        Gate.COMPILE: Outcome.PASSED,
        Gate.CORRECTNESS: Outcome.PASSED,
        Gate.PERFORMANCE: Outcome.SKIPPED,
        Gate.AUTHENTICITY: Outcome.SKIPPED,
    }
    assert len(scene.trial.seeds) == 6
    assert len(set(scene.trial.seeds)) == 6


def test_seeds_are_in_no_object_of_the_worker(scene: Scene) -> None:
    assert not set(scene.trial.seeds) & set(scene.seen["numbers"])
    for seed in scene.trial.seeds:
        assert not [text for text in scene.seen["texts"] if str(seed) in text]


def test_environment_and_command_line_say_nothing_about_the_problem(scene: Scene) -> None:
    bench = scene.trial.bench
    declared = bench.accelerator.worker_environment(bench.device)
    passed_on = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "PYTHONHASHSEED"}
    names = {pair.partition("=")[0] for pair in scene.seen["environ"].split("\0") if pair}
    tunables = {
        name for name in names if name.startswith("glibc.")
    }  # glibc splits its own in place

    assert names - tunables <= passed_on | set(declared)
    assert "rms_norm" not in scene.seen["environ"]
    command = scene.seen["cmdline"].split("\0")
    start = command.index("atrex_core.processes.server")
    assert command[start + 2 :] == ["work", "numba", "cpu", "cpu", "numba", ""]


def test_only_the_workers_own_descriptors_are_open(scene: Scene) -> None:
    fds = scene.seen["fds"]
    others = {target.partition(" ")[0].partition("[")[0] for fd, target in fds.items() if fd > "2"}
    assert others == {"socket:", "/memfd:stage", "/memfd:atrex-buffer"}


def test_no_part_of_a_pack_or_of_the_referee_is_imported(scene: Scene) -> None:
    ours = [name for name in scene.seen["modules"] if name.startswith("atrex_")]
    allowed = ("atrex_core", "atrex_backend_numba", "atrex_accelerator_cpu")

    assert [name for name in ours if name.partition(".")[0] not in allowed] == []
    assert [name for name in ours if name.startswith("atrex_core.referee")] == []
    assert "atrex_core.comparison" not in ours
    assert "atrex_core.session" not in ours


def test_no_object_that_judges_exists_in_the_worker(scene: Scene) -> None:
    kinds = set(scene.seen["kinds"])

    for judge in (Tolerance, Evaluation, Workload, Trial, Bench):
        assert f"{judge.__module__}.{judge.__name__}" not in kinds
    assert not [kind for kind in kinds if kind.startswith("atrex_problems")]


def test_workers_memory_holds_no_seed_answer_or_private_text(scene: Scene) -> None:
    secrets = {f"the text of seed {i}": str(s).encode() for i, s in enumerate(scene.trial.seeds)}
    secrets |= {f"seed {i}": struct.pack("<q", s) for i, s in enumerate(scene.trial.seeds)}
    regimes = scene.problem.regimes(scene.workload)
    for regime, seed in zip((regimes[0], *regimes), scene.trial.seeds, strict=True):
        inputs = scene.problem.draw(scene.workload, regime=regime, seed=seed, device="cpu")
        expected = dense(scene.problem.expected(scene.workload, inputs)["out"])
        row = expected[expected.abs().sum(1).argmax()]  # one regime has a row of zeros
        secrets[f"expected values of {regime}"] = row[:4].numpy().tobytes()
    private = Path(str(scene.problem.public_files[0])).parents[1] / "private.py"
    secrets["the private half's text"] = private.read_bytes()[:60]
    secrets["the name of a mutant"] = b"half_of_the_row"
    control = {"the candidate": b"in the last case of all", "the public half": b"problem/reference"}
    assert b"half_of_the_row" in private.read_bytes()

    found = _search(scene.pid, {**secrets, **control})

    assert "the candidate" in found, "the search finds what is there"
    assert found & set(secrets) == set()


def _search(pid: int, wanted: dict[str, bytes]) -> set[str]:
    """Return which of the wanted bytes are anywhere in the writable memory of a process."""
    found: set[str] = set()
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except PermissionError:
        pytest.skip("this system lets nobody read another process's memory")
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        if rights[:2] != "rw":
            continue
        start, end = (int(word, 16) for word in span.split("-"))
        for at in range(start, end, 1 << 26):
            try:
                block = os.pread(memory, min(1 << 26, end - at) + 64, at)
            except OSError:
                continue
            found |= {name for name, secret in wanted.items() if secret in block}
    os.close(memory)
    return found
