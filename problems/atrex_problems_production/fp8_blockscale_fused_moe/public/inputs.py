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
               each one chooses either; gates are near four. All routes count the same; but from
               three on, those two count 64 times as much, and cancel: their second matrices
               differ in sign alone
    light      of each token's routes every second one weighs 2**14 times less than others, through
               an expert whose second matrix is as much larger
    saturated  gates far from zero, of both signs; some outputs out of range, mostly in every 16th
               column, for which the second matrix holds nothing but large values of either sign
    tails      gates below zero alone, most between -1 and -8, near a depth of each token's own;
               routing weights below 0.05 that make rows about equally loud
    cancelling what the first and the last column of `hidden_states` contribute to z is loud and
               cancels; the last block of rows for `up` is louder than others; routing weights of
               both signs, and some that are zero
"""

import math

import torch

_REGIMES = (
    *("published", "nominal", "skewed", "blocks", "ends", "light"),
    *("saturated", "tails", "cancelling"),
)

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
    if regime not in _REGIMES:
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
    every = torch.arange(token_count, device=device)
    depth = torch.tensor([6.0, 4.0, 5.0, 3.0], device=device)[every % 4]
    column = places(1, hidden_size)
    hidden = normal(token_count, hidden_size) * HIDDEN_STD
    if regime == "nominal":
        hidden.view(-1)[places(1 + hidden.numel() // 65536, hidden.numel())] = 1.0
    elif regime == "ends":
        hidden[:, column] = std
    elif regime == "tails":
        hidden[:, column] = (-std / 4 * depth[:, None]).to(hidden.dtype)
    elif regime == "cancelling":
        hidden[:, 0] = 64 * std
        hidden[:, -1] = -hidden[:, 0]
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

    def code(value: float) -> torch.Tensor:
        """Return the byte that is nearest to a value."""
        return torch.tensor(value, device=device).to(kind).view(torch.uint8)

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
        weights = torch.full_like(weights, 1 / top_k)
        if top_k > 2:
            weights[:, 0 :: top_k - 1] *= 64
            for one in (w1.view(torch.uint8), fc1_scale, w2.view(torch.uint8), fc2_scale):
                one[-1] = one[0]
            negate_(w2[-1])
        else:
            liking[:, 0] += 2
            liking[:, -1] += 2
            liking[0::2, 0] += 1
            liking[1::2, -1] += 1
        # The largest value of a block, about four, meets one about as large as all others.
        w1.view(torch.uint8)[:, :intermediate_size, column] = code(largest)
        fc2_scale *= level(6.0, 1.4, largest / 16)
    elif regime == "light":
        weights = torch.softmax(logits / 2, dim=-1)
        weights[:, 1::2] /= 2**14
        fc2_scale[1::2] *= 2**14
        fc2_scale *= level(1.0, 1.0, largest / 32)
    elif regime == "tails":
        w1.view(torch.uint8)[:, :intermediate_size, column] = code(largest)
        even = torch.tensor([1.0, 0.32, 0.54, 0.21], device=device)[every % 4]
        weights = weights * even[:, None] / 32
        fc2_scale *= 32 * level(0.04, 1.8, largest / 24)
    elif regime == "cancelling":
        w1.view(torch.uint8)[:, :, -1] = w1.view(torch.uint8)[:, :, 0]
        fc1_scale[:, :, -1] = fc1_scale[:, :, 0]
        fc1_scale[:, -1] *= 16
        fc2_scale *= level(1.0, math.sqrt(1 + 255 / gates.stop), largest / 32)
        signs = 1 - 2 * places(token_count * top_k, 2).view(token_count, top_k)
        signs[every, every % top_k] = -1
        if top_k > 2:
            signs[every, (every + 1) % top_k] = 0
        weights = torch.softmax(logits / 2, dim=-1) * signs
    elif regime == "saturated":
        fc1_scale[:, gates] *= 60
        fc2_scale *= level(60.0, 1.0, largest / 3)
        weights = weights / weights.square().sum(-1, keepdim=True).sqrt() * usual
        signs = places(hidden_size // 16 * intermediate_size, 2).view(-1, intermediate_size) * 2 - 1
        w2.view(torch.uint8)[:, 8::16] = (signs * (0.75 * largest)).to(kind).view(torch.uint8)
    if regime == "ends" and top_k > 2:
        ids = torch.full((token_count, top_k), num_experts - 1, device=device)
        ids[:, 0] = 0
        ids[:, 1:-1] = 1 + liking[:, 1:-1].topk(top_k - 2, dim=-1).indices
    elif regime == "light":
        ids = torch.empty(token_count, top_k, dtype=torch.long, device=device)
        for parity in range(min(2, top_k)):
            count = (top_k + 1 - parity) // 2
            ids[:, parity::2] = liking[:, parity::2].topk(count, dim=-1).indices * 2 + parity
    else:
        ids = liking.topk(top_k, dim=-1).indices
    return {
        "hidden_states": hidden,
        "w1": w1,
        "w2": w2,
        "topk_weights": weights,
        "topk_ids": ids.to(torch.int32),
        "a_scale": a_scale,
        "fc1_scale": fc1_scale,
        "fc2_scale": fc2_scale,
    }


def negate_(values: torch.Tensor) -> None:
    """Change all signs but that of zero, which is not a number where zero has none."""
    codes = values.view(torch.uint8)
    codes ^= (codes & 127 != 0).to(torch.uint8) * 128


def quantised(
    drawn: torch.Tensor, tile: tuple[int, int], kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return matrices in fp8 and the scale of each tile; rounding leaves none out of range."""
    count, rows, columns = drawn.shape
    tiles = drawn.view(count, rows // tile[0], tile[0], columns // tile[1], tile[1])
    scales = tiles.abs().amax((2, 4)).float().clamp(min=1e-12) / torch.finfo(kind).max
    return (tiles / scales[:, :, None, :, None]).to(kind).view(drawn.shape), scales
