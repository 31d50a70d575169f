"""What a hostile peer can put on the wire, and that nothing of it gets through."""

from __future__ import annotations

import array
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.messages import CODES, Done, Exited, Spawn

_EXITED = b'{"pid": 7, "status": -9, "strays": 2}'


@frozen
class Wire:
    """Our end, and the bare socket of a peer that may write anything."""

    ours: Channel
    peer: socket.socket

    def receive(self, within_s: float = 5.0) -> object:
        return self.ours.receive(deadline=time.monotonic() + within_s)


@pytest.fixture
def wire() -> Iterator[Wire]:
    ours, peer = Channel.pair(max_bytes=1 << 20, accepts_fds=False)
    yield Wire(ours, peer)
    ours.close()
    peer.close()


def _frame(
    body: bytes, *, code: int = CODES[Exited], fds: int = 0, magic: bytes = b"ATRX"
) -> bytes:
    return struct.pack("!4sHHI", magic, code, fds, len(body)) + body


def test_message_arrives_as_it_was_sent(wire: Wire) -> None:
    Channel(wire.peer).send(Exited(pid=7, status=-9, strays=2))

    assert wire.receive() == Exited(pid=7, status=-9, strays=2)


def test_descriptors_travel_beside_a_message() -> None:
    ours, peer = Channel.pair()
    reading, writing = os.pipe()

    Channel(peer).send(Spawn(scratch="/nowhere"), [writing])

    assert ours.receive() == Spawn(scratch="/nowhere")
    (received,) = ours.take_fds()
    os.write(received, b"through")
    assert os.read(reading, 100) == b"through"
    for fd in (reading, writing, received):
        os.close(fd)
    ours.close()
    peer.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_are_a_violation_or_an_end(wire: Wire, seed: int) -> None:
    noise = random.Random(seed)
    start = b"ATRX" if seed % 2 else b""
    wire.peer.sendall(start + noise.randbytes(noise.randrange(200)))
    wire.peer.close()

    with pytest.raises((ProtocolViolation, ChannelClosed)):
        wire.receive()


@pytest.mark.parametrize("seed", range(40))
def test_damaged_message_is_a_violation_an_end_or_a_message(wire: Wire, seed: int) -> None:
    noise = random.Random(seed)
    frame = bytearray(_frame(_EXITED))
    for _ in range(1 + seed % 4):
        frame[noise.randrange(len(frame))] = noise.randrange(256)
    wire.peer.sendall(frame)
    wire.peer.close()

    try:
        found = wire.receive()
    except (ProtocolViolation, ChannelClosed):
        return
    assert isinstance(found, Exited)


@pytest.mark.parametrize("kept", range(len(_frame(_EXITED))))
def test_truncated_message_is_the_end_of_the_peer(wire: Wire, kept: int) -> None:
    wire.peer.sendall(_frame(_EXITED)[:kept])
    wire.peer.close()

    with pytest.raises(ChannelClosed):
        wire.receive()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(_frame(_EXITED, magic=b"HTTP"), id="wrong magic"),
        pytest.param(_frame(_EXITED, code=0), id="code zero"),
        pytest.param(_frame(_EXITED, code=999), id="code of no message"),
        pytest.param(_frame(_EXITED, code=CODES[Done]), id="code of another message"),
        pytest.param(_frame(_EXITED, fds=1), id="descriptors promised"),
        pytest.param(_frame(b""), id="no body"),
        pytest.param(_frame(b"[]"), id="not an object"),
        pytest.param(_frame(b'{"pid": "7", "status": 0, "strays": 0}'), id="text for a number"),
        pytest.param(_frame(b'{"pid": 7, "status": 0}'), id="missing field"),
        pytest.param(_frame(_EXITED[:-1] + b', "uid": 0}'), id="unknown field"),
        pytest.param(_frame(_EXITED[:-1] + b', "pid": 8}'), id="field twice"),
        pytest.param(_frame(b'{"pid": 1e999, "status": 0, "strays": 0}'), id="infinite number"),
        pytest.param(_frame(b'{"pid": ' + b"9" * 5000 + b"}"), id="endless number"),
        pytest.param(_frame(b'{"pid": "\xff"}'), id="not UTF-8"),
        pytest.param(_frame(b"\x80\x04\x95\x00."), id="a pickle"),
        pytest.param(_frame(b"[" * 100_000 + b"]" * 100_000), id="deep lists"),
        pytest.param(_frame(b'{"pid": ' * 50_000 + b"1" + b"}" * 50_000), id="deep objects"),
    ],
)
def test_malformed_message_is_a_violation(wire: Wire, frame: bytes) -> None:
    threading.Thread(target=wire.peer.sendall, args=(frame,), daemon=True).start()

    with pytest.raises(ProtocolViolation):
        wire.receive()


def test_violation_is_told_in_short_printable_text(wire: Wire) -> None:
    wire.peer.sendall(_frame(b'{"\\u001b[2J' + b"x" * 100_000 + b'": 1}'))

    with pytest.raises(ProtocolViolation) as caught:
        wire.receive()

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_oversized_message_is_refused_before_it_is_read(wire: Wire) -> None:
    wire.peer.sendall(struct.pack("!4sHHI", b"ATRX", CODES[Exited], 0, 2**32 - 1))

    with pytest.raises(ProtocolViolation, match=r"^a frame of 4294967295 bytes; the limit is "):
        wire.receive()


def test_slow_message_expires_and_can_be_waited_for_again(wire: Wire) -> None:
    frame = _frame(_EXITED)
    for byte in frame[:-1]:
        wire.peer.sendall(bytes([byte]))
        with pytest.raises(DeadlineExpired):
            wire.receive(within_s=0.001)
    wire.peer.sendall(frame[-1:])

    assert wire.receive() == Exited(pid=7, status=-9, strays=2)


def test_several_messages_in_one_packet_come_out_one_by_one(wire: Wire) -> None:
    wire.peer.sendall(3 * _frame(_EXITED) + _frame(b"x"))

    for _ in range(3):
        assert wire.receive() == Exited(pid=7, status=-9, strays=2)
    with pytest.raises(ProtocolViolation):
        wire.receive()


def test_flood_of_descriptors_opens_none(wire: Wire) -> None:
    reading, writing = os.pipe()
    before = len(list(Path("/proc/self/fd").iterdir()))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [reading] * 8))]
    for byte in _frame(_EXITED):
        wire.peer.sendmsg([bytes([byte])], rights)

    assert wire.receive() == Exited(pid=7, status=-9, strays=2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert wire.ours.take_fds() == []
    os.close(reading)
    os.close(writing)


def test_sending_to_nobody_says_that_the_peer_has_gone(wire: Wire) -> None:
    wire.peer.close()

    with pytest.raises(ChannelClosed):
        wire.ours.send(Exited(pid=1, status=0, strays=0))


def test_closed_descriptor_counts_as_a_peer_that_has_gone(wire: Wire) -> None:
    os.close(wire.ours.fileno())

    with pytest.raises(ChannelClosed):
        wire.ours.send(Exited(pid=1, status=0, strays=0))
    with pytest.raises(ChannelClosed):
        wire.receive()
    wire.ours.sock.detach()
