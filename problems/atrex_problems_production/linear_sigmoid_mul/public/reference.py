"""Linear layer, sigmoid, and a product: the definition, in plain torch.

    z   = hidden_states @ weight.T + bias
    out = sigmoid(z) * post_mul_mat

The matrix product accumulates in fp32 and `z` is rounded to bf16; sigmoid and product are fp32;
`out` is rounded to bf16. An implementation may keep `z` in fp32.
"""

import torch

_STEP = 1 << 25
"""Elements whose fp32 copies exist at once."""


class Model(torch.nn.Module):
    """Gate `post_mul_mat` [tokens, out] by a linear layer of `hidden_states` [tokens, hidden]."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        post_mul_mat: torch.Tensor,
    ) -> torch.Tensor:
        """Return bf16 [tokens, out]. `weight` is [out, hidden] and `bias` is [out]."""
        z = torch.nn.functional.linear(hidden_states, weight, bias)
        step = max(1, _STEP // z.shape[-1])
        for gate, post in zip(z.split(step), post_mul_mat.split(step), strict=True):
            gate.copy_(torch.sigmoid(gate.float()) * post.float())
        return z
