"""The fork server: imports torch and the DSL once, then forks a worker for each candidate.

It only imports. It runs no tensor operation (a parent that ran a parallel one makes forked
children hang), initialises no device, loads no problem pack, and knows no secret.

A server for workers without a device forks branches, copies of itself that answer on a channel
of their own, so that each has one worker at most and ends what that leaves behind.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from atrex_core.interfaces import Accelerator, Backend
from atrex_core.plugins import PluginHost
from atrex_core.processes import linux, stand_ins, worker
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.family import below
from atrex_core.processes.fork_server import Role
from atrex_core.processes.messages import Branch, Exited, Kill, Spawn, Spawned, Warm
from atrex_core.processes.scratch import remove_scratch
from atrex_core.processes.stage import StageCell

_NICENESS = 10
"""Of everything that works without a device: nobody who holds one is to wait for it."""
_BRANCH_END_S = 5.0


@define(eq=False)
class _Live:
    pid: int
    pidfd: int
    scratch: str


@define(eq=False)
class ForkServer:
    """One backend, one accelerator, at most one worker at a time."""

    channel: Channel
    backend: Backend
    accelerator: Accelerator
    _live: _Live | None = None
    _cache: str | None = None
    """The latest worker's: ours to remove once nobody else is there to do it."""
    _branches: dict[int, int] = field(factory=dict)
    """Their pids, by pidfd."""
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)

    def serve(self) -> None:
        """Answer until the referee goes away, then leave nothing behind."""
        with self._selector as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            try:
                while True:
                    if self._live and self._live.pidfd not in selector.get_map():
                        selector.register(self._live.pidfd, selectors.EVENT_READ)
                    for key, _ in selector.select():
                        if self._live and key.fd == self._live.pidfd:
                            selector.unregister(key.fd)
                            self.channel.send(self._bury())
                        elif key.fd in self._branches:
                            selector.unregister(key.fd)
                            self._prune(key.fd)
                        else:
                            self._obey()
            except ChannelClosed:
                self._bury(kill=True)
                self._fell()
                if self._cache is not None:
                    remove_scratch(Path(self._cache))

    def _obey(self) -> None:
        match self.channel.receive():
            case Spawn(scratch=scratch, cache=cache):
                self._cache = cache
                fds = self.channel.take_fds()
                self.channel.send(Spawned(pid=self._spawn(scratch, fds)))
            case Branch():
                (fd,) = self.channel.take_fds()
                self.channel.send(Spawned(pid=self._branch(fd)))
            case Kill(pid=pid) if self._live and self._live.pid == pid:
                linux.kill_group(pid)
            case _:
                return  # it ended before the order arrived

    def _spawn(self, scratch: str, fds: list[int]) -> int:
        channel_fd, output_fd, stage_fd = fds
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                linux.die_with_parent(server)
                os.setsid()
                self.channel.close()
                self._selector.close()  # shared with us, it could be made deaf
                worker.become(
                    Channel.from_fd(channel_fd),
                    StageCell.open(stage_fd),
                    output_fd=output_fd,
                    scratch=Path(scratch),
                    backend=self.backend,
                    accelerator=self.accelerator,
                )
                status = 0
            finally:
                os._exit(status)
        for fd in fds:
            os.close(fd)
        self._live = _Live(pid, os.pidfd_open(pid), scratch)
        return pid

    def _bury(self, *, kill: bool = False) -> Exited:
        if self._live is None:
            return Exited(pid=0, status=0, strays=0)
        live, self._live = self._live, None
        if kill:
            linux.kill_group(live.pid)
        _, raw = os.waitpid(live.pid, 0)
        linux.kill_group(live.pid, leader=False)
        strays = _end_orphans()
        os.close(live.pidfd)
        remove_scratch(Path(live.scratch))
        return Exited(pid=live.pid, status=os.waitstatus_to_exitcode(raw), strays=strays)

    def _branch(self, channel_fd: int) -> int:
        trunk = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                linux.die_with_parent(trunk)
                linux.adopt_orphans()
                os.setsid()
                self.channel.close()
                self._selector.close()
                channel = Channel.from_fd(channel_fd)
                ForkServer(channel, self.backend, self.accelerator).serve()
            finally:
                os._exit(0)
        os.close(channel_fd)
        pidfd = os.pidfd_open(pid)
        self._branches[pidfd] = pid
        self._selector.register(pidfd, selectors.EVENT_READ)
        return pid

    def _prune(self, pidfd: int) -> None:
        """Bury a branch, and end what its worker has left to us."""
        pid = self._branches.pop(pidfd)
        os.close(pidfd)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        _end_orphans(besides=self._branches.values())

    def _fell(self) -> None:
        """See off every branch: each hears that the referee is gone, and tidies up."""
        ends = time.monotonic() + _BRANCH_END_S
        for pidfd, pid in list(self._branches.items()):
            if not select.select([pidfd], [], [], max(0.0, ends - time.monotonic()))[0]:
                linux.kill_group(pid)
            self._prune(pidfd)


def _end_orphans(*, besides: Collection[int] = ()) -> int:
    """Kill and reap every process that a worker left to us; return how many were running."""
    ended: set[int] = set()
    while orphans := below(os.getpid(), besides=besides):
        ended |= {pid for pid in orphans if not linux.is_zombie(pid)}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none forks while others are killed
            for pid in orphans:
                linux.send_quietly(pid, number)
        for pid in orphans:
            with suppress(ChildProcessError):  # a child of theirs, not yet ours to reap
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)  # a killed process takes a moment to become a zombie
    return len(ended)


def main(arguments: list[str]) -> None:
    """Run as `python -P -m atrex_core.processes.server FD ROLE BACKEND ACCELERATOR PLUGIN...`."""
    fd, role, backend_name, accelerator_name, *plugins = arguments
    if role == Role.AHEAD:
        os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the orchestrator's
    linux.adopt_orphans()
    channel = Channel.from_fd(int(fd))
    started = time.monotonic()
    host = PluginHost.discover(only=plugins)
    backend = host.backends[backend_name]
    backend.preload()
    if role == Role.AHEAD:
        stand_ins.preload()
    for module in ("inspect", "importlib.util", "resource", "traceback", "faulthandler"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # workers share these pages, and need not look through them when they collect
    try:
        channel.send(Warm(seconds=time.monotonic() - started))
    except ChannelClosed:
        return  # the referee could not start
    ForkServer(channel, backend, host.accelerators[accelerator_name]).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
