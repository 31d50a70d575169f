"""The loaded plugins behind typed methods: the only way the rest of the program meets them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pluggy

from atrex_core.errors import PluginError, UnknownName
from atrex_core.interfaces import Accelerator, Backend, CalibratedProfile, Problem
from atrex_core.interfaces.problem import BrokenProblem
from atrex_core.model import Device, Evaluation, Gate, GateResult, HardwareProfile
from atrex_core.plugins.loading import (
    Entry,
    Loading,
    Provision,
    clash,
    installed,
    quarantine,
)
from atrex_core.plugins.prints import prints_aside
from atrex_core.plugins.registry import PluginOrigin, Quarantined, Registry
from atrex_core.profile_files import is_path, read_profile
from atrex_core.suggest import did_you_mean

if TYPE_CHECKING:
    import click

log = logging.getLogger(__name__)

Profile = HardwareProfile | CalibratedProfile
"""What `atrex_hardware_profiles` yields."""

_ACCELERATORS = Provision("atrex_accelerators", "accelerator", (Accelerator,))
_BACKENDS = Provision("atrex_backends", "backend", (Backend,))
_PROFILES = Provision(
    "atrex_hardware_profiles", "hardware profile", (HardwareProfile, CalibratedProfile)
)
_PROBLEMS = Provision(
    "atrex_problems", "problem", (Problem,), alias="release_id", stand_in=BrokenProblem
)
OWN_COMMANDS = frozenset(
    {
        *("run", "list", "doctor", "journal", "repro"),
        *("calibrate", "problems", "weights", "release", "plugin"),
    }
)
"""The command line's own names, which no plugin can have."""

_COMMANDS = Provision("atrex_commands", "command", (object,), OWN_COMMANDS)


