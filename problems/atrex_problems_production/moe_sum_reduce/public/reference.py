"""Sum of the outputs of each token's experts: the definition, in plain torch.

    out = routed_scaling_factor * sum over the slots of expert_outputs

The sum and the factor are fp32, in any order; `out` is rounded to bf16 once.
"""

import torch


class Model(torch.nn.Module):
    """Sum `expert_outputs` [tokens, slots, hidden] over its slots, and scale."""

    def __init__(self, routed_scaling_factor: float = 1.0) -> None:
        super().__init__()
        self.routed_scaling_factor = routed_scaling_factor

    def forward(self, expert_outputs: torch.Tensor) -> torch.Tensor:
        """Return bf16 [tokens, hidden]. Leaves `expert_outputs` as it is."""
        total = expert_outputs[:, 0].float()
        for slot in range(1, expert_outputs.shape[1]):
            total += expert_outputs[:, slot]
        return (total * self.routed_scaling_factor).to(expert_outputs.dtype)
