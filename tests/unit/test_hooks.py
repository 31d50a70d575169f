"""Every hook has an example that runs, a page that lists it, and a test of its own."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from atrex_core import (
    ArithmeticPath,
    Backend,
    Device,
    Evaluation,
    Gate,
    GateResult,
    Isolation,
    Origin,
    Outcome,
    Pack,
    Phase,
    PluginError,
    Protocol,
    Scale,
    Unavailable,
    Verdict,
    hookimpl,
    hookspecs,
)
from atrex_core.plugins import PluginHost

ROOT = Path(__file__).parents[2]
HOOKS: dict[str, Callable[..., object]] = {
    name: spec for name, spec in vars(hookspecs).items() if name.startswith("atrex_")
}
DEVICE = Device(id="acme:0", accelerator="acme", vendor="acme", name="Anvil 2 OEM", arch="anvil2")
PASSED = GateResult(outcome=Outcome.PASSED, details={"cases": 5})
EVALUATION = Evaluation(
    id="e1",
    submission="mine",
    candidate="kernels/norm.py",
    digest="d",
    pack=Pack(name="acme", version="1.0", digest="1"),
    problem="norm",
    workload="small",
    phase=Phase.BOTH,
    origin=Origin.PUBLISHED,
    scale=Scale.SMOKE,
    backend="acmelang",
    accelerator="acme",
    device=DEVICE,
    target="anvil2",
    profile=None,
    profile_digest=None,
    protocol=Protocol.STRICT,
    isolation=Isolation.PROCESS,
    gates={Gate.COMPILE: PASSED},
)


def example(hook: str) -> str:
    """Return the plugin in a hook's docstring."""
    text = inspect.getdoc(HOOKS[hook]) or ""
    return textwrap.dedent(text.partition("Example:\n")[2])


def plugin_of(hook: str, folder: Path) -> ModuleType:
    """Write the plugin in a hook's docstring to a file, and run it as a module."""
    path = folder / f"plugin_of_{hook}.py"
    path.write_text(example(hook))
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), vars(module))
    return module


@pytest.mark.parametrize("hook", HOOKS)
def test_each_docstring_is_a_line_an_occasion_and_an_example(hook: str) -> None:
    first, blank, occasion = (inspect.getdoc(HOOKS[hook]) or "").splitlines()[:3]

    assert first.endswith(".")
    assert blank == ""
    assert occasion.startswith("Called ")
    assert f"@hookimpl\ndef {hook}(" in example(hook)


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_documented_with_its_arguments(hook: str) -> None:
    arguments = ", ".join(inspect.signature(HOOKS[hook]).parameters)

    assert f"### `{hook}({arguments})`\n" in (ROOT / "docs" / "hooks.md").read_text()


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_a_test(hook: str) -> None:
    assert f"test_hook_{hook}" in vars(sys.modules[__name__])


def test_the_page_lists_no_hook_that_does_not_exist() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text()

    assert re.findall(r"^### `(\w+)\(", page, re.MULTILINE) == list(HOOKS)


def test_hook_atrex_accelerators(tmp_path: Path) -> None:
    host = PluginHost.of(plugin_of("atrex_accelerators", tmp_path))

    acme = host.accelerators["acme"]
    assert list(acme.devices()) == []
    assert acme.absence() == "no acme device was found"


def test_hook_atrex_backends(tmp_path: Path) -> None:
    host = PluginHost.of(plugin_of("atrex_backends", tmp_path))

    backend = host.backends["acmelang"]
    assert backend.accelerators == ("acme",)
    assert host.default_backend is None
    with pytest.raises(Unavailable, match="acmelang is not installed"):
        backend.check_available()


def test_hook_atrex_hardware_profiles(tmp_path: Path) -> None:
    host = PluginHost.of(plugin_of("atrex_hardware_profiles", tmp_path))

    profile = host.profile_for(DEVICE)
    assert profile is host.profiles["acme-anvil-2"]


def test_hook_atrex_problems(tmp_path: Path) -> None:
    host = PluginHost.of(plugin_of("atrex_problems", tmp_path))

    problem = host.problems["acme_vector_add"]
    (small,) = problem.select(Scale.SMOKE)
    inputs = problem.draw(small, regime="nominal", seed=1, device="cpu")
    expected, honest = problem.expected(small, inputs), problem.honest(small, inputs)
    assert {spec.name: spec.shape for spec in problem.inputs(small)} == {"x": (1000,), "y": (1000,)}
    assert (honest["out"].double() - expected["out"]).abs().max().item() < 1e-6
    assert (inputs["x"] - honest["out"]).abs().max().item() > 1.0
    assert problem.cost(small).flops == {ArithmeticPath.FP32_VECTOR: 1000}
    assert problem.cost(small).total_bytes == 12000


