"""Discovery, quarantine, clashes and lookups, through real distributions on the path."""

from __future__ import annotations

import logging
import signal
import textwrap
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from atrex_core import (
    ExitCode,
    PluginError,
    UnknownName,
)
from atrex_core.plugins import PluginHost, PluginOrigin

FIRST_PARTY = {entry.name for entry in metadata.entry_points(group="atrex_eval")}
GOOD = """
    from atrex_core import hookimpl, HardwareProfile, DeviceMatch, Figure, ArithmeticPath

    figure = Figure(value=1e12, source="a datasheet")

    def profile(name, model):
        return HardwareProfile(
            name=name, match=DeviceMatch(vendor="acme", names=(model,)),
            peak_flops={ArithmeticPath.FP32_VECTOR: figure}, bandwidth_bytes_per_s=figure)

    @hookimpl
    def atrex_hardware_profiles():
        yield profile("NAME", "MODEL")
"""


class Site:
    """A folder on the path in which distributions can be installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = 0

    def install(
        self, plugin: str, source: str, *, distribution: str = "", version: str = "1.0"
    ) -> None:
        """Install one plugin as a distribution of its own."""
        distribution = distribution or f"atrex-{plugin}"
        self.modules += 1
        module = f"plug_{abs(hash(self.folder))}_{self.modules}"
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[atrex_eval]\n{plugin} = {module}\n")

    def install_profile(self, plugin: str, name: str, model: str = "Anvil 2") -> None:
        """Install a plugin that provides one working profile."""
        self.install(plugin, GOOD.replace("NAME", name).replace("MODEL", model))

    def discover(self, *disabled: str) -> PluginHost:
        """Discover what is installed here and nothing else."""
        return PluginHost.discover([*FIRST_PARTY, *disabled])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Site(tmp_path)


def test_plugins_are_loaded_in_name_order_with_their_distributions(site: Site) -> None:
    site.install_profile("zeta", "a-profile")
    site.install_profile("alpha", "z-profile")

    host = site.discover()

    assert host.plugins == (
        PluginOrigin("alpha", "atrex-alpha", "1.0"),
        PluginOrigin("zeta", "atrex-zeta", "1.0"),
    )
    assert host.profiles.names == ("a-profile", "z-profile")
    assert [item.name for item in host.profiles] == ["a-profile", "z-profile"]
    assert host.profiles.origins["a-profile"] == PluginOrigin("zeta", "atrex-zeta", "1.0")
    assert host.quarantined == ()


HOOKIMPL = "from atrex_core import hookimpl\n@hookimpl"
BROKEN = {
    "import error": (
        "raise OSError('libacme.so: cannot open shared object file')",
        "import",
        "OSError: libacme.so: cannot open shared object file",
    ),
    "syntax error": ("def broken(:", "import", "SyntaxError: invalid syntax"),
    "exit at import": ("import sys; sys.exit(0)", "import", "SystemExit: 0"),
    "its own base exception": (
        "class Stop(BaseException): pass\nraise Stop('no')",
        "import",
        "Stop: no",
    ),
    "unknown argument": (
        HOOKIMPL + "\ndef atrex_backends(device): return []",
        "registration",
        "PluginValidationError: Plugin 'broken' for hook 'atrex_backends'",
    ),
    "unknown hook": (
        HOOKIMPL + "\ndef atrex_backend(): return []",
        "registration",
        "PluginValidationError: unknown hook 'atrex_backend' in plugin",
    ),
    "no marker": (
        "def atrex_backends(): return []",
        "registration",
        "TypeError: atrex_backends is not marked with @hookimpl",
    ),
    "wrapper": (
        HOOKIMPL + "(wrapper=True)\ndef atrex_evaluation_finished(evaluation): yield",
        "registration",
        "TypeError: atrex_evaluation_finished is a wrapper",
    ),
    "generator that observes": (
        HOOKIMPL + "\ndef atrex_evaluation_finished(evaluation): yield 1",
        "registration",
        "TypeError: atrex_evaluation_finished yields",
    ),
    "coroutine": (
        HOOKIMPL + "\nasync def atrex_backends(): return []",
        "registration",
        "TypeError: atrex_backends is asynchronous",
    ),
    "hook raises": (
        HOOKIMPL + "\ndef atrex_problems(): raise KeyError('x')",
        "atrex_problems",
        "KeyError: 'x'",
    ),
    "generator raises half-way": (
        textwrap.dedent(GOOD)
        + "    yield profile('fine', 'Anvil 3')\n    raise RuntimeError('no')",
        "atrex_hardware_profiles",
        "RuntimeError: no",
    ),
    "a later hook raises": (
        textwrap.dedent(GOOD) + "\n@hookimpl\ndef atrex_problems(): raise RuntimeError('late')",
        "atrex_problems",
        "RuntimeError: late",
    ),
    "wrong type": (
        HOOKIMPL + "\ndef atrex_backends(): yield 'triton'",
        "atrex_backends",
        "TypeError: yielded 'str', not a backend",
    ),
    "class instead of instance": (
        "import atrex_core\n" + HOOKIMPL + "\ndef atrex_accelerators(): yield atrex_core.Backend",
        "atrex_accelerators",
        "TypeError: yielded the class Backend, not an instance of it",
    ),
    "returned nothing": (
        HOOKIMPL + "\ndef atrex_backends(): pass",
        "atrex_backends",
        "TypeError: atrex_backends returned None",
    ),
    "unusable name": (
        GOOD.replace("NAME", "anvil*"),
        "atrex_hardware_profiles",
        "ValueError: yielded a hardware profile that cannot be named 'anvil*'",
    ),
    "one name twice": (
        textwrap.dedent(GOOD) + "    yield profile('NAME', 'Anvil 3')\n",
        "atrex_hardware_profiles",
        "ValueError: yielded two items named 'NAME'",
    ),
    "commands raise": (
        HOOKIMPL + "\ndef atrex_commands(cli): cli.nothing",
        "atrex_commands",
        "AttributeError: 'Group' object has no attribute 'nothing'",
    ),
    "its error cannot be printed": (
        "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute",
        "import",
        "Mute: its message cannot be read",
    ),
}


@pytest.mark.parametrize(("source", "where", "cause"), BROKEN.values(), ids=BROKEN)
def test_broken_plugin_is_set_aside_and_the_rest_goes_on(
    site: Site, source: str, where: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("broken", source, distribution="acme-kernels", version="9.1")
    site.install_profile("works", "works-profile", "Anvil 9")

    with caplog.at_level(logging.WARNING, logger="atrex_core"):
        host = site.discover()

    (broken,) = host.quarantined
    assert broken.origin == PluginOrigin("broken", "acme-kernels", "9.1")
    assert broken.where == where
    assert broken.cause.startswith(cause)
    assert "\n" not in str(broken)
    assert host.profiles.names == ("works-profile",)
    assert [origin.plugin for origin in host.plugins] == ["works"]
    assert [record.message for record in caplog.records] == [str(broken)]


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Listen to Ctrl-C: a shell lets its background jobs ignore it, and so their tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_interrupt_while_loading_reaches_the_user(site: Site) -> None:
    site.install("slow", "import signal; signal.raise_signal(signal.SIGINT)")

    with pytest.raises(KeyboardInterrupt):
        site.discover()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_interruptible")
def test_interrupt_that_nobody_sent_is_the_plugins_own(site: Site) -> None:
    site.install("rude", "raise KeyboardInterrupt")

    (broken,) = site.discover().quarantined

    assert (broken.where, broken.cause) == (
        "import",
        "FalseInterrupt: it raised KeyboardInterrupt",
    )


def test_damaged_entry_points_are_set_aside(site: Site) -> None:
    site.install_profile("works", "works-profile")
    info = site.folder / "damaged-3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: damaged\nVersion: 3\n")
    (info / "entry_points.txt").write_text("[atrex_eval]\nthis is no entry point\n")

    host = site.discover()

    assert [str(broken.origin) for broken in host.quarantined] == ["'damaged' (damaged 3)"]
    assert host.profiles.names == ("works-profile",)


def test_set_aside_plugins_are_named_when_a_lookup_fails(site: Site) -> None:
    site.install("broken", "import a_missing_driver", distribution="acme-kernels")
    site.install_profile("works", "anvil-two")

    with pytest.raises(UnknownName) as caught:
        site.discover().profiles["anvil-tow"]

    assert str(caught.value) == "no hardware profile is named 'anvil-tow'"
    assert caught.value.hint == (
        "did you mean 'anvil-two'? available: anvil-two; "
        "plugin 'broken' (acme-kernels 1.0) was set aside in import: "
        "ModuleNotFoundError: No module named 'a_missing_driver'"
    )


def test_name_clash_names_both_distributions(site: Site) -> None:
    site.install_profile("one", "same")
    site.install_profile("two", "same")

    with pytest.raises(PluginError) as caught:
        site.discover()

    assert caught.value.exit_code is ExitCode.HARNESS_ERROR
    assert str(caught.value) == (
        "hardware profile 'same' is provided by 'one' (atrex-one 1.0) and by 'two' (atrex-two 1.0)"
    )
    assert caught.value.hint == "uninstall one of them, or run with --disable-plugin one or two"


def test_disabling_one_resolves_a_clash(site: Site) -> None:
    site.install_profile("one", "same")
    site.install_profile("two", "same")

    host = site.discover("one")

    assert host.profiles.origins["same"].plugin == "two"
    assert PluginOrigin("one", "atrex-one", "1.0") in host.disabled


def test_a_plugin_that_is_set_aside_clashes_with_nobody(site: Site) -> None:
    late = textwrap.dedent(GOOD).replace("NAME", "same")
    site.install("one", late + "\n@hookimpl\ndef atrex_problems(): raise RuntimeError('late')")
    site.install_profile("two", "same")

    host = site.discover()

    assert host.profiles.origins["same"].plugin == "two"


def test_two_distributions_with_one_plugin_name_clash(site: Site) -> None:
    site.install("same", "", distribution="atrex-one")
    site.install("same", "", distribution="atrex-two")

    with pytest.raises(PluginError, match=r"plugin 'same' is provided by .*one 1.0.*two 1.0"):
        site.discover()


def test_disabled_plugin_is_not_imported(site: Site) -> None:
    site.install("harmful", "raise SystemExit('imported')")

    assert site.discover("harmful").quarantined == ()


def test_disabling_an_unknown_plugin_is_an_error(site: Site) -> None:
    site.install_profile("acme", "anvil")

    with pytest.raises(UnknownName, match="no plugin named 'acmee' is installed") as caught:
        site.discover("acmee")

    assert caught.value.hint.startswith("did you mean 'acme'?")


def test_the_callers_own_plugins_are_loaded_strictly(site: Site, plugin: Any, profile: Any) -> None:
    site.install_profile("acme", "anvil")

    host = PluginHost.discover(FIRST_PARTY, extra=[plugin("mine", profile("my-profile"))])

    assert host.profiles.names == ("anvil", "my-profile")
    with pytest.raises(PluginError, match="'wrong' \\(in memory\\) failed in atrex_hardware"):
        PluginHost.discover(FIRST_PARTY, extra=[plugin("wrong", "no profile")])


def test_a_host_made_of_objects_is_strict() -> None:
    module = ModuleType("broken")
    module.atrex_backends = list  # type: ignore[attr-defined]

    with pytest.raises(PluginError) as caught:
        PluginHost.of(module)

    assert str(caught.value) == (
        "plugin 'broken' (in memory) failed in registration: "
        "TypeError: atrex_backends is not marked with @hookimpl"
    )
    assert isinstance(caught.value.__cause__, TypeError)
