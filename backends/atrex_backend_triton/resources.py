"""What a compiled kernel takes of the hardware, read from its binary or its assembly.

Imports triton when imported.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from attrs import frozen
from triton import knobs

from atrex_core import KernelReport

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
_MATRIX = {
    "ptx": re.compile(r"\b(wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b"),
    "amdgcn": re.compile(r"\b(v_s?mfmac?_\w+|v_s?wmmac?_\w+)"),
}
_TIMEOUT_S = 30.0


@frozen(kw_only=True)
class Resources:
    """The compiler's static account of one kernel."""

    registers: int | None
    spills: int | None
    """Bytes of local memory a thread (NVIDIA), or spilled vector registers (AMD)."""
    shared_bytes: int
    matrix_instructions: tuple[str, ...]
    binary_bytes: int

    def report(
        self, kernel: str, target: str, *, seconds: float, cached: bool, binary: str
    ) -> KernelReport:
        """Return this as the report on `kernel` for `target`."""
        return KernelReport(
            kernel=kernel,
            target=target,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            spills=self.spills,
            matrix_instructions=self.matrix_instructions,
            binary_bytes=self.binary_bytes,
            compile_seconds=seconds,
            cached=cached,
            binary=binary,
        )


def inspect_kernel(kernel: Any, scratch: Path) -> Resources:
    """Read the resources of a kernel that `triton.compile` returned."""
    assembly = "ptx" if "ptx" in kernel.asm else "amdgcn"
    text = kernel.asm.get(assembly, "")
    registers, spills = _nvidia(kernel.kernel, scratch) if assembly == "ptx" else _amd(text)
    return Resources(
        registers=registers,
        spills=spills,
        shared_bytes=kernel.metadata.shared,
        matrix_instructions=tuple(sorted(set(_MATRIX[assembly].findall(text)))),
        binary_bytes=len(kernel.kernel),
    )


def _nvidia(cubin: bytes, scratch: Path) -> tuple[int | None, int | None]:
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None, None
    match = _USAGE.search(done.stdout)
    if match is None:
        return None, None
    registers, stack_bytes, local_bytes = (int(number) for number in match.groups())
    return registers, stack_bytes + local_bytes


def _amd(assembly: str) -> tuple[int | None, int | None]:
    vectors = re.search(r"\.vgpr_count:\s+(\d+)", assembly)
    spills = re.search(r"\.vgpr_spill_count:\s+(\d+)", assembly)
    return vectors and int(vectors[1]), spills and int(spills[1])
