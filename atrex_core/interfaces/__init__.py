"""What a plugin author implements. Nothing here imports torch, and neither should your module."""

from atrex_core.interfaces.accelerator import (
    Accelerator,
    Buffer,
    BufferHandle,
    DeviceContext,
    DeviceSamples,
    QueueGate,
    Tensor,
)
from atrex_core.interfaces.backend import (
    Backend,
    BackendRuntime,
    KernelReport,
    Launch,
    RuntimeRequest,
    Stage,
    TargetFailure,
)
from atrex_core.interfaces.problem import Implementation, Inapplicable, Problem, Tensors
from atrex_core.interfaces.profile import CalibratedProfile

__all__ = [
    "Accelerator",
    "Backend",
    "BackendRuntime",
    "Buffer",
    "BufferHandle",
    "CalibratedProfile",
    "DeviceContext",
    "DeviceSamples",
    "Implementation",
    "Inapplicable",
    "KernelReport",
    "Launch",
    "Problem",
    "QueueGate",
    "RuntimeRequest",
    "Stage",
    "TargetFailure",
    "Tensor",
    "Tensors",
]
