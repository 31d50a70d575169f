"""How exceptions say that memory has run out, whichever library raised them."""

from __future__ import annotations

_WORDS = ("out of memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` says that a device, or the host, has no room left."""
    if isinstance(error, MemoryError):
        return True
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _WORDS)
