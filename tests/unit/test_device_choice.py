"""Which devices a selection stands for, and which may not work together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from atrex_core import (
    Accelerator,
    AtrexError,
    Backend,
    Device,
    DeviceContext,
    PluginError,
    PluginHost,
    Unavailable,
    UnknownName,
    UsageError,
    hookimpl,
)
from atrex_core.device_choice import choose_devices, find_device


def _device(id_: str, **how: Any) -> Device:
    kind, _, index = id_.partition(":")
    fields = {"vendor": "acme", "name": "Anvil", "arch": "a1", "compute_units": 8, **how}
    return Device(id=id_, accelerator=kind, index=int(index or 0), **fields)


class _Machine(Accelerator):
    def open(self, device: Device) -> DeviceContext:
        raise NotImplementedError


class Anvil(_Machine):
    name: ClassVar[str] = "anvil"

    def devices(self) -> Sequence[Device]:
        part = _device("anvil:3", compute_units=4)
        return [*(_device(f"anvil:{index}") for index in range(3)), part]


class Host(_Machine):
    name: ClassVar[str] = "host"

    def devices(self) -> Sequence[Device]:
        return [_device("host", name="CPU")]


class Broken(_Machine):
    name: ClassVar[str] = "broken"

    def devices(self) -> Sequence[Device]:
        raise OSError("the driver is gone")


class _Language(Backend):
    def check_available(self) -> None:
        return

    def preload(self) -> None:
        return

    def start(self, request: Any) -> Any:
        raise NotImplementedError


class Hammer(_Language):
    name: ClassVar[str] = "hammer"
    accelerators: ClassVar[tuple[str, ...]] = ("anvil", "uninstalled")


class Tongs(_Language):
    name: ClassVar[str] = "tongs"
    accelerators: ClassVar[tuple[str, ...]] = ("broken", "host")


class Plugin:
    @hookimpl
    def atrex_accelerators(self) -> Sequence[Accelerator]:
        return [Anvil(), Host(), Broken()]

    @hookimpl
    def atrex_backends(self) -> Sequence[Backend]:
        return [Hammer(), Tongs()]


@pytest.fixture
def host() -> PluginHost:
    return PluginHost.of(Plugin())


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (None, ["anvil:0"]),
        ("anvil", ["anvil:0"]),
        ("anvil:2,anvil:0", ["anvil:2", "anvil:0"]),
        ("anvil:0, anvil ,anvil:1,anvil:0", ["anvil:0", "anvil:1"]),
        ("anvil:[0-2]", ["anvil:0", "anvil:1", "anvil:2"]),
        ("anvil:1,*:[!3]", ["anvil:1", "anvil:0", "anvil:2"]),
        ("*3", ["anvil:3"]),
    ],
)
def test_a_selection_stands_for_each_device_once_in_the_order_named(
    host: PluginHost, selection: str | None, ids: list[str]
) -> None:
    accelerator, devices = choose_devices(host, host.backends["hammer"], selection)

    assert accelerator.name == "anvil"
    assert [device.id for device in devices] == ids


def test_a_glob_selects_nothing_that_the_backend_does_not_run_on(host: PluginHost) -> None:
    _, devices = choose_devices(host, host.backends["tongs"], "*")

    assert [device.id for device in devices] == ["host"]


@pytest.mark.parametrize(
    ("backend", "selection", "kind", "message"),
    [
        (
            "hammer",
            "anvil:*",
            UsageError,
            "devices 'anvil:0' and 'anvil:3' are not alike: compute units 8 against 4",
        ),
        (
            "hammer",
            "host*",
            Unavailable,
            "no device that backend 'hammer' runs on matches 'host*' here: there is only anvil:0, ",
        ),
        ("hammer", "anvil:0,host", Unavailable, "backend 'hammer' does not run on 'host'"),
        ("hammer", "anvil:0,nowhere", PluginError, "accelerator 'broken' of plugin 'Plugin'"),
        ("tongs", "broken:*", PluginError, "accelerator 'broken' of plugin 'Plugin'"),
    ],
)
def test_what_cannot_work_together_is_refused(
    host: PluginHost, backend: str, selection: str, kind: type[AtrexError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        choose_devices(host, host.backends[backend], selection)

    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("selection", ["anvil:0,anvil:1", "anvil:*"])
def test_where_one_device_is_meant_several_are_refused(host: PluginHost, selection: str) -> None:
    with pytest.raises(UsageError, match="here only one can be used") as caught:
        find_device(host, selection)

    assert not isinstance(caught.value, UnknownName)
    assert caught.value.hint == "name it with --device; see `atrex-eval list devices`"
