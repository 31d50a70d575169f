"""Inputs of `attention_forward`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few loud keys at places that the seed decides
    ragged     other lengths of the same sum, of four sequences or more one without queries; wide
               scores, so that few keys decide
    flat       keys count all the same or not at all: those that count are spread over the sequence,
               and as many as the largest power of two that fits, so that rounded weights are exact.
               Values have large parts that cancel: of one sign in the first half of a sequence, of
               the other after it
    peaked     scores far from zero, above it in one head and below it in the next, and twice as far
               in the second half of a sequence: softmax must subtract its maximum, which moves
    needle     one key decides for a whole sequence: its last in every other one, else its first
    crowd      one key of each sequence leads, and all others are each far lighter, but their values
               agree: together they count about as much
In `needle`, lengths are as in `ragged`; elsewhere as given.
"""

import torch

REGIMES = ("published", "nominal", "ragged", "flat", "peaked", "needle", "crowd")

LIGHT = 4096
"""How many times lighter, at least, a key of the crowd is than the leading one."""

CANCELLING = 256.0
"""Parts of values that cancel, in units of the mean of all values, at most."""

SUMMED = 2.0**28
"""Those parts times how many there are, in units of the dtype's precision, at most.

Tensor cores truncate whenever they add: what that costs must stay far below the tolerance.
"""


def make_inputs(
    seq_lens: list[int],
    num_heads: int,
    head_dim: int,
    kv_lens: list[int] | None = None,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw packed `q`, `k`, `v` bf16 [tokens, num_heads, head_dim] and where sequences begin.

    Keys are as many as queries in each sequence, or `kv_lens`.
    """
    if regime not in REGIMES:
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    rows, tokens = sum(seq_lens), sum(kv_lens or seq_lens)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    q = normal(rows, num_heads, head_dim)
    k = normal(tokens, num_heads, head_dim)
    v = normal(tokens, num_heads, head_dim)
    q_lens = torch.tensor(seq_lens, device=device)
    k_lens = torch.tensor(kv_lens or seq_lens, device=device)
    if regime in ("ragged", "needle"):
        order = torch.randperm(len(seq_lens), generator=rng, device=device)
        q_lens = _resplit(q_lens, order, uniform(len(seq_lens) // 2), empty=len(seq_lens) >= 4)
        k_lens = _resplit(k_lens, order, uniform(len(seq_lens) // 2)) if kv_lens else q_lens
    q_starts, k_starts = _starts(q_lens), _starts(k_lens)

    sequence = torch.arange(len(seq_lens), device=device)
    of = torch.repeat_interleave(sequence, k_lens, output_size=tokens)
    place = torch.arange(tokens, device=device) - k_starts[of]
    if regime == "nominal":
        step = 8 + tokens // 1024
        token = torch.arange(0, tokens, step, device=device)
        token = token + (uniform(len(token)) * (tokens - token).clamp(max=step)).long()
        of = of[token]
        row = q_starts[of] + (uniform(len(token)) * q_lens[of]).long()
        leader = q[row.clamp(max=rows - 1)].float()
        strength = (k_lens[of].float().log() + 3)[:, None, None]
        gain = strength * head_dim**0.5 / leader.square().sum(-1, keepdim=True)
        k[token] = (leader * gain).bfloat16()
        v[token] *= 4
    elif regime == "ragged":
        q *= 1.5
    elif regime == "flat":
        q.zero_()
        q[:, :, 0] = 1
        counting = torch.frexp(k_lens.clamp(min=1).float()).exponent
        counting = (2 ** (counting.long() - 1))[of]
        rank = place * counting // k_lens[of]
        is_hidden = (place + 1) * counting // k_lens[of] == rank
        k[:, :, 0] = -200 * head_dim**0.5 * is_hidden[:, None]
        part = (counting - 1 - 2 * rank).sign() * _cancelling(counting, torch.bfloat16)
        part /= counting.sqrt()
        v += part[:, None, None].bfloat16() * normal(num_heads, head_dim).sign()
    elif regime == "peaked":
        q *= 1.5
        q[:, :, 0] = 16.0 - 32.0 * (torch.arange(num_heads, device=device) % 2)
        k[:, :, 0] = 8 * head_dim**0.5 * (1 + (2 * place >= k_lens[of]))[:, None]
    elif regime == "needle":
        chosen = torch.where(sequence % 2 == 0, k_lens - 1, 0)
        is_needle = (place == chosen[of])[:, None, None]
        direction = normal(num_heads, head_dim).sign()
        strength = (k_lens[of].float().log() + 4)[:, None, None]
        q += direction
        k = torch.where(is_needle, (direction * strength / head_dim**0.5).bfloat16(), k)
        v *= 1 + 3 * is_needle
    elif regime == "crowd":
        chosen = (uniform(len(seq_lens)) * k_lens).long()
        is_leader = (place == chosen[of])[:, None, None]
        lightness = k_lens.clamp(min=LIGHT).float()
        direction = normal(num_heads, head_dim)
        gain = head_dim**0.5 / direction.float().square().sum(-1, keepdim=True)
        q = 0.5 * q + direction
        leader = (direction * gain * lightness.log()[:, None, None]).bfloat16()
        k = torch.where(is_leader, leader[of], 0.5 * k)
        size = (0.7 * lightness / k_lens.clamp(min=1)).clamp(min=1)[of, None, None].bfloat16()
        v = torch.where(is_leader, v, (0.25 * v + normal(num_heads, head_dim)) * size)
    return {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": q_starts.to(torch.int32),
        "cu_seqlens_k": k_starts.to(torch.int32),
    }


def _cancelling(tokens: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    most = SUMMED * torch.finfo(kind).eps
    return (most / tokens.clamp(min=1).float()).clamp(max=CANCELLING)


def _starts(lengths: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def _resplit(
    lengths: torch.Tensor, order: torch.Tensor, share: torch.Tensor, *, empty: bool = False
) -> torch.Tensor:
    """Share out anew what each two sequences have together, one at least to each.

    With `empty`, one sequence gets nothing.
    """
    pairs = len(share)
    first, second = order[:pairs], order[pairs : 2 * pairs]
    total = lengths[first] + lengths[second]
    least = (total // 2).clamp(max=1)
    new = least + (share * (total - 2 * least + 1)).long()
    if empty:
        new[0] = 0
    lengths = lengths.clone()
    lengths[first], lengths[second] = new, total - new
    return lengths
