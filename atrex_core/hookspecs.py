"""The extension points of atrex-eval: five hooks that provide, two that observe.

*Provide* hooks run once, when the plugins are loaded. *Observe* hooks are told what happened and
return nothing. No hook decides anything: a verdict that the installed plugins could change would
not be comparable between machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

from atrex_core._project import PROJECT

if TYPE_CHECKING:
    import click

    from atrex_core.interfaces import Accelerator, Backend, CalibratedProfile, Problem
    from atrex_core.interfaces.problem import BrokenProblem
    from atrex_core.model import Evaluation, Gate, GateResult, HardwareProfile

hookspec = pluggy.HookspecMarker(PROJECT)


# -- Provide -------------------------------------------------------------------------------------


@hookspec
def atrex_accelerators() -> Iterable[Accelerator]:
    """Yield the kinds of device this plugin can drive.

    Called once in every process that loads plugins, on machines without the hardware too: yield
    cheap objects, and import the vendor's libraries inside their methods.

    Example:
        from pathlib import Path

        from atrex_core import Accelerator, Device, hookimpl

        class AcmeAccelerator(Accelerator):
            name = "acme"

            def devices(self):
                return [
                    Device(
                        id=f"acme:{index}",
                        accelerator="acme",
                        vendor="acme",
                        name="Acme Anvil 2",
                        arch="anvil2",
                        index=index,
                    )
                    for index, _ in enumerate(sorted(Path("/dev").glob("acme*")))
                ]

            def open(self, device):
                from acme_torch.atrex import AcmeContext  # needs the card and its driver

                return AcmeContext(device.index)

        @hookimpl
        def atrex_accelerators():
            yield AcmeAccelerator()
    """
    return ()


@hookspec
def atrex_backends() -> Iterable[Backend]:
    """Yield the DSLs this plugin can load candidates of.

    Called once in every process that loads plugins, whether or not the DSL is installed: its
    absence is what `check_available` reports.

    Example:
        from importlib.util import find_spec

        from atrex_core import Backend, Unavailable, hookimpl

        class AcmeBackend(Backend):
            name = "acmelang"
            summary = "kernels in Acmelang"
            accelerators = ("acme",)

            def check_available(self):
                if find_spec("acmelang") is None:
                    raise Unavailable("acmelang is not installed", hint="pip install acmelang")

            def preload(self):
                import acmelang
                import torch

            def start(self, request):
                from acmelang.atrex import Runtime

                return Runtime(request)

        @hookimpl
        def atrex_backends():
            yield AcmeBackend()
    """
    return ()


@hookspec
def atrex_hardware_profiles() -> Iterable[HardwareProfile | CalibratedProfile]:
    """Yield the peaks of devices, one profile for each model.

    Called once in every process that loads plugins. At most one of all installed profiles may
    describe a device; two are an error that names both.

    Example:
        from atrex_core import (
            ArithmeticPath,
            Confidence,
            DeviceMatch,
            Figure,
            HardwareProfile,
            hookimpl,
        )

        DATASHEET = "Acme Anvil 2 datasheet, revision C, table 3: dense, boost clock"

        @hookimpl
        def atrex_hardware_profiles():
            yield HardwareProfile(
                name="acme-anvil-2",
                match=DeviceMatch(vendor="acme", names=("Anvil 2", "Anvil 2 OEM")),
                peak_flops={
                    ArithmeticPath.BF16_MATRIX: Figure(
                        value=480e12, source=DATASHEET, confidence=Confidence.HIGH
                    ),
                    ArithmeticPath.FP32_VECTOR: Figure(value=60e12, source=DATASHEET),
                },
                bandwidth_bytes_per_s=Figure(value=2.4e12, source=DATASHEET),
            )
    """
    return ()


@hookspec
def atrex_problems() -> Iterable[Problem | BrokenProblem]:
    """Yield problems that candidates can be written for.

    Called once in every process that loads plugins, workers excepted. Names are global, and are
    the file names of candidates: prefix yours. Import torch inside the methods only. A problem
    that cannot be loaded may be yielded as a `BrokenProblem` (`atrex_core.packs`): it alone is
    set aside. `atrex_core.packs.operators` does so.

    Example:
        from pathlib import Path

        from atrex_core import (
            ArithmeticPath,
            Cost,
            DType,
            Pack,
            Phase,
            Problem,
            Scale,
            TensorSpec,
            Tolerance,
            Workload,
            hookimpl,
        )

        class VectorAdd(Problem):
            name = "acme_vector_add"
            summary = "x + y in fp32"
            pack = Pack(name="acme", version="1.0", digest="1")
            importance = 1.0
            phases = (Phase.BOTH,)
            workloads = (
                Workload(id="large", axes={"n": 1 << 24}),
                Workload(id="small", axes={"n": 1000}, scale=Scale.SMOKE),
            )
            public_files = ()  # files a candidate's author may see

            def inputs(self, workload):
                return [self._spec("x", workload), self._spec("y", workload)]

            def outputs(self, workload):
                return [self._spec("out", workload)]

            def regimes(self, workload):
                return ["nominal"]

            def draw(self, workload, *, regime, seed, device):
                import torch

                generator = torch.Generator(device).manual_seed(seed)
                return {
                    spec.name: torch.randn(spec.shape, generator=generator, device=device)
                    for spec in self.inputs(workload)
                }

            def expected(self, workload, inputs):
                return {"out": inputs["x"].double() + inputs["y"].double()}

            def honest(self, workload, inputs):
                return {"out": inputs["x"] + inputs["y"]}

            def tolerance(self, output):
                return Tolerance(dtype=output.dtype)

            def cost(self, workload, inputs=None):
                n = workload.axes["n"]
                return Cost(
                    flops={ArithmeticPath.FP32_VECTOR: n}, read_bytes=8 * n, write_bytes=4 * n
                )

            def _spec(self, name, workload):
                return TensorSpec(name=name, dtype=DType.FP32, shape=(workload.axes["n"],))

        @hookimpl
        def atrex_problems():
            yield VectorAdd()
    """
    return ()


@hookspec
def atrex_commands(cli: click.Group) -> None:
    """Add subcommands to the `atrex-eval` command line.

    Called once in every process that loads plugins, with a group that holds no command yet. A
    name that atrex-eval or another plugin uses already is an error that names both.

    Example:
        import click

        from atrex_core import hookimpl

        @hookimpl
        def atrex_commands(cli):
            @cli.command("acme-firmware")
            @click.option("--index", default=0, help="Which card.")
            def firmware(index):
                "Print the firmware version of an Acme card."
                click.echo(f"card {index}: 2.7.1")
    """


# -- Observe -------------------------------------------------------------------------------------


@hookspec
def atrex_gate_finished(evaluation_id: str, gate: Gate, result: GateResult) -> None:
    """Learn that a gate has spoken about one workload.

    Called in the orchestrator as soon as the result is known, before it is in the journal; a
    progress display is an observer. `result` is a copy.

    Example:
        import logging

        from atrex_core import Outcome, hookimpl

        log = logging.getLogger("acme")

        @hookimpl
        def atrex_gate_finished(evaluation_id, gate, result):
            if result.outcome is Outcome.FAILED:
                log.warning("%s fails %s: %s", evaluation_id, gate, result.reason)
    """


@hookspec
def atrex_evaluation_finished(evaluation: Evaluation) -> None:
    """Learn that an evaluation is complete.

    Called in the orchestrator once for each evaluation, after it is safely in the journal.
    `evaluation` is a copy.

    Example:
        from pathlib import Path

        from atrex_core import hookimpl

        @hookimpl
        def atrex_evaluation_finished(evaluation):
            row = f"{evaluation.problem},{evaluation.workload},{evaluation.outcome}"
            with Path("acme.csv").open("a", encoding="utf-8") as file:
                print(row, file=file)
    """
