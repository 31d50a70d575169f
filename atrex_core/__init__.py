"""The public API of atrex-eval: what plugin authors and callers import. No torch here.

A name is loaded when it is first asked for: a plugin that needs only the model must not pay for
the orchestrator, nor `atrex-eval --help` for the model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrex_core._project import PROJECT, hookimpl
    from atrex_core.config import Settings
    from atrex_core.errors import (
        AtrexError,
        ExitCode,
        HarnessError,
        NothingToDo,
        PluginError,
        Unavailable,
        UnknownName,
        UsageError,
    )
    from atrex_core.interfaces import (
        Accelerator,
        Backend,
        BackendRuntime,
        Buffer,
        BufferHandle,
        CalibratedProfile,
        DeviceContext,
        DeviceSamples,
        Implementation,
        Inapplicable,
        KernelReport,
        Launch,
        Problem,
        QueueGate,
        RuntimeRequest,
        Stage,
        TargetFailure,
        Tensor,
        Tensors,
    )
    from atrex_core.journal import Journal
    from atrex_core.model import (
        Adoption,
        Allclose,
        ArithmeticPath,
        Basis,
        Bound,
        Candidate,
        Ceiling,
        CodeSteps,
        Conditions,
        Confidence,
        Container,
        Cost,
        Device,
        DeviceCost,
        DeviceMatch,
        DType,
        Evaluation,
        Figure,
        Gap,
        Gate,
        GateResult,
        HardwareProfile,
        Isolation,
        Limiter,
        Origin,
        Outcome,
        Pack,
        Phase,
        Pipe,
        Protocol,
        Rule,
        RunCost,
        Scale,
        Share,
        TensorSpec,
        ThrottleReason,
        Timing,
        TimingConditions,
        Tolerance,
        Verdict,
        Weight,
        Workload,
    )
    from atrex_core.plugins import PluginHost
    from atrex_core.precision import half_width_us, is_settled
    from atrex_core.session import Session
    from atrex_core.tensors import RowBlocks, dense, dtype_of, torch_dtype

_HOMES = (
    *("_project", "errors", "model", "interfaces", "precision", "tensors"),
    *("config", "journal", "plugins", "session"),
)
"""Where the names are looked for: what loads fast comes first."""


def __getattr__(name: str) -> Any:
    for part in _HOMES if name in __all__ else ():
        home = import_module(f"{__name__}.{part}")
        if hasattr(home, name):
            globals()[name] = found = getattr(home, name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PROJECT",
    "Accelerator",
    "Adoption",
    "Allclose",
    "ArithmeticPath",
    "AtrexError",
    "Backend",
    "BackendRuntime",
    "Basis",
    "Bound",
    "Buffer",
    "BufferHandle",
    "CalibratedProfile",
    "Candidate",
    "Ceiling",
    "CodeSteps",
    "Conditions",
    "Confidence",
    "Container",
    "Cost",
    "DType",
    "Device",
    "DeviceContext",
    "DeviceCost",
    "DeviceMatch",
    "DeviceSamples",
    "Evaluation",
    "ExitCode",
    "Figure",
    "Gap",
    "Gate",
    "GateResult",
    "HardwareProfile",
    "HarnessError",
    "Implementation",
    "Inapplicable",
    "Isolation",
    "Journal",
    "KernelReport",
    "Launch",
    "Limiter",
    "NothingToDo",
    "Origin",
    "Outcome",
    "Pack",
    "Phase",
    "Pipe",
    "PluginError",
    "PluginHost",
    "Problem",
    "Protocol",
    "QueueGate",
    "RowBlocks",
    "Rule",
    "RunCost",
    "RuntimeRequest",
    "Scale",
    "Session",
    "Settings",
    "Share",
    "Stage",
    "TargetFailure",
    "Tensor",
    "TensorSpec",
    "Tensors",
    "ThrottleReason",
    "Timing",
    "TimingConditions",
    "Tolerance",
    "Unavailable",
    "UnknownName",
    "UsageError",
    "Verdict",
    "Weight",
    "Workload",
    "dense",
    "dtype_of",
    "half_width_us",
    "hookimpl",
    "is_settled",
    "torch_dtype",
]
