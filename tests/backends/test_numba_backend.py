"""The Numba backend as the orchestrator and the fork server meet it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import atrex_backend_numba
import pytest
from atrex_backend_numba import NumbaBackend

from atrex_core import Unavailable
from atrex_core.plugins import PluginHost


def test_the_package_provides_it_as_the_default() -> None:
    host = PluginHost.of(atrex_backend_numba)

    assert host.default_backend is host.backends["numba"]
    assert host.backends["numba"].accelerators == ("cpu",)
    assert host.backends["numba"].virtual_targets == ()


def test_importing_it_imports_neither_numba_nor_torch() -> None:
    code = """
import sys
from atrex_backend_numba import NumbaBackend
backend = NumbaBackend()
backend.check_available(), backend.versions(), backend.kernels
print(sorted({"numba", "torch", "llvmlite"} & set(sys.modules)))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout == "[]\n"


def test_preloading_imports_both_and_starts_no_threads_of_numbas() -> None:
    code = """
import sys
from atrex_backend_numba import NumbaBackend
NumbaBackend().preload()
from numba.np.ufunc import parallel
print("torch" in sys.modules, parallel._is_initialized)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout == "True False\n"


def test_a_threading_layer_that_the_user_prefers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_THREADING_LAYER_PRIORITY", "workqueue omp tbb")
    code = """
from atrex_backend_numba import NumbaBackend
NumbaBackend().preload()
import numba
print(numba.config.THREADING_LAYER_PRIORITY)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout == "['workqueue', 'omp', 'tbb']\n"


def test_without_numba_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atrex_backend_numba.backend.find_spec", lambda name: None)

    with pytest.raises(Unavailable, match="numba is not installed") as caught:
        NumbaBackend().check_available()

    assert caught.value.hint == "install it: pip install 'atrex-eval[numba]'"


def test_versions_are_those_of_the_installed_packages() -> None:
    assert NumbaBackend().versions() == {
        "numba": metadata.version("numba"),
        "llvmlite": metadata.version("llvmlite"),
    }


def test_versions_without_numba_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)

    assert NumbaBackend().versions() == {}


def test_six_operators_and_the_probe_are_bundled() -> None:
    folder = NumbaBackend().kernels

    assert folder is not None
    assert sorted(path.stem for path in folder.glob("*.py")) == [
        "fused_add_rms_norm",
        "linear_sigmoid_mul",
        "moe_topk_gating_softmax",
        "paged_attention_decode",
        "probe",
        "rms_norm",
        "silu_and_mul",
    ]
