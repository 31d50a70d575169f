# gate: compile
# reason: ^`Model` is not a subclass of torch.nn.Module$
"""Offers a function where a class is wanted."""


def Model(eps):
    return lambda x, weight: x
