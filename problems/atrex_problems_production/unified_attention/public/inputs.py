"""Inputs of `unified_attention`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few loud keys at places that the seed decides
    ragged     other lengths: queries are shared out anew between sequences that have several, and
               before them stand some cached tokens, or none; wide scores, so that few keys decide
    flat       queries of zero: every key that a query sees counts the same.
               Values have large parts that cancel: of one sign in the first third of a sequence,
               of the other in the second
    peaked     scores far from zero, above it in one head and below it in the next, and twice as far
               in the second half of a sequence: softmax must subtract its maximum, which moves
    needle     one key decides for all queries of a sequence that see it: the key of one of them,
               often of the last
    crowd      one key that all queries of a sequence see leads, and all others are each far
               lighter, but their values agree: together they count about as much
In `needle`, lengths are as in `ragged`; elsewhere as given. Blocks are in order in `published`
alone. Outside `published` and `nominal`, whatever must not be read holds large finite values: slots
past the end of a sequence, and blocks that a table names beyond those in use.
"""

import torch

REGIMES = ("published", "nominal", "ragged", "flat", "peaked", "needle", "crowd")

LIGHT = 4096
"""How many times lighter, at least, a key of the crowd is than the leading one."""

LOUD = 10_000.0
"""What must not be read: a weight of 0 removes it."""

CANCELLING = 256.0
"""Parts of values that cancel, in units of the mean of all values, at most."""

SUMMED = 2.0**28
"""Those parts times how many there are, in units of the dtype's precision, at most.

Tensor cores truncate whenever they add: what that costs must stay far below the tolerance.
"""


