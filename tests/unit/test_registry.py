"""What a host finds by name, glob or device, and what it does when two plugins want one name."""

from __future__ import annotations

from typing import Any

import click
import pytest

from atrex_core import (
    CalibratedProfile,
    Device,
    PluginError,
    UnknownName,
    UsageError,
    hookimpl,
)
from atrex_core.plugins import PluginHost

DEVICE = Device(
    id="acme:0", accelerator="acme", vendor="acme", name="Anvil 2", arch="anvil2", index=0
)


def test_two_objects_of_one_class_are_two_plugins(plugin: Any, profile: Any) -> None:
    host = PluginHost.of(plugin("p", profile("one")), plugin("p", profile("two")))

    assert [origin.plugin for origin in host.plugins] == ["p", "p-2"]


def test_select_takes_globs_and_keeps_name_order(plugin: Any, profile: Any) -> None:
    names = ("norm_b", "norm_a", "gate", "matmul")
    host = PluginHost.of(plugin("p", *(profile(name, f"model {name}") for name in names)))

    def selected(*globs: str) -> list[str]:
        return [item.name for item in host.profiles.select(*globs)]

    assert selected("norm_*") == ["norm_a", "norm_b"]
    assert selected("norm_?,gate", "norm_a") == ["gate", "norm_a", "norm_b"]
    assert selected(" gate , matmul ") == ["gate", "matmul"]
    assert selected() == ["gate", "matmul", "norm_a", "norm_b"]


def test_select_refuses_each_glob_that_matches_nothing(plugin: Any, profile: Any) -> None:
    host = PluginHost.of(plugin("p", profile("norm_a"), profile("gate", "Anvil 3")))

    with pytest.raises(UnknownName, match=r"no hardware profile matches 'gatte\*'") as caught:
        host.profiles.select("norm_*,gatte*")

    assert caught.value.hint == "did you mean 'gate'? available: gate, norm_a"


@pytest.mark.parametrize("glob", ["", " ", ",", " , ,"])
def test_select_refuses_an_empty_glob(plugin: Any, profile: Any, glob: str) -> None:
    host = PluginHost.of(plugin("p", profile("gate")))

    with pytest.raises(UsageError, match="an empty glob '.*' selects no hardware profile") as found:
        host.profiles.select("gate", glob)

    assert found.value.hint == "leave it out to select every hardware profile; available: gate"


def test_a_long_list_of_names_is_cut(plugin: Any, profile: Any) -> None:
    items = [profile(f"p{number:02}", f"m{number}") for number in range(15)]

    with pytest.raises(UnknownName) as caught:
        PluginHost.of(plugin("p", *items)).profiles["zzz"]

    assert caught.value.hint == (
        "available: p00, p01, p02, p03, p04, p05, p06, p07, p08, p09, p10, p11 and 3 more"
    )


def test_the_profile_that_describes_a_device_is_found(plugin: Any, profile: Any) -> None:
    host = PluginHost.of(plugin("p", profile("two"), profile("three", "Anvil 3")))
    unknown = Device(id="acme:0", accelerator="acme", vendor="acme", name="Anvil", arch="x")

    assert host.profile_for(DEVICE) is host.profiles["two"]
    assert host.profile_for(DEVICE, "three") is host.profiles["three"]
    assert host.profile_for(unknown) is None
    with pytest.raises(UnknownName, match="no hardware profile is named 'four'"):
        host.profile_for(DEVICE, "four")


def test_two_profiles_for_one_device_are_an_error(plugin: Any, profile: Any) -> None:
    measured = CalibratedProfile(
        name="measured", match=None, accelerator="acme", measure=lambda device: profile("x")
    )
    host = PluginHost.of(plugin("a", profile("published")), plugin("b", measured))

    with pytest.raises(PluginError) as caught:
        host.profile_for(DEVICE)

    assert str(caught.value) == (
        "profiles 'measured' of 'b' (in memory) and 'published' of 'a' (in memory) "
        "both describe device 'Anvil 2'"
    )
    assert caught.value.hint == "choose one by name, or run with --disable-plugin b or a"


class Commands:
    """A plugin with one command."""

    def __init__(self, plugin: str, command: str) -> None:
        self.__name__ = plugin
        self.command = command

    @hookimpl
    def atrex_commands(self, cli: click.Group) -> None:
        cli.add_command(click.Command("anything"), name=self.command)


def test_commands_cannot_replace_ours() -> None:
    cli = click.Group("atrex-eval", commands={"run": click.Command("run")})
    ours = cli.commands["run"]

    with pytest.raises(PluginError) as caught:
        PluginHost.of(Commands("acme", "run")).add_commands(cli)

    assert str(caught.value) == (
        "plugin 'acme' (in memory) failed in atrex_commands: "
        "ValueError: command 'run' is one of atrex-eval's own"
    )
    assert cli.commands == {"run": ours}


def test_commands_of_two_plugins_clash() -> None:
    with pytest.raises(PluginError, match="command 'hello' is provided by 'a' .* and by 'b' "):
        PluginHost.of(Commands("a", "hello"), Commands("b", "hello"))
