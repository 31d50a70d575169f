"""The production pack: operators and shapes observed in serving, judged strictly.

Each folder with a `private.py` is one operator; adding a folder adds the operator. Importing this
package imports no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from atrex_core import Pack, Problem, hookimpl

_ROOT = Path(__file__).parent


@hookimpl
def atrex_problems() -> Iterator[Problem]:
    """Yield every operator of the pack, by name."""
    pack = Pack(name="production", version="3.0", digest=_digest())
    for private in sorted(_ROOT.glob("*/private.py")):
        module = import_module(f"{__name__}.{private.parent.name}.private")
        yield module.Operator(pack)


def _digest() -> str:
    """Hash every file that decides a verdict, with its place in the pack."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*")):
        if path.suffix in (".py", ".json"):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(_ROOT).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()
