"""A candidate's file as a module, and its `Model` as an object that keeps the contract."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from attrs import frozen

from atrex_core.processes.messages import Fault

MODULE_NAME = "candidate"


class CandidateFault(Exception):
    """The candidate failed. Becomes a `Refused`."""

    def __init__(self, fault: Fault, reason: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}


class ContractBreach(CandidateFault):
    """The candidate does not look as the contract says."""

    def __init__(self, reason: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(Fault.CONTRACT, reason, details)


@frozen
class LoadedCandidate:
    """An imported candidate."""

    module: ModuleType
    model: type[Any]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Import the file at `path`.

        Raises:
            ContractBreach: it has no class `Model` that is a `torch.nn.Module`.
        """
        spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
        assert spec is not None, "a .py file always has a loader"
        assert spec.loader is not None, "a .py file always has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE_NAME] = module
        spec.loader.exec_module(module)
        return cls(module, _model_class(module))

    def construct(self, init: Mapping[str, Any], parameters: Sequence[str]) -> Any:
        """Return `Model(**init)`, ready to be called with `parameters` by keyword.

        Raises:
            ContractBreach: a signature does not fit.
        """
        _check_signature(self.model, "Model", init)
        model = self.model(**init)
        _check_signature(model.forward, "forward", dict.fromkeys(parameters))
        return model


def _model_class(module: ModuleType) -> type[Any]:
    import torch

    model = vars(module).get("Model")
    if model is None:
        raise ContractBreach("the file defines no class `Model`")
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise ContractBreach("`Model` is not a subclass of torch.nn.Module")
    return model


def _check_signature(target: Any, name: str, arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # it has none to check; calling it will tell
    try:
        signature.bind(**arguments)
    except TypeError as error:
        wanted = ", ".join(arguments) or "no arguments"
        raise ContractBreach(
            f"`{name}{signature}` cannot be called with keywords ({wanted}): {error}"
        ) from error
