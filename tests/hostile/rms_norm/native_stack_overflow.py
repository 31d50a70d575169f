# gate: correctness
# reason: ^first call \(nominal\): the process was killed by SIGSEGV \(segmentation fault\) during
#         correctness \(line \d+, in \w+\)$
"""Calls itself through C until the stack is used up."""

import sys

import torch


def down(x):
    return max((x,), key=down)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        sys.setrecursionlimit(10**9)
        return down(x)
