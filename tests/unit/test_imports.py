"""Importing atrex-eval, or loading its plugins, stays light: what is heavy is imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import atrex_core

HEAVY = ("torch", "triton", "numba", "llvmlite", "cuda", "cupy")
LATE = ("cattrs", "rich")
"""Light enough, but of use to a few commands only."""
FIRST_PARTY = [
    entry
    for entry in metadata.entry_points(group="atrex_eval")
    if entry.dist and entry.dist.name == "atrex-eval"
]


def imported_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `code`."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_public_api_imports_nothing_heavy() -> None:
    assert imported_by("import atrex_core").isdisjoint({*HEAVY, *LATE, "attr", "pluggy"})
    assert imported_by("from atrex_core import *").isdisjoint({*HEAVY, "rich"})


def test_every_public_name_is_what_type_checkers_are_told() -> None:
    tree = ast.parse(Path(atrex_core.__file__).read_text())
    told = {
        alias.name: getattr(import_module(node.module), alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    assert set(told) == set(atrex_core.__all__)
    assert {name: getattr(atrex_core, name) for name in told} == told
    assert set(dir(atrex_core)) >= set(told)


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'atrex_core' has no attribute 'Sessoin'"):
        _ = atrex_core.Sessoin


def test_discovery_imports_nothing_heavy() -> None:
    found = imported_by("from atrex_core.plugins import PluginHost; PluginHost.discover()")

    assert found.isdisjoint({*HEAVY, *LATE})


@pytest.mark.parametrize("entry", FIRST_PARTY, ids=lambda entry: entry.name)
def test_each_plugin_imports_nothing_heavy(entry: metadata.EntryPoint) -> None:
    assert imported_by(f"import {entry.value}").isdisjoint(HEAVY)


def test_the_entry_points_of_this_project_are_installed() -> None:
    assert {entry.name for entry in FIRST_PARTY} >= {"cpu", "host-profile", "production-problems"}


def test_no_plugin_of_this_project_is_set_aside() -> None:
    code = (
        "from atrex_core.plugins import PluginHost\n"
        "print(*PluginHost.discover().quarantined, sep='\\n', end='')"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == ""
