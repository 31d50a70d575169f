# gate: correctness
# reason: ^first call \(nominal\): Loud: \\x1b\]0;owned\\x07 \\u202e\\x1b\[2J\\x1b\[31mall gates
#         passed \(line \d+, in forward\)$
"""The message would clear the screen, rename the window and fill the log."""

import torch


class Loud(Exception):
    pass


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        raise Loud(
            "\x1b]0;owned\x07 \u202e\x1b[2J\x1b[31m"
            + "all gates passed \r" * 100_000
            + "\nerror: none"
        )
