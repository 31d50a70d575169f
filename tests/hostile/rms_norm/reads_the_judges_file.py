# gate: correctness
# reason: FileNotFoundError: .*private\.json
"""The private half is looked for where it lies in a pack: beside the public one."""

import pathlib

import torch


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        public = pathlib.Path("problem").absolute()
        assert (public / "shapes.json").is_file()
        return (public.parent / "private.json").read_text()
