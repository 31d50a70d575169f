"""Memory of one workload that the referee owns and a worker may write into.

Inputs are drawn in private memory and copied here, so that a change of an input is seen.
Expected outputs never come near this memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from attrs import define, evolve, field

from atrex_core.interfaces import Buffer, BufferHandle, DeviceContext, Tensor, Tensors
from atrex_core.model import DType, TensorSpec
from atrex_core.processes.messages import PlacedSets, Placement
from atrex_core.referee.seals import raw

_ALIGNMENT_BYTES = 256
POISON_BYTE = 0xFF
"""Every output byte before a call: NaN in each floating type, -1 in each integer type."""


@define(eq=False)
class Arena:
    """Two raw buffers: `sets` copies of the inputs, and some of the outputs."""

    context: DeviceContext
    buffers: tuple[Buffer, ...]
    input_sets: PlacedSets
    output_sets: PlacedSets
    _views: dict[tuple[int, int, str], Tensor] = field(factory=dict, init=False)

    @classmethod
    def allocate(
        cls,
        context: DeviceContext,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        sets: int,
        output_sets: int = 1,
    ) -> Self:
        """Reserve memory for `sets` input sets and so many of outputs.

        Raises:
            MemoryError: the device cannot hold it.
        """
        placed = _placed(inputs, sets, buffer=0)
        out = _placed(outputs, output_sets, buffer=1)
        first = context.allocate(max(sets * placed.stride_bytes, _ALIGNMENT_BYTES))
        try:
            second = context.allocate(max(output_sets * out.stride_bytes, _ALIGNMENT_BYTES))
        except MemoryError:
            first.close()
            raise
        return cls(context, (first, second), placed, out)

    def export(self) -> tuple[tuple[BufferHandle, ...], list[int]]:
        """Return the buffers' handles, and the descriptors that travel beside them."""
        handles, fds = [], []
        for buffer in self.buffers:
            handle = buffer.handle()
            if handle.fd is not None:
                fds.append(handle.fd)
                handle = evolve(handle, fd=0)  # the number means nothing to the receiver
            handles.append(handle)
        return tuple(handles), fds

    def write_inputs(self, index: int, tensors: Tensors) -> None:
        """Copy private inputs into set `index`."""
        for placement in self.input_sets[index]:
            self._view(placement).copy_(tensors[placement.spec.name])

    def write_all_inputs(self, pool: Sequence[Tensors]) -> None:
        """Copy private inputs into every set: set `i` gets those of number `i` modulo how many."""
        sets = len(self.input_sets)
        filled = min(len(pool), sets)
        for index in range(filled):
            self.write_inputs(index, pool[index])
        stride = self.input_sets.stride_bytes
        whole = self.buffers[0].tensor(DType.UINT8, (sets * stride,)).view(sets, stride)
        while filled < sets:
            more = min(filled, sets - filled)
            whole[filled : filled + more].copy_(whole[:more])
            filled += more

    def changed_inputs(
        self, index: int, tensors: Tensors, *, updated: Collection[str] = ()
    ) -> list[str]:
        """Name the inputs of set `index` whose bytes are no longer what was written.

        Those in `updated` may have changed.
        """
        import torch

        changed = []
        for placement in self.input_sets[index]:
            if placement.spec.name in updated:
                continue
            if not torch.equal(raw(self._view(placement)), raw(tensors[placement.spec.name])):
                changed.append(placement.spec.name)
        return changed

    def poison_inputs(self, index: int, *, updated: Collection[str] = ()) -> None:
        """Overwrite set `index`: whatever is computed from now on is computed from rubbish.

        Those in `updated` may be outputs by now, and stay.
        """
        for placement in self.input_sets[index]:
            if placement.spec.name not in updated:
                _bytes(self._view(placement)).fill_(POISON_BYTE)

    def poison_outputs(self) -> None:
        """Fill every output byte with `POISON_BYTE`."""
        self._poison(self.buffers[1])

    def poison(self) -> None:
        """Fill every byte of inputs and outputs with `POISON_BYTE`."""
        for buffer in self.buffers:
            self._poison(buffer)

    def copied_outputs(self, index: int, in_place: Mapping[str, str]) -> Mapping[str, Tensor]:
        """Return views of what a call of a held queue copies to output set `index`."""
        return {
            p.spec.name: self._view(p)
            for p in self.output_sets[index]
            if p.spec.name not in in_place and p.spec.nbytes
        }

    def snapshot_outputs(
        self, index: int = 0, *, in_place: Mapping[str, str] | None = None
    ) -> Mapping[str, Tensor]:
        """Copy output set `index` into private memory, before anything is compared.

        Args:
            index: 0 for a single call, else a call of a held queue.
            in_place: Outputs that are to be found in an input of the same number.
        """
        found = {}
        inputs = {p.spec.name: p for p in self.input_sets[index]} if in_place else {}
        for placement in self.output_sets[index]:
            name = placement.spec.name
            updated = (in_place or {}).get(name)
            found[name] = self._view(inputs[updated] if updated else placement).clone()
        return found

    def close(self) -> None:
        """Release the buffers."""
        self._views.clear()
        for buffer in self.buffers:
            with suppress(OSError):
                buffer.close()

    @staticmethod
    def _poison(buffer: Buffer) -> None:
        buffer.tensor(DType.UINT8, (buffer.nbytes,)).fill_(POISON_BYTE)

    def _view(self, placement: Placement) -> Tensor:
        spec = placement.spec
        key = (placement.buffer, placement.offset_bytes, spec.name)
        found = self._views.get(key)
        if found is None:
            buffer = self.buffers[placement.buffer]
            found = buffer.tensor(spec.dtype, spec.shape, placement.offset_bytes)
            self._views[key] = found
        return found


def _placed(specs: Sequence[TensorSpec], count: int, *, buffer: int) -> PlacedSets:
    first, offset = [], 0
    for spec in specs:
        first.append(Placement(spec=spec, buffer=buffer, offset_bytes=offset))
        offset += -(-spec.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return PlacedSets(first=tuple(first), count=count, stride_bytes=offset)


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8)
