"""Inputs of `fp8_blockscale_fused_moe`. Run alone; needs nothing but torch.

All activations and matrices are normal values, quantised as production does: the largest of each
block becomes the largest of the fp8 type. A token names `top_k` distinct experts.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. Wide shapes
               leave the range of the fp8 output there
    nominal    as in production, with a few loud activations at places that the seed decides, and
               smaller scales of the second matrix where outputs would leave the range
    skewed     most tokens choose the same few experts, one expert is chosen by none; routing
               weights that do not sum to one
    blocks     scales differ widely from block to block in every direction, and undo each other;
               half of the groups between the two products are a million times smaller
    ends       every token chooses the first and the last expert, or of two tokens with one route
               each one chooses either; all routes count the same, and gates are near four
    saturated  gates far from zero, of both signs; some outputs out of range, mostly in every 16th
               column, for which the second matrix holds nothing but large values of either sign
"""

import math

import torch

HIDDEN_STD = 0.03
"""Of activations before quantisation; that of matrices is one."""


def make_inputs(
    token_count: int,
    hidden_size: int,
    intermediate_size: int,
    num_experts: int,
    top_k: int,
    scale_block_n: int = 128,
    scale_block_k: int = 128,
    dtype: str = "fp8_e4m3fnuz",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw fp8 activations [T, H], the matrices of E experts, their scales, and the routes."""
    if regime not in ("published", "nominal", "skewed", "blocks", "ends", "saturated"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    kind = torch.float8_e4m3fnuz if dtype == "fp8_e4m3fnuz" else torch.float8_e4m3fn
    tile = scale_block_n, scale_block_k
    largest = torch.finfo(kind).max

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def experts(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw and quantise a matrix for each expert, some experts at a time."""
        values = torch.empty(num_experts, rows, columns, dtype=torch.uint8, device=device)
        scales = torch.empty(num_experts, rows // tile[0], columns // tile[1], device=device)
        step = max(1, (1 << 26) // (rows * columns))
        for start in range(0, num_experts, step):
            some = slice(start, min(start + step, num_experts))
            drawn = normal(some.stop - start, rows, columns)
            part, scales[some] = quantised(drawn, tile, kind)
            values[some] = part.view(torch.uint8)
        return values.view(kind), scales

    std = HIDDEN_STD * math.sqrt(hidden_size)  # of gate and up, where no regime changes them
    column = places(1, hidden_size)
    hidden = normal(token_count, hidden_size) * HIDDEN_STD
    if regime == "nominal":
        hidden.view(-1)[places(1 + hidden.numel() // 65536, hidden.numel())] = 1.0
    elif regime == "ends":
        hidden[:, column] = std
    (hidden,), (a_scale,) = quantised(hidden[None], (1, scale_block_k), kind)
    w1, fc1_scale = experts(2 * intermediate_size, hidden_size)
    w2, fc2_scale = experts(hidden_size, intermediate_size)
    logits = torch.randn(token_count, top_k, generator=rng, device=device)
    weights = torch.softmax(logits, dim=-1)
    liking = uniform(token_count, num_experts)

    usual = math.sqrt(2 / (top_k + 1))  # the root of a token's squared weights, added up

    def level(gate: float, up: float, out: float) -> float:
        """Return what brings outputs to a standard deviation of about `out`.

        SiLU squared is 0.4 to 0.5 of `gate` squared.
        """
        return out / (gate * up * math.sqrt(0.45 * intermediate_size) * usual)

    def alternate(count: int) -> torch.Tensor:
        """Return zeros and ones in turn, beginning with either."""
        return (torch.arange(count, device=device) + places(1, 2)) % 2

    gates = slice(0, intermediate_size // scale_block_n)
    ups = slice(gates.stop, None)
    if regime == "nominal":
        fc2_scale *= min(1.0, level(std, std, largest / 12))
    elif regime != "published":
        a_scale /= std
    if regime == "skewed":
        order = torch.randperm(num_experts, generator=rng, device=device)
        liking[:, order[: top_k + 1]] += 0.9
        if num_experts > top_k:
            liking[:, order[-1]] -= 2
        weights = weights * (1.5 + uniform(token_count, 1))
        fc2_scale *= level(1.0, 1.0, largest / 32)
    elif regime == "blocks":
        across = alternate(a_scale.shape[1]) * 2 - 1
        across = 2.0 ** (across * (2 + places(len(across), 4)))
        a_scale *= across
        fc1_scale /= across
        fc1_scale[:, gates] *= 2.0 ** (alternate(gates.stop) * 2 - 1)[:, None]
        wider = max(tile)
        between = 2.0 ** (20 * alternate(intermediate_size // wider)).repeat_interleave(wider)
        fc1_scale[:, ups] /= between[::scale_block_n, None]
        fc2_scale *= between[::scale_block_k]
        fc2_scale *= level(1.0, 1.0, largest / 24)
        fc2_scale *= 0.5 ** alternate(fc2_scale.shape[1])[:, None]
    elif regime == "ends":
        liking[:, 0] += 2
        liking[:, -1] += 2
        liking[0::2, 0] += 1
        liking[1::2, -1] += 1
        weights = torch.full_like(weights, 1 / top_k)
        # The largest value of a block, about four, meets one about as large as all others.
        open_gate = torch.tensor(largest, device=device).to(kind).view(torch.uint8)
        w1.view(torch.uint8)[:, :intermediate_size, column] = open_gate
        fc2_scale *= level(6.0, 1.4, largest / 16)
    elif regime == "saturated":
        fc1_scale[:, gates] *= 60
        fc2_scale *= level(60.0, 1.0, largest / 3)
        weights = weights / weights.square().sum(-1, keepdim=True).sqrt() * usual
        signs = places(hidden_size // 16 * intermediate_size, 2).view(-1, intermediate_size) * 2 - 1
        w2.view(torch.uint8)[:, 8::16] = (signs * (0.75 * largest)).to(kind).view(torch.uint8)
    return {
        "hidden_states": hidden,
        "w1": w1,
        "w2": w2,
        "topk_weights": weights,
        "topk_ids": liking.topk(top_k, dim=-1).indices.to(torch.int32),
        "a_scale": a_scale,
        "fc1_scale": fc1_scale,
        "fc2_scale": fc2_scale,
    }


def quantised(
    drawn: torch.Tensor, tile: tuple[int, int], kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return matrices in fp8 and the scale of each tile; rounding leaves none out of range."""
    count, rows, columns = drawn.shape
    tiles = drawn.view(count, rows // tile[0], tile[0], columns // tile[1], tile[1])
    scales = tiles.abs().amax((2, 4)).float().clamp(min=1e-12) / torch.finfo(kind).max
    return (tiles / scales[:, :, None, :, None]).to(kind).view(drawn.shape), scales
