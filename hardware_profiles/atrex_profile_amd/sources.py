"""Where the figures come from. A data sheet that was read in a copy only is cited as such."""

from __future__ import annotations

from typing import Final

MI300X_SHEET: Final = "AMD Instinct MI300X Accelerator data sheet, peak performance table (dense)"
CDNA3_PAPER: Final = "Introducing AMD CDNA 3 Architecture, white paper, table of peak rates"
MI308X_ARITHMETIC: Final = (
    "80 CUs at 1420 MHz times the CDNA 3 rate per CU and clock (white paper); "
    "AMD offers no public sheet"
)
ATREX_XPU_A: Final = (
    "alibaba/atrex-bench, configs/hardware/XPU-A.yaml, a gfx942 part whose figures fit "
    "80 CUs at 1420 MHz and no other product"
)

ML_ENGINEERING: Final = (
    "stas00/ml-engineering, compute/accelerator/README.md at 744d01e, tables of dense TFLOPS, "
    "memory and clocks with the vendor's page for each row"
)
GPU_DATABASE: Final = "reox007/RightNow-GPU-Database, data/amd/all.json, taken from TechPowerUp"
ROCM_SPECS: Final = "ROCm documentation, reference/gpu-arch-specs"
COMPUTE_PROFILER: Final = (
    "ROCm/rocm-systems, rocprofiler-compute, mi_gpu_spec.yaml: CUs, dies and chip ids"
)
AITER: Final = "ROCm/aiter at e4048607a5, CU counts and MI308_CHIP_IDS"
PRODUCT_PAGE: Final = "AMD product page, as the ROCm documentation and other copies quote it"
ARITHMETIC: Final = "CUs x operations per CU and clock x clock, as this profile gives them"


def cite(*sources: str) -> str:
    """Join sources that agree on a figure."""
    return "; ".join(sources)