def make_inputs(
    num_seqs: int,
    seq_lens: list[int],
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int = 16,
    kv_lens: list[int] | None = None,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `seq_lens` queries for each sequence, and a paged cache with two spare blocks for each.

    A sequence's newest tokens are its queries' own; it has `kv_lens` tokens, or as many as queries.
    """
    if regime not in REGIMES:
        raise ValueError(f"unknown regime {regime!r}")
    is_hard = regime not in ("published", "nominal")
    rng = torch.Generator(device).manual_seed(seed)
    rows = sum(seq_lens)
    width = -(-max(kv_lens or seq_lens) // block_size) + 2
    blocks = width * num_seqs + 64

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    q = normal(rows, num_query_heads, head_size)
    k = normal(blocks, block_size, num_kv_heads, head_size)
    v = normal(blocks, block_size, num_kv_heads, head_size)
    sequence = torch.arange(num_seqs, device=device)
    q_lens = torch.tensor(seq_lens, device=device)
    k_lens = torch.tensor(kv_lens or seq_lens, device=device)
    places = torch.arange(num_seqs * width, device=device).view(num_seqs, width)
    if regime != "published":
        places = _scattered(blocks, rng, device)[places]
    if regime in ("ragged", "needle"):
        order = torch.randperm(num_seqs, generator=rng, device=device)
        room = width * block_size
        q_lens = _resplit(q_lens, order, uniform(num_seqs // 2), room)
        before = (uniform(num_seqs) * (room - q_lens)).long() + 1
        is_even = (q_lens + before) % block_size == 0  # ends with a block: most should not
        before += is_even * torch.where(before > 1, -1, 1)
        k_lens = q_lens + before.minimum(room - q_lens) * (sequence % 4 != 3)
    token = torch.arange(width * block_size, device=device)
    starts = torch.nn.functional.pad(q_lens.cumsum(0), (1, 0))

    if regime == "nominal":
        step = 8 + rows // 1024
        row = torch.arange(0, rows, step, device=device)
        row = row + (uniform(len(row)) * (rows - row).clamp(max=step)).long()
        of = torch.searchsorted(starts, row, right=True) - 1
        newest = k_lens[of] - q_lens[of] + row - starts[of]
        # Of several queries each has its own key: two never share one.
        token = torch.where(q_lens[of] > 1, newest, (uniform(len(row)) * k_lens[of]).long())
        leader = q[row][:, :: num_query_heads // num_kv_heads].float()
        strength = ((newest + 1).float().log() + 3)[:, None, None]
        gain = strength * head_size**0.5 / leader.square().sum(-1, keepdim=True)
        at = places[of, token // block_size], token % block_size
        k[at] = (leader * gain).bfloat16()
        v[at] *= 4
    elif regime == "ragged":
        q *= 1.5
    elif regime == "flat":
        q.zero_()
        third = (k_lens // 3)[:, None]
        sign = (token < third).float() - ((token >= third) & (token < 2 * third)).float()
        size = _cancelling(k_lens, torch.bfloat16) / k_lens.clamp(min=1).float().sqrt()
        part = torch.zeros(blocks, block_size, device=device)
        part[places] = (sign * size[:, None]).view(num_seqs, width, block_size)
        v += part[:, :, None, None].bfloat16() * normal(num_kv_heads, head_size).sign()
    elif regime == "peaked":
        q *= 1.5
        q[:, :, 0] = 16.0 - 32.0 * (torch.arange(num_query_heads, device=device) % 2)
        level = torch.ones(blocks, block_size, device=device)
        level[places] += (2 * token >= k_lens[:, None]).view(num_seqs, width, block_size)
        k[:, :, :, 0] = 8 * head_size**0.5 * level[..., None]
    elif regime == "needle":
        chosen = (uniform(num_seqs) * q_lens).long()
        chosen = torch.where(sequence % 2 == 0, q_lens - 1, chosen)
        token = (k_lens - q_lens + chosen).clamp(min=0)
        direction = normal(num_kv_heads, head_size).sign()
        strength = (k_lens.clamp(min=1).float().log() + 4)[:, None, None]
        q += direction.repeat_interleave(num_query_heads // num_kv_heads, 0)
        at = places[sequence, token // block_size], token % block_size
        k[at] = (direction * strength / head_size**0.5).bfloat16()
        v[at] *= 4
    elif regime == "crowd":
        token = (uniform(num_seqs) * (k_lens - q_lens + 1)).long().minimum(k_lens - 1)
        lightness = k_lens.clamp(min=LIGHT).float()
        direction = normal(num_kv_heads, head_size)
        gain = head_size**0.5 / direction.float().square().sum(-1, keepdim=True)
        q = 0.5 * q + direction.repeat_interleave(num_query_heads // num_kv_heads, 0)
        k *= 0.5
        at = places[sequence, token // block_size], token % block_size
        k[at] = (direction * gain * lightness.log()[:, None, None]).bfloat16()
        leading = v[at]
        size = torch.ones(blocks, device=device)
        size[places] = (0.7 * lightness / k_lens.clamp(min=1)).clamp(min=1)[:, None]
        v = (0.25 * v + normal(num_kv_heads, head_size)) * size[:, None, None, None].bfloat16()
        v[at] = leading

    used = torch.arange(width, device=device) * block_size < k_lens[:, None]
    tables = places if is_hard else places * used
    if is_hard:
        live = torch.arange(width * block_size, device=device) < k_lens[:, None]
        dead = torch.ones(blocks, block_size, dtype=torch.bool, device=device)
        dead[places] = ~live.view(num_seqs, width, block_size)
        k.masked_fill_(dead[:, :, None, None], LOUD)
        v.masked_fill_(dead[:, :, None, None], LOUD)
    return {
        "q": q,
        "k_cache": k,
        "v_cache": v,
        "cu_seqlens_q": starts.to(torch.int32),
        "seqused_k": k_lens.to(torch.int32),
        "block_table": tables.to(torch.int32),
    }


def _cancelling(tokens: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    most = SUMMED * torch.finfo(kind).eps
    return (most / tokens.clamp(min=1).float()).clamp(max=CANCELLING)


def _resplit(
    lengths: torch.Tensor, order: torch.Tensor, share: torch.Tensor, room: int
) -> torch.Tensor:
    """Share out anew what two sequences of more than one query have together.

    Neither gets more than `room`; with no more than that together, one may get nothing.
    """
    pairs = len(share)
    first, second = order[:pairs], order[pairs : 2 * pairs]
    one, other = lengths[first], lengths[second]
    total = one + other
    least = (total - room).clamp(min=0)
    new = least + (share * (total - 2 * least + 1)).long()
    new = torch.where((one > 1) & (other > 1), new, one)
    lengths = lengths.clone()
    lengths[first], lengths[second] = new, total - new
    return lengths


def _scattered(blocks: int, rng: torch.Generator, device: str) -> torch.Tensor:
    """Return a permutation that leaves no block where it was: one cycle through all."""
    order = torch.randperm(blocks, generator=rng, device=device)
    where = torch.empty_like(order)
    where[order] = order.roll(-1)
    return where
