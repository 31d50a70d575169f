"""Where the figures come from. A data sheet that was read in a copy only is cited as such."""

from __future__ import annotations

from typing import Final

HOPPER_PAPER: Final = (
    "NVIDIA H100 Tensor Core GPU Architecture, white paper V1.04, table of H100 SXM5 peak rates"
)
H100_SHEET: Final = "NVIDIA H100 Tensor Core GPU data sheet, H100 SXM column"
H200_SHEET: Final = "NVIDIA H200 Tensor Core GPU data sheet, H200 SXM column, sparse figures halved"
ATREX_H20: Final = (
    "alibaba/atrex-bench, configs/hardware/H20.yaml; ai-dynamo/aiconfigurator prints the same"
)
RESELLER_H20: Final = (
    "H20 product brief as reprinted by resellers and the press; NVIDIA offers no public sheet"
)

ML_ENGINEERING: Final = (
    "stas00/ml-engineering, compute/accelerator/README.md at 744d01e, tables of dense TFLOPS, "
    "memory and clocks with the vendor's page for each row"
)
GPU_DATABASE: Final = "reox007/RightNow-GPU-Database, data/nvidia/all.json, taken from TechPowerUp"
LIGHTNING: Final = (
    "Lightning-AI/pytorch-lightning, src/lightning/fabric/utilities/throughput.py, peak table"
)
VERL: Final = "volcengine/verl, verl/utils/flops_counter.py, table of device FLOPS"
AICONFIGURATOR: Final = "ai-dynamo/aiconfigurator, src/aiconfigurator/systems/*.yaml"
LLM_ANALYSIS: Final = "cli99/llm-analysis, configuration of the GPU"
NSIGHT: Final = (
    "Nsight Systems export of an A100-SXM4-80GB in hpcgroup/pipit pull request 138, "
    "table TARGET_INFO_GPU"
)
DEVICE_QUERY: Final = "deviceQuery of the part itself, as a public repository keeps it"
TRACE: Final = (
    "deviceProperties of a torch profiler trace, AMD-AGI/TraceLens tests/traces at 171dd747"
)
B300_CACHE: Final = (
    "public note on measuring the B300's caches: 132,644,864 B of L2, 148 SMs, 2032 MHz"
)
PRODUCT_PAGE: Final = "NVIDIA product page, as a public repository quotes it"
SHEET: Final = "NVIDIA data sheet of the product, as resellers' and other copies quote it"
ARITHMETIC: Final = "SMs x operations per SM and clock x clock, as this profile gives them"
UNCONFIRMED: Final = "widely printed; no copy of the vendor's own figure was found to cite"


def cite(*sources: str) -> str:
    """Join sources that agree on a figure."""
    return "; ".join(sources)
