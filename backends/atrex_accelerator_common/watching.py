"""Reading a device's state through a library that may fail or hang.

Nothing is ever set. A broken driver may keep whoever asks it, so each reading has a thread of its
own and a time limit; after one failure there is a reason and no second try.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from attrs import define, field

from atrex_core import Conditions

T = TypeVar("T")

_FIRST_LIMIT_S: Final = 5.0
"""Importing and attaching to a large machine's GPUs comes with the first reading."""
_LIMIT_S: Final = 1.0


@define(eq=False)
class Watch(ABC):
    """Reads one device's conditions, until a first failure."""

    driver: ClassVar[str]
    """Who hangs, in messages."""
    library: ClassVar[str]
    """Who fails."""
    wanted: ClassVar[str]
    """Which package to install; `extra` brings it."""
    extra: ClassVar[str]

    first_limit_s: float = field(default=_FIRST_LIMIT_S, kw_only=True)
    limit_s: float = field(default=_LIMIT_S, kw_only=True)
    _attached: bool = field(default=False, init=False)
    _trouble: str | None = field(default=None, init=False)

    def read(self) -> Conditions:
        """Return what the library tells now; what it does not is None, and `reason` says why."""
        if self._trouble is None:
            limit_s = self.limit_s if self._attached else self.first_limit_s
            try:
                return _within(limit_s, self._attach_and_read)
            except TimeoutError:
                self._trouble = f"{self.driver} did not answer within {limit_s:g} s"
            except ImportError as error:
                self._trouble = (
                    f"clocks and power need {self.wanted}: {error}; "
                    f"pip install 'atrex-eval[{self.extra}]'"
                )
            except Exception as error:  # noqa: BLE001  (whatever the bindings raise: it is no time)
                self._trouble = f"{self.library} fails: {' '.join(str(error).split())}"
        return Conditions(reason=self._trouble)

    def _attach_and_read(self) -> Conditions:
        if not self._attached:
            self._attach()
            self._attached = True
        return self._read()

    @abstractmethod
    def _attach(self) -> None:
        """Import the library and find the device. Raises whatever it likes."""

    @abstractmethod
    def _read(self) -> Conditions:
        """Ask for everything. Raises whatever it likes, but not for what is merely not told."""


class Told:
    """Asks for one thing after another, and keeps what was refused."""

    def __init__(self, refusal: Callable[[Exception], str | None]) -> None:
        """Take what turns an error into the library's words for "not told", or into None."""
        self._refusal = refusal
        self._refused: dict[str, list[str]] = {}

    def __call__(self, name: str, ask: Callable[[], Any]) -> Any:
        """Return what `ask` returns, None where it is refused; `name` is the condition's."""
        try:
            return ask()
        except Exception as error:
            words = self._refusal(error)
            if words is None:
                raise
            self.refuse(name, words)
            return None

    def refuse(self, name: str, why: str) -> None:
        """Note that `name` was not told."""
        self._refused.setdefault(why, []).append(name)

    def gaps(self) -> str:
        """Return what was not told, by the library's words for why."""
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in self._refused.items())


def _within(limit_s: float, work: Callable[[], T]) -> T:
    """Do `work` in a thread that nobody waits for longer.

    Raises:
        TimeoutError: it is not done by then. What `work` raises passes through.
    """
    answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((work(), None))
        except Exception as error:  # noqa: BLE001  (raised again by whoever waits)
            answers.put((None, error))

    threading.Thread(target=answer, name="conditions", daemon=True).start()
    try:
        found, error = answers.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]  # there is one where there is no error
