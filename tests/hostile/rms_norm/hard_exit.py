# gate: correctness
# reason: ^first call \(nominal\): the process exited with status 0 instead of returning during
#         correctness$
"""Ends the process with success."""

import os

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        os._exit(0)
