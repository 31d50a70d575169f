"""The production pack: operators and shapes observed in serving, judged strictly.

Each folder with a `private.py` is one operator; adding a folder adds the operator. Importing this
package imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from atrex_core import Problem, hookimpl
from atrex_core.packs import BrokenProblem, operators


@hookimpl
def atrex_problems() -> Iterator[Problem | BrokenProblem]:
    """Yield every operator of the pack, by name."""
    return operators(__name__, name="production", version="3.0")
