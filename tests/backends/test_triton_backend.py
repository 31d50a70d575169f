"""What the orchestrator sees of the Triton backend, without loading triton."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import atrex_backend_triton
import pytest
from atrex_backend_triton import TritonBackend
from atrex_backend_triton.targets import find_target

from atrex_core import Device, TargetFailure, Unavailable


def _device(*, virtual: bool) -> Device:
    return Device(
        id="virtual:sm_90" if virtual else "cuda",
        accelerator="virtual" if virtual else "cuda",
        vendor="nvidia",
        name="any",
        arch="sm_90",
        virtual=virtual,
    )


def test_importing_the_package_imports_neither_torch_nor_triton() -> None:
    program = (
        "import sys, atrex_backend_triton as t\n"
        "list(t.atrex_backends())\n"
        "print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "set()"


def test_the_hook_yields_one_backend_called_triton() -> None:
    (backend,) = atrex_backend_triton.atrex_backends()

    assert backend.name == "triton"
    assert backend.accelerators == ("cuda", "hip")
    assert not backend.is_default


def test_defaults_are_among_the_targets() -> None:
    backend = TritonBackend()

    assert backend.default_targets == ("sm_90", "gfx942")
    assert set(backend.default_targets) <= set(backend.targets)
    assert backend.virtual_targets[0] == "sm_90"


def test_every_bundled_kernel_is_there() -> None:
    names = {path.stem for path in TritonBackend().kernels.glob("*.py")}

    assert names == {
        "fused_add_rms_norm",
        "linear_sigmoid_mul",
        "moe_topk_gating_softmax",
        "paged_attention_decode",
        "probe",
        "rms_norm",
        "silu_and_mul",
    }


def test_an_installed_triton_is_available() -> None:
    TritonBackend().check_available()


def test_a_missing_triton_is_reported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(atrex_backend_triton, "find_spec", lambda name: None)

    with pytest.raises(Unavailable, match='"triton" is not installed') as caught:
        TritonBackend().check_available()

    assert caught.value.hint == "pip install 'atrex-eval[triton]'"


@pytest.mark.parametrize("installed", ["3.5.1", "3.10.0", "2.3"])
def test_a_triton_that_was_never_tried_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    monkeypatch.setattr(atrex_backend_triton, "version", lambda name: installed)

    with pytest.raises(Unavailable, match=rf"triton {installed} .* knows 3\.6 to 3\.9"):
        TritonBackend().check_available()


@pytest.mark.parametrize("installed", ["3.6.0", "3.7.1+git1a2b3c", "3.9.0"])
def test_versions_in_the_range_are_available(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    monkeypatch.setattr(atrex_backend_triton, "version", lambda name: installed)

    TritonBackend().check_available()


def test_a_build_under_another_distribution_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "pytorch-triton-rocm":
            return "3.6.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(atrex_backend_triton, "version", version)

    assert TritonBackend().versions() == {"triton": "3.6.0"}


def test_an_unknown_target_lists_those_that_exist() -> None:
    with pytest.raises(
        TargetFailure, match='unknown target "sm_99"; known: sm_90, sm_80'
    ) as caught:
        find_target("sm_99")

    assert caught.value.target == "sm_99"


def test_target_names_map_to_what_triton_calls_them() -> None:
    nvidia, amd = find_target("sm_90").gpu_target(), find_target("gfx942").gpu_target()

    assert (nvidia.backend, nvidia.arch, nvidia.warp_size) == ("cuda", 90, 32)
    assert (amd.backend, amd.arch, amd.warp_size) == ("hip", "gfx942", 64)


def test_a_real_device_needs_no_prelude() -> None:
    assert TritonBackend().repro_prelude(_device(virtual=False)) == ""


def test_the_prelude_makes_a_plain_script_run_on_the_virtual_device(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        TritonBackend().repro_prelude(_device(virtual=True))
        + "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def double(x, n, B: tl.constexpr):\n"
        "    o = tl.arange(0, B)\n"
        "    tl.store(x + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)\n"
        "x = torch.arange(5, dtype=torch.float32)\n"
        "double[(1,)](x, 5, B=8)\n"
        "print(x.tolist(), triton.runtime.driver.active.get_current_target().arch)\n"
    )

    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "1"},
    )

    assert done.stdout.strip() == "[0.0, 2.0, 4.0, 6.0, 8.0] 90", done.stderr


def test_the_probe_needs_only_torch_and_triton(import_file: Any) -> None:
    module = import_file(TritonBackend().kernels / "probe.py")

    assert module.Model.__mro__[1].__name__ == "Module"