class PluginHost:
    """The loaded plugins. Build one and pass it on; never keep one global."""

    accelerators: Registry[Accelerator]
    backends: Registry[Backend]
    profiles: Registry[Profile]
    problems: Registry[Problem]
    commands: Registry[click.Command]
    plugins: tuple[PluginOrigin, ...]
    """The plugins in use, in order of name."""
    disabled: tuple[PluginOrigin, ...]
    """Installed, but left out on request and never imported."""

    def __init__(self, loading: Loading, disabled: Sequence[PluginOrigin] = ()) -> None:
        """Freeze what `loading` has gathered: use `discover` or `of`.

        Raises:
            PluginError: two plugins provide the same name.
        """
        self._manager = loading.manager
        self._origins = dict(loading.origins)
        self._quarantined = list(loading.quarantined)
        self.plugins = tuple(self._origins.values())
        self.disabled = tuple(disabled)
        self.accelerators = loading.registry(_ACCELERATORS)
        self.backends = loading.registry(_BACKENDS)
        self.profiles = loading.registry(_PROFILES)
        self.problems = loading.registry(_PROBLEMS)
        self.commands = loading.registry(_COMMANDS)

    @classmethod
    def discover(
        cls,
        disabled: Iterable[str] = (),
        *,
        only: Iterable[str] | None = None,
        extra: Iterable[object] = (),
    ) -> Self:
        """Load every installed plugin but the disabled ones; set aside those that are broken.

        Args:
            disabled: Names of plugins that are not even imported.
            only: When given, no other plugin than these is imported.
            extra: Plugins of the caller's own, such as a progress display, loaded strictly.

        Raises:
            UnknownName: a disabled plugin is not installed.
            PluginError: two plugins want one name.
        """
        found, unwanted = installed(), frozenset(disabled)
        names = [entry.origin.plugin for entry in found]
        _check_known(unwanted, names)
        if only is not None:
            unwanted |= frozenset(names) - frozenset(only)
        loading = _loading()
        seen: dict[str, PluginOrigin] = {}
        for entry in found:
            origin = entry.origin
            if origin.plugin in unwanted:
                continue
            if isinstance(entry, Quarantined):
                loading.set_aside(entry)
                continue
            if origin.plugin in seen:
                raise clash("plugin", origin.plugin, seen[origin.plugin], origin)
            seen[origin.plugin] = origin
            loading.add(entry)
        _add_strictly(loading, extra)
        return cls(loading, [e.origin for e in found if e.origin.plugin in unwanted])

    @classmethod
    def of(cls, *plugins: object) -> Self:
        """Build a host from plugin objects alone, modules or instances: the way to test one.

        Raises:
            PluginError: a plugin is broken; here nothing is set aside while loading.
        """
        loading = _loading()
        _add_strictly(loading, plugins)
        return cls(loading)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The plugins that were set aside so far."""
        return tuple(self._quarantined)

    @property
    def default_backend(self) -> Backend | None:
        """The backend that is used when none is asked for.

        Raises:
            PluginError: several say that they are the default.
        """
        defaults = [backend for backend in self.backends if backend.is_default]
        if len(defaults) > 1:
            raise self._tie("backends", [b.name for b in defaults], self.backends, "are default")
        return defaults[0] if defaults else None

    def profile_for(self, device: Device, name: str | None = None) -> Profile | None:
        """Return the profile that describes `device`, or the one called `name` whatever it says.

        Args:
            name: The name of an installed profile, or the path of a TOML file that holds one.

        Raises:
            UnknownName: no profile has that name.
            UsageError: the file cannot be used.
            PluginError: more than one profile describes the device.
        """
        if name is not None:
            is_file = is_path(name) and name not in self.profiles
            return read_profile(Path(name)) if is_file else self.profiles[name]
        fits = [profile.name for profile in self.profiles if _accepts(profile, device)]
        if len(fits) > 1:
            what = f"describe device {device.name!r}"
            raise self._tie("profiles", fits, self.profiles, what)
        return self.profiles[fits[0]] if fits else None

    def add_commands(self, cli: click.Group) -> None:
        """Add the plugins' subcommands to the command line.

        Raises:
            PluginError: a plugin's command has the name of one of ours.
        """
        for command in self.commands:
            name = str(command.name)
            if name in cli.commands:
                origin = self.commands.origins[name]
                raise PluginError(
                    f"command {name!r} of plugin {origin} is one of atrex-eval's own",
                    hint=f"uninstall it, or run with --disable-plugin {origin.plugin}",
                )
            cli.add_command(command)

    def gate_finished(self, evaluation_id: str, gate: Gate, result: GateResult) -> None:
        """Tell the plugins that a gate has spoken. Never raises on a plugin's behalf."""
        self._tell("atrex_gate_finished", evaluation_id=evaluation_id, gate=gate, result=result)

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Tell the plugins that an evaluation is in the journal. Never raises on their behalf."""
        self._tell("atrex_evaluation_finished", evaluation=evaluation)

    def _tell(self, hook: str, **facts: object) -> None:
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        for observer in reversed(caller.get_hookimpls()):
            if not self._manager.has_plugin(observer.plugin_name):
                continue  # its other observer of this hook has just failed
            # Copies, because mappings inside a result could be written to: no hook alters one.
            arguments = [copy.deepcopy(facts[name]) for name in observer.argnames]
            try:
                with prints_aside():
                    observer.function(*arguments)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a broken display must not end a run
                self._silence(quarantine(self._origins[observer.plugin_name], hook, error))

    def _silence(self, broken: Quarantined) -> None:
        # What the plugin provides stays: evaluations under way, and results, rest on it.
        self._manager.unregister(name=broken.origin.plugin)
        self._quarantined.append(broken)
        log.warning("%s", broken)

    def _tie(
        self, kind: str, names: Sequence[str], registry: Registry[Any], what: str
    ) -> PluginError:
        owners = [registry.origins[name] for name in names]
        both = " and ".join(f"{n!r} of {o}" for n, o in zip(names, owners, strict=True))
        plugins = " or ".join(dict.fromkeys(owner.plugin for owner in owners))
        return PluginError(
            f"{kind} {both} both {what}" if len(names) == 2 else f"{kind} {both} all {what}",
            hint=f"choose one by name, or run with --disable-plugin {plugins}",
        )


def _loading() -> Loading:
    return Loading((_ACCELERATORS, _BACKENDS, _PROFILES, _PROBLEMS, _COMMANDS))


def _add_strictly(loading: Loading, plugins: Iterable[object]) -> None:
    loading.strict = True
    for plugin in plugins:
        base = str(getattr(plugin, "__name__", type(plugin).__name__))
        name, number = base, 1
        while name in loading.origins:
            number += 1
            name = f"{base}-{number}"
        loading.add(Entry(PluginOrigin(name, "in memory"), partial(_itself, plugin)))


def _itself(plugin: object) -> object:
    return plugin


def _check_known(disabled: Iterable[str], known: Sequence[str]) -> None:
    for name in sorted(disabled):
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownName(f"no plugin named {name!r} is installed", hint=hint)


def _accepts(profile: Profile, device: Device) -> bool:
    if isinstance(profile, HardwareProfile):
        return profile.match.accepts(device)
    return profile.accepts(device)
