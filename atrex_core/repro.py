"""Write a script that regenerates the inputs of an evaluation and shows its failure.

The script carries the candidate and the problem's public half inside, so it needs only torch
and the DSL: something to attach to a bug report, or to step through in a debugger. It
compares with the public reference, not with the private rules, and shows errors, no verdict.
"""

from __future__ import annotations

import base64
import json
import textwrap

from atrex_core.errors import UsageError
from atrex_core.interfaces import Backend, Problem
from atrex_core.model import Evaluation, Workload

_INPUTS, _REFERENCE = "inputs.py", "reference.py"
_HEAD = '#!/usr/bin/env python3\n"""Show one evaluation again.'


def script(evaluation: Evaluation, source: bytes, problem: Problem, backend: Backend) -> str:
    """Return the text of a standalone script.

    Raises:
        UsageError: the problem's public half cannot be run alone, or the workload is gone.
    """
    files = {path.name: path.read_text(encoding="utf-8") for path in problem.public_files}
    if _INPUTS not in files or _REFERENCE not in files:
        raise UsageError(
            f"problem {problem.name!r} has no public {_INPUTS} and {_REFERENCE} to run alone",
            hint="its pack's author can add them",
        )
    workload = next((w for w in problem.workloads if w.id == evaluation.workload), None)
    if workload is None:
        raise UsageError(
            f"workload {evaluation.workload!r} is no longer part of {problem.name!r}",
            hint=f"the journal was written with pack {evaluation.pack.version}",
        )
    regime, seed = _failing_case(evaluation, problem, workload)
    reason = "nothing failed; this shows the first case"
    if failure := evaluation.first_failure:
        reason = f"{failure[0]}: {failure[1].reason}"
    return _TEMPLATE.format(
        head=_HEAD,
        title=json.dumps(f"{problem.name}/{workload.id} on {evaluation.device.name}"),
        reason=json.dumps(reason),
        candidate=_wrapped(source),
        inputs=_wrapped(files[_INPUTS].encode()),
        reference=_wrapped(files[_REFERENCE].encode()),
        axes=repr(json.dumps(dict(workload.axes))),
        init=repr(json.dumps(dict(workload.init))),
        regime=regime,
        seed=seed,
        device="cpu" if evaluation.device.virtual else evaluation.device.id,
        prelude=textwrap.indent(backend.repro_prelude(evaluation.device) or "pass", "    "),
        outputs=[spec.name for spec in problem.outputs(workload)],
    )


def is_script(content: bytes) -> bool:
    """Return whether `content` is that of a script which `script` has written."""
    return content.startswith(_HEAD.encode())


def _failing_case(evaluation: Evaluation, problem: Problem, workload: Workload) -> tuple[str, int]:
    for result in evaluation.gates.values():
        if "seed" in result.details and "regime" in result.details:
            seed = result.details["seed"]
            if type(seed) is not int:
                raise UsageError(
                    f"the recorded seed of evaluation {evaluation.id!r} is no integer: {seed!r}",
                    hint="the journal was edited, or written by something else",
                )
            return str(result.details["regime"]), seed
    seed = evaluation.seeds[0] if evaluation.seeds else 0
    return problem.regimes(workload)[0], seed


def _wrapped(content: bytes) -> str:
    encoded = base64.b64encode(content).decode()
    lines = textwrap.wrap(encoded, 92) or [""]
    return "\n".join(f'    "{line}"' for line in lines)


_TEMPLATE = '''\
{head} Standalone: needs torch and the DSL the candidate is written in.

Run it as it is; the candidate is unpacked beside it into a temporary folder.
"""

import base64
import importlib.util
import json
import pathlib
import sys
import tempfile

import torch

TITLE = {title}
REASON = {reason}
DEVICE = sys.argv[1] if len(sys.argv) > 1 else {device!r}
REGIME, SEED = {regime!r}, {seed!r}
AXES, INIT = json.loads({axes}), json.loads({init})
OUTPUTS = {outputs!r}

CANDIDATE = (
{candidate}
)
INPUTS = (
{inputs}
)
REFERENCE = (
{reference}
)


def prepare(folder):
    """Make the DSL run on this device."""
{prelude}


def load(folder, name, encoded):
    path = pathlib.Path(folder) / f"{{name}}.py"
    path.write_bytes(base64.b64decode(encoded))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def by_name(returned):
    if isinstance(returned, dict):
        return returned
    if isinstance(returned, (tuple, list)):
        return dict(zip(OUTPUTS, returned))
    return {{OUTPUTS[0]: returned}}


def show(name, got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        print(f"{{name}}: got {{got.dtype}} {{tuple(got.shape)}}, "
              f"want {{want.dtype}} {{tuple(want.shape)}}")
        return
    error = (got.double() - want.double()).abs()
    error = torch.where(torch.isnan(error), torch.inf, error).flatten()
    error[(got == want).flatten()] = 0
    scale = want.double().square().mean().sqrt().item() if want.numel() else 0.0
    print(f"{{name}}: {{int((error > 0).sum())}} of {{error.numel()}} elements differ from the "
          f"reference; rms of the reference {{scale:.6g}}")
    for flat in error.argsort(descending=True)[:5].tolist():
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), want.shape))
        print(f"    {{index}}: got {{got[index].item():.8g}}, want {{want[index].item():.8g}}")


def main():
    print(TITLE)
    print("recorded:", REASON)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        inputs = load(folder, "inputs", INPUTS).make_inputs(
            **AXES, regime=REGIME, seed=SEED, device=DEVICE
        )
        reference = load(folder, "reference", REFERENCE).Model(**INIT)
        with torch.no_grad():
            want = by_name(reference(**{{k: v.clone() for k, v in inputs.items()}}))
            model = load(folder, "candidate", CANDIDATE).Model(**INIT)
            got = by_name(model(**{{k: v.clone() for k, v in inputs.items()}}))
        for name in OUTPUTS:
            show(name, got[name].cpu(), want[name].cpu())


if __name__ == "__main__":
    main()
'''
