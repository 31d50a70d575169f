# gate: compile
# reason: ^SyntaxError: 'return' outside function .*\(line 9\)$
"""A function has lost its first line."""

import torch

Model = torch.nn.RMSNorm
# def build():
return Model  # noqa: F706
