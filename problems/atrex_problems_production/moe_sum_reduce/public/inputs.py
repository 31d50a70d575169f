"""Inputs of `moe_sum_reduce`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    cancelling two slots of each column, which the seed decides, hold large values that cancel, and
               little remains: rounding on the way to bf16 loses it, fp32 keeps it
    slots      one slot of each token outweighs the others
    shifted    all values near one, so that every slot counts the same
    brink      two slots of each column are not zero, and make sums that fall short of a number of
               few bits by 2**-12 of it: rounding finds that number, cutting off the next smaller
    halfway    two slots of each column are not zero, and make sums that lie just short of halfway
               from a number of bf16 to the next larger one: where a factor follows, a sum that is
               rounded before it is always too small
    rows       tokens of very different scale; one of them zero where there are several
"""

import torch


def make_inputs(
    token_count: int,
    top_k: int,
    hidden_size: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `expert_outputs` bf16 [token_count, top_k, hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x = normal(token_count, top_k, hidden_size)
    if regime in ("published", "nominal"):
        x *= 0.02
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 1.0
    elif regime == "cancelling":
        if top_k > 2:
            column = torch.arange(hidden_size, device=device)
            one = places(hidden_size, top_k)
            other = (one + 1 + places(hidden_size, top_k - 1)) % top_k
            for tokens in x.split(1024):
                large = normal(len(tokens), hidden_size) * 256
                tokens[:, one, column] = large
                tokens[:, other, column] = -large
    elif regime == "slots":
        token = torch.arange(token_count, device=device)
        x[token, places(token_count, top_k)] *= 30
    elif regime == "shifted":
        x *= 0.25
        x += 1
    elif regime == "brink":
        column = torch.arange(hidden_size, device=device)
        value = (16 + places(hidden_size, 5)) * (0.125 * places(hidden_size, 2) - 0.0625)
        scale = 2.0 ** (places(token_count, 7) - 3)
        total = (scale[:, None] * value).to(x.dtype)
        one = places(hidden_size, top_k)
        x.zero_()
        x[:, one, column] = total
        if top_k > 1:
            other = (one + 1 + places(hidden_size, top_k - 1)) % top_k
            x[:, other, column] = total * -(2.0**-12)
    elif regime == "halfway":
        column = torch.arange(hidden_size, device=device)
        value = normal(token_count, hidden_size)
        last_bit = torch.ldexp(value.sign().float(), torch.frexp(value.float()).exponent - 8)
        one = places(hidden_size, top_k)
        x.zero_()
        x[:, one, column] = value
        if top_k > 1:
            other = (one + 1 + places(hidden_size, top_k - 1)) % top_k
            x[:, other, column] = (0.4375 * last_bit).to(x.dtype)
    elif regime == "rows":
        exponent = torch.rand(token_count, 1, 1, generator=rng, device=device) * 6 - 3
        x *= 10**exponent
        if token_count > 1:
            x[places(1, token_count)] = 0
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"expert_outputs": x}
