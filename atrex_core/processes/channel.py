"""Typed messages over a socket pair, with file descriptors beside them.

Nothing received is unpickled or executed: a frame is a fixed header, then strict JSON that is
structured into one known class. The peer may be hostile, so a frame's size is checked before
its body is read, and whatever is malformed raises `ProtocolViolation` and nothing else.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Self

from attrs import define, field

from atrex_core import codec
from atrex_core.processes.messages import CODES, MESSAGES

_HEADER = struct.Struct("!4sHHI")
_MAGIC = b"ATRX"
_MAX_FDS = 8
_SEND_TIMEOUT_S = 30.0


class ProtocolViolation(Exception):
    """The peer sent something that is no message."""


class ChannelClosed(Exception):
    """The peer has gone."""


class DeadlineExpired(Exception):
    """No whole message arrived in time."""


@define(eq=False)
class Channel:
    """One end of a connection. Not thread-safe: one owner reads and writes."""

    sock: socket.socket
    max_bytes: int = 64 * 2**20
    accepts_fds: bool = True
    """False: descriptors that the peer sends are dropped by the kernel, never opened here."""
    _buffer: bytearray = field(factory=bytearray, init=False)
    _fds: list[int] = field(factory=list, init=False)

    @classmethod
    def pair(
        cls, *, max_bytes: int = 64 * 2**20, accepts_fds: bool = True
    ) -> tuple[Self, socket.socket]:
        """Return our end, and the bare socket to hand to the other process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours, max_bytes, accepts_fds), theirs

    @classmethod
    def from_fd(cls, fd: int, *, max_bytes: int = 64 * 2**20) -> Self:
        """Adopt an inherited descriptor."""
        return cls(socket.socket(fileno=fd), max_bytes)

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self.sock.fileno()

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send one message; `fds` are duplicated into the receiver.

        Raises:
            ChannelClosed: the peer has gone.
        """
        body = codec.dumps(message).encode()
        frame = _HEADER.pack(_MAGIC, CODES[type(message)], len(fds), len(body)) + body
        control: list[tuple[int, int, Any]] = []
        if fds:
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self.sock.settimeout(_SEND_TIMEOUT_S)  # a peer that stops reading must not stop us
            sent = self.sock.sendmsg([frame], control)
            if sent < len(frame):
                self.sock.sendall(frame[sent:])
        except (OSError, ValueError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, *, deadline: float | None = None) -> Any:
        """Return the next message; descriptors that came with it are in `take_fds`.

        After `DeadlineExpired` it may be called again: what arrived so far is kept.

        Args:
            deadline: a `time.monotonic` value, or None to wait for ever.

        Raises:
            ChannelClosed: the peer has gone before a whole message arrived.
            DeadlineExpired: no whole message arrived in time.
            ProtocolViolation: what arrived is no message.
        """
        self._await(_HEADER.size, deadline)
        magic, code, fd_count, length = _HEADER.unpack_from(self._buffer)
        most_fds = _MAX_FDS if self.accepts_fds else 0
        if magic != _MAGIC or code not in MESSAGES or fd_count > most_fds:
            raise ProtocolViolation("a frame without a valid header")
        if length > self.max_bytes:
            raise ProtocolViolation(f"a frame of {length} bytes; the limit is {self.max_bytes}")
        end = _HEADER.size + length
        self._await(end, deadline)
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        if len(self._fds) < fd_count:
            raise ProtocolViolation("descriptors are missing")
        try:
            return codec.loads_untrusted(body, MESSAGES[code])
        except codec.ProtocolError as error:
            raise ProtocolViolation(str(error)) from error

    def take_fds(self) -> list[int]:
        """Return, and forget, the descriptors received so far. The caller closes them."""
        fds, self._fds = self._fds, []
        return fds

    def close(self) -> None:
        """Close this end and every descriptor nobody took."""
        for fd in self.take_fds():
            os.close(fd)
        self.sock.close()

    def _await(self, count: int, deadline: float | None) -> None:
        while len(self._buffer) < count:
            self._fill(deadline)

    def _fill(self, deadline: float | None) -> None:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise DeadlineExpired
        space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize) if self.accepts_fds else 0
        try:
            self.sock.settimeout(remaining)
            data, control, _, _ = self.sock.recvmsg(1 << 20, space)
        except TimeoutError as error:
            raise DeadlineExpired from error
        except (OSError, ValueError) as error:
            raise ChannelClosed(str(error)) from error
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self._fds.extend(received)
        if not data:
            raise ChannelClosed("end of stream")
        self._buffer += data
