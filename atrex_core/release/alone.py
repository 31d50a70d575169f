"""The claim that released code runs alone: reference and inputs, in a process that is watched.

What a public file opens, starts or connects to while it is imported and run is noted by an audit
hook, whatever its source looks like.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atrex_core.interfaces import Problem
from atrex_core.model import Scale, TensorSpec, Workload
from atrex_core.release.claims import Claim, claim
from atrex_core.release.view import PUBLIC_FILES

_SUBJECT = "alone"
_TEXT = "reference and inputs run with torch alone, opening nothing, and give what is stated"
_TIMEOUT_S = 900.0


def alone_claim(files: Mapping[str, bytes], problems: Sequence[Problem]) -> Claim:
    """Run every small workload of the released `problems` in every regime, in one process."""
    asked, without = [], []
    for problem in problems:
        small = problem.select(Scale.SMOKE)
        asked += [_question(problem, w, regime) for w in small for regime in problem.regimes(w)]
        if not small:
            without.append(problem.release_id)
    with tempfile.TemporaryDirectory(prefix="atrex-release-") as place:
        for path, content in files.items():
            if path.rpartition("/")[2] in PUBLIC_FILES:
                target = Path(place, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        runner = Path(place, "runner.py")
        runner.write_text(_RUNNER, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-B", str(runner)],
                input=json.dumps(asked).encode(),
                capture_output=True,
                cwd=place,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return claim(_SUBJECT, _TEXT, [f"no end within {_TIMEOUT_S:g} s"])
    last = done.stdout.decode(errors="replace").rpartition("\n")[2]
    try:
        found = [str(line) for line in json.loads(last)["found"]]
    except (ValueError, KeyError, TypeError):
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return claim(_SUBJECT, _TEXT, [f"the process ended with {done.returncode}: {said}"])
    found += [f"{name!r} has no small workload to run" for name in without]
    return claim(_SUBJECT, _TEXT, found, proved=f"{len(asked)} runs of {len(problems)} problems")


def _question(problem: Problem, workload: Workload, regime: str) -> dict[str, Any]:
    return {
        "problem": problem.release_id,
        "workload": workload.id,
        "axes": dict(workload.axes),
        "init": dict(workload.init),
        "regime": regime,
        "inputs": _stated(problem.inputs(workload)),
        "container": problem.container,
        "outputs": _stated(problem.outputs(workload)),
    }


def _stated(specs: Sequence[TensorSpec]) -> list[tuple[str, str, list[int]]]:
    return [(spec.name, str(spec.dtype), list(spec.shape)) for spec in specs]


_RUNNER = """\
import importlib.util, json, os, pathlib, sys, sysconfig
import torch

torch.set_num_threads(1)
SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
         "float8_e4m3fn": "fp8_e4m3fn", "float8_e4m3fnuz": "fp8_e4m3fnuz"}
HERE = os.getcwd()
SITES = tuple({sysconfig.get_path(kind) for kind in ("purelib", "platlib")})
LIBRARIES = tuple(os.path.join(site, name) for site in SITES for name in (
    "torch", "numpy", "sympy", "mpmath", "networkx", "typing_extensions", "packaging"))
OWN = (HERE, sysconfig.get_path("stdlib"), "/proc/self", "/proc/cpuinfo", "/proc/meminfo",
       "/sys/devices", "/dev/null", os.path.dirname(torch.__file__))
STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "socket.", "ctypes.")
found, state = [], {"name": ""}


def watch(event, arguments):
    if not state["name"]:
        return
    if event in ("open", "os.listdir", "os.scandir"):
        place = arguments[0]
        if isinstance(place, int) or place is None:
            return
        place = os.path.realpath(os.fsdecode(place))
        if not place.startswith(LIBRARIES if place.startswith(SITES) else OWN):
            found.append(f"{state['name']} opens {place}")
    elif event.startswith(STARTS):
        found.append(f"{state['name']}: {event}")


def load(folder, name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stated(named):
    short = {n: str(t.dtype).removeprefix("torch.") for n, t in named.items()}
    return [[n, SHORT.get(short[n], short[n]), list(t.shape)] for n, t in named.items()]


def named(returned, container, names):
    if container == "tensor":
        return {names[0]: returned}
    return dict(zip(names, returned)) if container == "tuple" else {n: returned[n] for n in names}


def run(asked):
    folder = os.path.join(HERE, asked["problem"])
    inputs = load(folder, "inputs").make_inputs(
        **asked["axes"], regime=asked["regime"], seed=1, device="cpu")
    model = load(folder, "reference").Model(**asked["init"])
    if stated(inputs) != asked["inputs"]:
        return f"draws {stated(inputs)}, not {asked['inputs']}"
    with torch.no_grad():
        returned = model(**inputs)
    outputs = named(returned, asked["container"], [name for name, _, _ in asked["outputs"]])
    if stated(outputs) != asked["outputs"]:
        return f"returns {stated(outputs)}, not {asked['outputs']}"
    return None


questions = json.load(sys.stdin)
sys.addaudithook(watch)
for asked in questions:
    state["name"] = f"{asked['problem']}/{asked['workload']} ({asked['regime']})"
    try:
        wrong = run(asked)
    except BaseException as error:
        wrong = f"{type(error).__name__}: {error}"
    name, state["name"] = state["name"], ""
    if wrong:
        found.append(f"{name}: {wrong}")
sys.stdout.write("\\n" + json.dumps({"found": found}))
"""
