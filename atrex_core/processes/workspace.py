"""The tensors of one workload inside a worker: views of memory that the referee owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from attrs import define, evolve, field

from atrex_core.interfaces import Buffer, DeviceContext, Tensor
from atrex_core.model import Container, DType, TensorSpec
from atrex_core.processes.candidate import ContractBreach
from atrex_core.processes.messages import OpenWorkload
from atrex_core.tensors import dtype_of


@define(eq=False)
class Workspace:
    """Input sets to call with, and the places that outputs are copied to."""

    context: DeviceContext
    container: Container
    buffers: Sequence[Buffer]
    input_sets: Sequence[Mapping[str, Tensor]]
    output_sets: Sequence[Sequence[tuple[TensorSpec, Tensor]]]
    in_place: Mapping[str, str] = field(factory=dict)
    model: Any = None
    timed_calls: int = 0
    _spans: Sequence[range] = field(default=(), alias="spans")
    """Addresses of the referee's memory."""
    _retained: list[Any] = field(factory=list)

    @classmethod
    def open(cls, context: DeviceContext, request: OpenWorkload, fds: Sequence[int]) -> Self:
        """Map the referee's buffers; `fds` belong to the handles that say so, in order."""
        remaining = list(fds)
        buffers: list[Buffer] = []
        for handle in request.buffers:
            own = evolve(handle, fd=remaining.pop(0)) if handle.fd is not None else handle
            buffers.append(context.open_buffer(own))

        def view(placement: Any) -> Tensor:
            spec = placement.spec
            return buffers[placement.buffer].tensor(spec.dtype, spec.shape, placement.offset_bytes)

        starts = [buffer.tensor(DType.UINT8, (1,)).data_ptr() for buffer in buffers]
        return cls(
            context=context,
            container=request.container,
            in_place=request.in_place,
            buffers=buffers,
            spans=[
                range(start, start + buffer.nbytes)
                for start, buffer in zip(starts, buffers, strict=True)
            ],
            input_sets=[{p.spec.name: view(p) for p in placed} for placed in request.input_sets],
            output_sets=[[(p.spec, view(p)) for p in placed] for placed in request.output_sets],
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of forward's keyword arguments."""
        return tuple(self.input_sets[0])

    def forward(self, index: int) -> Any:
        """Call the model on input set `index`, without autograd."""
        import torch

        with torch.no_grad():
            return self.model(**self.input_sets[index])

    @property
    def outputs(self) -> Sequence[tuple[TensorSpec, Tensor]]:
        """Where the outputs of a single call go."""
        return self.output_sets[0]

    def timed_call(self, index: int | None = None) -> None:
        """Make one timed call on the next input set and keep what it returned.

        `index` is accepted so that this can be a sampler's callback; the rotation is our own,
        so that no two consecutive calls ever see the same set.
        """
        self._keep(self.timed_calls % len(self.input_sets))
        self.timed_calls += 1

    def held_call(self, index: int) -> None:
        """Call the model on input set `index`; leave its outputs where the referee looks.

        An output that is an input, updated, is left in the input.
        """
        inputs = self.input_sets[index]
        result = self._keep(index)
        self.timed_calls += 1
        for (spec, place), tensor in zip(
            self.output_sets[index], self._unpack(result), strict=True
        ):
            updated = inputs.get(self.in_place.get(spec.name, ""))
            if updated is None:
                place.copy_(tensor)
            elif not _is_same(tensor, updated):
                updated.copy_(tensor)

    def check_held(self, calls: int) -> None:
        """Check what the latest `calls` held calls returned, now that nothing waits for it.

        Raises:
            ContractBreach: as `write` does, or two calls left their outputs in one place.
        """
        owners: dict[int, int] = {}
        for index, result in enumerate(self._retained[:calls]):
            for (spec, _), tensor in zip(self.outputs, self._unpack(result), strict=True):
                self._check(spec, tensor)
                if tensor.numel() and owners.setdefault(tensor.data_ptr(), index) != index:
                    raise ContractBreach(f"output {spec.name!r} of two calls is the same memory")

    def _keep(self, index: int) -> Any:
        """Call the model on input set `index`, and keep what it returned until the next time."""
        result = self.forward(index)
        while index >= len(self._retained):
            self._retained.append(None)
        self._retained[index] = result
        return result

    def publish(self, index: int) -> None:
        """Copy the outputs of the latest timed call on input set `index` to the referee."""
        if index >= len(self._retained) or self._retained[index] is None:
            raise ContractBreach("a timed call left no outputs")
        self.write(self._retained[index])

    def write(self, returned: Any) -> None:
        """Check what forward returned, and copy it into the referee's buffer.

        Raises:
            ContractBreach: container, type, dtype, shape, device, layout or aliasing is wrong.
        """
        for (spec, destination), tensor in zip(self.outputs, self._unpack(returned), strict=True):
            self._check(spec, tensor)
            destination.copy_(tensor)
        self.context.synchronize()

    def close(self) -> None:
        """Drop every view, then the mappings."""
        self.model = None
        self._retained.clear()
        self.input_sets = ()
        self.output_sets = ()
        for buffer in self.buffers:
            buffer.close()

    @contextmanager
    def poisoned_memory(self) -> Iterator[None]:
        """Fill fresh tensors with NaN, so that an unwritten output is visibly wrong."""
        import torch

        # `use_deterministic_algorithms` does the same, and imports a compiler: seconds.
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("warn")
        switch: Any = torch.utils.deterministic  # a module of a class of its own
        switch.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)

    def _unpack(self, returned: Any) -> list[Any]:
        names = [spec.name for spec, _ in self.outputs]
        match self.container:
            case Container.TENSOR:
                return [returned]
            case Container.TUPLE:
                if not isinstance(returned, tuple | list) or len(returned) != len(names):
                    raise ContractBreach(
                        f"forward returned {_describe(returned)}, not a tuple of {len(names)}"
                    )
                return list(returned)
            case Container.DICT:
                if not isinstance(returned, dict) or set(returned) != set(names):
                    raise ContractBreach(
                        f"forward returned {_describe(returned)}, not a dict with keys {names}"
                    )
                return [returned[name] for name in names]

    def _check(self, spec: TensorSpec, tensor: Any) -> None:
        import torch

        name = f"output {spec.name!r}"
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise ContractBreach(f"{name} is {_describe(tensor)}, not a plain torch.Tensor")
        if tensor.layout is not torch.strided:
            raise ContractBreach(f"{name} has layout {tensor.layout}, not torch.strided")
        if dtype_of(tensor) is not spec.dtype:
            wanted = str(spec.dtype)
            raise ContractBreach(f"{name} has dtype {_dtype_text(tensor)}, not {wanted}")
        if tuple(tensor.shape) != spec.shape:
            raise ContractBreach(f"{name} has shape {tuple(tensor.shape)}, not {spec.shape}")
        if tensor.device != torch.device(self.context.torch_device):
            raise ContractBreach(
                f"{name} is on {tensor.device}, not on {self.context.torch_device}"
            )
        if not tensor.is_contiguous():
            raise ContractBreach(f"{name} has strides {tensor.stride()}: it is not contiguous")
        if not any(_overlap(tensor, span) for span in self._spans):
            return
        updated = self.in_place.get(spec.name)
        if updated is None:
            raise ContractBreach(f"{name} is a view of an input, not a new tensor")
        if not any(_is_same(tensor, placed[updated]) for placed in self.input_sets):
            raise ContractBreach(f"{name} is neither a new tensor nor the input {updated!r} itself")


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two contiguous tensors are the same elements in the same places."""
    return bool(one.data_ptr() == other.data_ptr() and one.shape == other.shape)


def _overlap(tensor: Any, span: range) -> bool:
    start = tensor.data_ptr()
    return bool(tensor.numel() and start < span.stop and span.start < start + tensor.nbytes)


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with keys {sorted(map(str, value))[:8]}"
    return "None" if value is None else f"a {kind}"


def _dtype_text(tensor: Any) -> str:
    return str(dtype_of(tensor) or tensor.dtype)