def test_hook_atrex_commands(tmp_path: Path) -> None:
    cli = click.Group("atrex-eval")

    PluginHost.of(plugin_of("atrex_commands", tmp_path)).add_commands(cli)

    result = CliRunner().invoke(cli, ["acme-firmware", "--index", "3"])
    assert (result.exit_code, result.output) == (0, "card 3: 2.7.1\n")


def test_hook_atrex_gate_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = PluginHost.of(plugin_of("atrex_gate_finished", tmp_path))

    host.gate_finished("e1", Gate.COMPILE, PASSED)
    host.gate_finished(
        "e1", Gate.CORRECTNESS, GateResult(outcome=Outcome.FAILED, reason="out is NaN")
    )

    assert [record.message for record in caplog.records] == ["e1 fails correctness: out is NaN"]


def test_hook_atrex_evaluation_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    host = PluginHost.of(plugin_of("atrex_evaluation_finished", tmp_path))

    host.evaluation_finished(EVALUATION)

    assert Path("acme.csv").read_text() == "norm,small,passed\n"


class Observer:
    """Remembers what it is told; may fail."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.seen: list[object] = []

    @hookimpl
    def atrex_gate_finished(self, result):
        self.seen.append(result)

    @hookimpl
    def atrex_evaluation_finished(self, evaluation):
        self.seen.append(evaluation)
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("no terminal"), SystemExit(0)], ids=repr)
def test_a_failing_observer_is_set_aside_once_and_the_run_goes_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    broken, works = Observer(error), Observer()
    host = PluginHost.of(works, broken)

    host.evaluation_finished(EVALUATION)
    host.evaluation_finished(EVALUATION)
    host.gate_finished("e1", Gate.COMPILE, PASSED)

    assert broken.seen == [EVALUATION]
    assert works.seen == [EVALUATION, EVALUATION, PASSED]
    assert [(q.origin.plugin, q.where) for q in host.quarantined] == [
        ("Observer-2", "atrex_evaluation_finished")
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_an_interrupt_in_an_observer_reaches_the_user() -> None:
    with pytest.raises(KeyboardInterrupt):
        PluginHost.of(Observer(KeyboardInterrupt())).evaluation_finished(EVALUATION)


def test_an_observer_cannot_change_a_verdict() -> None:
    class Cheat:
        @hookimpl
        def atrex_gate_finished(self, result):
            result.details["cases"] = 0
            object.__setattr__(result, "outcome", Outcome.FAILED)

        @hookimpl
        def atrex_evaluation_finished(self, evaluation):
            evaluation.gates[Gate.COMPILE] = GateResult(outcome=Outcome.FAILED, reason="cheat")

    host = PluginHost.of(Cheat())

    host.gate_finished("e1", Gate.COMPILE, PASSED)
    host.evaluation_finished(EVALUATION)

    assert host.quarantined == ()
    assert GateResult(outcome=Outcome.PASSED, details={"cases": 5}) == PASSED
    assert EVALUATION.outcome is Verdict.PASSED


class Plain(Backend):
    """A backend by any name."""

    accelerators = ("acme",)
    is_default = True

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # one class stands for several here

    def check_available(self):
        return None

    def preload(self):
        return None

    def start(self, request):
        raise NotImplementedError


class Backends:
    """A plugin of several backends."""

    def __init__(self, *names: str) -> None:
        self.names = names

    @hookimpl
    def atrex_backends(self):
        return [Plain(name) for name in self.names]


def test_the_default_backend_is_the_one_that_says_so() -> None:
    host = PluginHost.of(Backends("one"))

    assert host.default_backend is host.backends["one"]


def test_two_default_backends_are_an_error() -> None:
    with pytest.raises(PluginError) as caught:
        _ = PluginHost.of(Backends("one"), Backends("two")).default_backend

    assert str(caught.value) == (
        "backends 'one' of 'Backends' (in memory) and 'two' of 'Backends-2' (in memory) "
        "both are default"
    )
