"""Inputs of `block_scaled_mm`. Run alone; needs nothing but torch.

Raw values become codes and scales: of `a` by rows of each group of columns, of `b` by blocks. A
scale is the largest raw value over the limit of the type, at least 1e-10; the limit is 448 for
e4m3fn and 224 for e4m3fnuz. Regimes, each of which makes some part of the operator visible:
    published  the distribution as published, and nothing else: the scales of `b` follow the largest
               *signed* value, so that a few codes are at the limit
    nominal    the same, with a few larger values of `a` at places that the seed decides
    balanced   scales follow the largest magnitude; groups and blocks differ in size
    scales     rows, groups and blocks of very different size, up to results beyond fp16; a row and
               a block of zeros where there are several
    positive   no value is negative: sums grow with every column
    turning    no value of `a` is negative; `b` is positive in half of the groups, then negative in
               most, then positive: running sums exceed the result
    codes      codes drawn evenly, none from raw values: rows of the smallest codes alone, rows of
               small ones, rows of all; a block of rows of `b` in three of the smallest alone
"""

import torch
from torch.nn.functional import pad

_CHUNK = 1 << 24
"""Elements of `a` drawn at once."""

_KINDS = {
    "fp8_e4m3fn": (torch.float8_e4m3fn, 448.0),
    "fp8_e4m3fnuz": (torch.float8_e4m3fnuz, 224.0),
}

_REGIMES = ("published", "nominal", "balanced", "scales", "positive", "turning", "codes")

_CODES = ((0x87, 2.0**7), (0x9F, 2.0**3), (0xFF, 2.0**-7))
"""Bits that stay of a code, and a scale to match: no exponent, a small one, any."""


def make_inputs(
    m: int,
    n: int,
    k: int,
    group_n: int = 128,
    group_k: int = 128,
    dtype: str = "fp8_e4m3fn",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `a` [m, k], `b` [n, k] in fp8, and their fp32 scales."""
    if regime not in _REGIMES:
        raise ValueError(f"unknown regime {regime!r}")
    kind, limit = _KINDS[dtype]
    rng = torch.Generator(device).manual_seed(seed)
    blocks, groups = -(-n // group_n), -(-k // group_k)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device) * (high - low) + low

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def by_column(values: torch.Tensor) -> torch.Tensor:
        return values.repeat_interleave(group_k, 1)[:, :k]

    def raw(rows: int) -> torch.Tensor:
        values = torch.randn(rows, k, generator=rng, device=device)
        return values.abs_() if regime in ("positive", "turning") else values

    def codes(rows: int, bits: torch.Tensor) -> torch.Tensor:
        """Draw codes evenly, keep some bits of each row's, and avoid NaN."""
        drawn = torch.randint(256, (rows, k), generator=rng, device=device, dtype=torch.uint8)
        drawn &= bits[:, None]
        return torch.where(drawn.view(kind).float().isnan(), drawn & 0x7E, drawn).view(kind)

    def quantised(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """Divide by scales that were spread over the columns."""
        return values.div_(scales).clamp_(-limit, limit).to(kind)

    row, block = torch.arange(m, device=device), torch.arange(blocks, device=device)
    table = torch.tensor(_CODES, device=device)
    bits = table[:, 0].to(torch.uint8)

    a = torch.empty(m, k, dtype=kind, device=device)
    a_scales = uniform(0.5, 1.5, m, groups)
    sizes = None
    if regime == "codes":
        a_scales *= table[row % 3, 1:]
    elif regime == "balanced":
        sizes = 2 ** uniform(-1, 1, m, groups)
    elif regime == "scales":
        exponent = torch.where(row % 2 == 0, uniform(14, 18, m), uniform(-2, 14, m))
        sizes = 2 ** (exponent[:, None] + uniform(-2, 2, m, groups))
        if m > 1:
            sizes[places(1, m)] = 0
    step = max(1, _CHUNK // k)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        count = rows.stop - start
        if regime == "codes":
            a[rows] = codes(count, bits[row[rows] % 3])
            continue
        values = raw(count)
        if regime == "nominal":
            values.view(-1)[places(1 + values.numel() // 65536, values.numel())] = 12.0
        if sizes is not None:
            values *= by_column(sizes[rows])
        padded = pad(values, (0, groups * group_k - k)).view(-1, groups, group_k)
        a_scales[rows] = (padded.abs().amax(-1) / limit).clamp_(min=1e-10)
        a[rows] = quantised(values, by_column(a_scales[rows]))

    def by_block(values: torch.Tensor) -> torch.Tensor:
        return by_column(values.repeat_interleave(group_n, 0)[:n])

    if regime == "codes":
        chosen = 2 * (block % 3 != 1)
        b = codes(n, bits[chosen].repeat_interleave(group_n)[:n])
        b_scales = uniform(0.5, 1.5, blocks, groups) * table[chosen, 1:]
    else:
        values = raw(n)
        if regime in ("balanced", "scales"):
            sizes = 2 ** uniform(-2, 2, blocks, groups)
            if regime == "scales" and blocks * groups > 1:
                sizes.view(-1)[places(1, blocks * groups)] = 0
            values *= by_block(sizes)
        elif regime == "turning":
            group = torch.arange(groups, device=device)
            back = (group >= groups // 2) & (group < groups - max(1, groups // 16))
            values *= by_column(torch.where(back, -1.0, 1.0)[None])
        padded = pad(values, (0, groups * group_k - k, 0, blocks * group_n - n))
        tiles = padded.view(blocks, group_n, groups, group_k)
        signed = regime in ("published", "nominal")
        largest = (tiles if signed else tiles.abs()).amax((1, 3))
        b_scales = (largest / limit).clamp_(min=1e-10)
        b = quantised(values, by_block(b_scales))
    return {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales}
