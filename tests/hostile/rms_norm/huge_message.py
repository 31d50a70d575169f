# gate: correctness
# reason: ^first call \(nominal\): ValueError: (tensor\([-\de., ]+\) ){9}.{200,400} \.\.\. \(line
#         \d+, in forward\)$
"""The message is megabytes long."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise ValueError(" ".join(map(str, x.float().flatten()[:1000])) * 100)
