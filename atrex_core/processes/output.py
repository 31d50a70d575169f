"""What a worker prints: drained so that it never blocks, kept only at both ends."""

from __future__ import annotations

import os
import threading
from collections import deque

_KEEP_BYTES = 8192


class OutputDrain:
    """Reads a pipe in a thread until every writer has closed it."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        self._head = bytearray()
        self._tail: deque[bytes] = deque(maxlen=4)
        self.total_bytes = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Close our copy of the writing end, once the worker has its own."""
        os.close(self.write_fd)

    def text(self) -> str:
        """Return the beginning and the end of what was printed."""
        head = bytes(self._head).decode(errors="replace")
        tail = b"".join(self._tail)[-_KEEP_BYTES:].decode(errors="replace")
        skipped = self.total_bytes - len(self._head) - len(tail)
        gap = f"\n[... {skipped} bytes ...]\n" if skipped > 0 else ""
        return head + gap + tail

    def _drain(self) -> None:
        with os.fdopen(self._read_fd, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                self.total_bytes += len(chunk)
                room = _KEEP_BYTES - len(self._head)
                self._head += chunk[:room]
                if rest := chunk[max(room, 0) :]:
                    self._tail.append(rest[-_KEEP_BYTES:])
