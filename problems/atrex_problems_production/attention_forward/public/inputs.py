"""Inputs of `attention_forward`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few loud keys at places that the seed decides
    ragged     other lengths of the same sum, of four sequences or more one without queries; wide
               scores, so that few keys decide
    flat       queries of zero: every key of a sequence counts the same
    peaked     scores far from zero, above it in one head and below it in the next, so that softmax
               must subtract its maximum
    needle     one key decides for a whole sequence: its last in every other one, else its first
In `flat`, `peaked` and `needle`, lengths are as in `ragged`.
"""

import torch


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
    if regime not in ("published", "nominal", "ragged", "flat", "peaked", "needle"):
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
    if regime not in ("published", "nominal"):
        order = torch.randperm(len(seq_lens), generator=rng, device=device)
        q_lens = _resplit(q_lens, order, uniform(len(seq_lens) // 2), empty=len(seq_lens) >= 4)
        k_lens = _resplit(k_lens, order, uniform(len(seq_lens) // 2)) if kv_lens else q_lens
    q_starts, k_starts = _starts(q_lens), _starts(k_lens)

    sequence = torch.arange(len(seq_lens), device=device)
    if regime == "nominal":
        step = 8 + tokens // 1024
        token = torch.arange(0, tokens, step, device=device)
        token = token + (uniform(len(token)) * (tokens - token).clamp(max=step)).long()
        of = torch.searchsorted(k_starts, token, right=True) - 1
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
    elif regime == "peaked":
        q *= 1.5
        q[:, :, 0] = 16.0 - 32.0 * (torch.arange(num_heads, device=device) % 2)
        k[:, :, 0] = 8 * head_dim**0.5
    elif regime == "needle":
        of = torch.repeat_interleave(sequence, k_lens, output_size=tokens)
        chosen = torch.where(sequence % 2 == 0, k_lens - 1, 0) + k_starts[:-1]
        is_needle = (torch.arange(tokens, device=device) == chosen[of])[:, None, None]
        direction = normal(num_heads, head_dim).sign()
        strength = (k_lens[of].float().log() + 4)[:, None, None]
        q += direction
        k = torch.where(is_needle, (direction * strength / head_dim**0.5).bfloat16(), k)
        v *= 1 + 3 * is_needle
    return {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": q_starts.to(torch.int32),
        "cu_seqlens_k": k_starts.to(torch.int32),
    }


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
