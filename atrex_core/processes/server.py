"""The fork server: imports torch and the DSL once, then forks a worker for each candidate.

It only imports. It runs no tensor operation (a parent that ran a parallel one makes forked
children hang), initialises no device, loads no problem pack, and knows no secret.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import sys
import time
from pathlib import Path

from attrs import define, field

from atrex_core.interfaces import Accelerator, Backend
from atrex_core.plugins import PluginHost
from atrex_core.processes import linux, worker
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.messages import Exited, Kill, Spawn, Spawned, Warm
from atrex_core.processes.scratch import remove_scratch
from atrex_core.processes.stage import StageCell


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
                        else:
                            self._obey()
            except ChannelClosed:
                self._bury(kill=True)

    def _obey(self) -> None:
        match self.channel.receive():
            case Spawn(scratch=scratch):
                fds = self.channel.take_fds()
                self.channel.send(Spawned(pid=self._spawn(scratch, fds)))
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


def _end_orphans() -> int:
    """Kill and reap every process that a worker left to us; return how many were running."""
    ended: set[int] = set()
    while orphans := linux.descendants(os.getpid()):
        ended |= {pid for pid in orphans if not linux.is_zombie(pid)}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none forks while others are killed
            for pid in orphans:
                linux.send_quietly(pid, number)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.001)  # a killed process takes a moment to become a zombie
    return len(ended)


def main(arguments: list[str]) -> None:
    """Run as `python -P -m atrex_core.processes.server FD BACKEND ACCELERATOR PLUGIN...`."""
    fd, backend_name, accelerator_name, *plugins = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the orchestrator's
    linux.adopt_orphans()
    channel = Channel.from_fd(int(fd))
    started = time.monotonic()
    host = PluginHost.discover(only=plugins)
    backend = host.backends[backend_name]
    backend.preload()
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
