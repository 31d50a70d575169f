"""What a worker prints: drained so that it never blocks, kept only at both ends."""

from __future__ import annotations

import os
import threading

_KEEP_BYTES = 8192
_LAST_WORDS_S = 0.5


class OutputDrain:
    """Reads a pipe in a thread until every writer has closed it."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        self._head, self._tail = bytearray(), bytearray()
        self.total_bytes = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Close our copy of the writing end, once the worker has its own."""
        os.close(self.write_fd)

    def text(self) -> str:
        """Return the beginning and the end of what was printed, once every writer is gone."""
        self._thread.join(_LAST_WORDS_S)  # what was still in the pipe when the worker died
        head, tail = bytes(self._head), bytes(self._tail)
        skipped = self.total_bytes - len(head) - len(tail)
        gap = f"\n[... {skipped} bytes ...]\n" if skipped > 0 else ""
        return head.decode(errors="replace") + gap + tail.decode(errors="replace")

    def _drain(self) -> None:
        with os.fdopen(self._read_fd, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                self.total_bytes += len(chunk)
                room = _KEEP_BYTES - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:][-_KEEP_BYTES:]
                del self._tail[:-_KEEP_BYTES]
