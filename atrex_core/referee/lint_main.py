"""The linter's process: set up once, then lint one task after another.

What a pack's code does to this process costs the task at hand, never the whole lint: the parent
reads what was being tried, and goes on with a new process.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator

from attrs import define, field

from atrex_core.device_choice import find_device
from atrex_core.errors import AtrexError, ExitCode
from atrex_core.interfaces import DeviceContext
from atrex_core.model import Protocol
from atrex_core.model.lint import Finding, Kind
from atrex_core.planning import problem_under
from atrex_core.plugins import PluginHost
from atrex_core.processes import linux
from atrex_core.processes.attempt import Attempt, AttemptCell
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.messages import Lint, Linted, LintReady, LintSetup, NotReady
from atrex_core.referee.faults import fault_of, release, said
from atrex_core.referee.isolation import Alone
from atrex_core.referee.lint import lint_workload
from atrex_core.referee.lint_checks import check_problem, check_workload

PULSE_S = 5.0


def main(arguments: list[str]) -> None:
    """Run as `python -P -m atrex_core.referee.lint_main CHANNEL_FD CELL_FD PARENT`."""
    channel_fd, cell_fd, parent = (int(word) for word in arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides what Ctrl-C means
    linux.die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a pack's abort leaves no file behind
    channel, cell = Channel.from_fd(channel_fd), AttemptCell.open(cell_fd)
    threading.Thread(target=_beat, args=(cell,), daemon=True).start()
    try:
        setup = channel.receive()
        assert isinstance(setup, LintSetup), "the first thing an orchestrator says"
        linter, ready = _prepare(setup, cell)
    except ChannelClosed:
        return
    except AtrexError as error:
        code = error.exit_code
        channel.send(NotReady(reason=str(error), hint=error.hint, exit_code=code))
        return
    except Exception as error:  # noqa: BLE001  (a plugin may raise anything: say it, and end)
        reason = f"the linter could not start: {said(error)}"
        channel.send(NotReady(reason=reason, hint="", exit_code=ExitCode.HARNESS_ERROR))
        return
    channel.send(ready)
    try:
        linter.serve(channel)
    finally:
        linter.alone.close()


@define(eq=False)
class Linter:
    """Answers the orchestrator until it hangs up."""

    setup: LintSetup
    host: PluginHost
    context: DeviceContext
    cell: AttemptCell
    alone: Alone
    _pid: int = field(factory=os.getpid, init=False)

    def serve(self, channel: Channel) -> None:
        """Lint what is asked for, in order."""
        while True:
            try:
                request = channel.receive()
            except ChannelClosed:
                return
            assert isinstance(request, Lint), "the only thing an orchestrator asks"
            started = time.perf_counter()
            findings = tuple(self._lint(request))
            if os.getpid() != self._pid:
                os._exit(1)  # a pack forked: the copy of us that comes back has no say
            self.cell.leave()
            channel.send(Linted(findings=findings, seconds=time.perf_counter() - started))
            if self.context.torch_device != "cpu":
                release(self.context.torch_device)

    def _lint(self, request: Lint) -> Iterator[Finding]:
        """Yield what is found, whatever the pack's code raises where nobody expects it."""
        try:
            yield from self._parts(request)
        except BaseException as error:  # noqa: BLE001  (it is the pack's code: say what it did)
            attempt = self.cell.attempt or Attempt(Kind.CHECK, "task")
            yield attempt.finding(request.task, *fault_of(error, self.context.torch_device))

    def _parts(self, request: Lint) -> Iterator[Finding]:
        task, without = request.task, frozenset(request.without)
        self.cell.enter(Attempt(Kind.CHECK, "workloads"))
        problem = problem_under(self.host, task.problem, task.protocol)
        if task.workload is None:
            yield from check_problem(
                problem, alone=self.alone, watch=self.cell.enter, without=without
            )
            return
        workload = next(w for w in problem.workloads if w.id == task.workload)
        device, seed, cases = self.context.torch_device, self.setup.seed, self.setup.cases
        if task.protocol is Protocol.STRICT:
            yield from check_workload(
                problem,
                workload,
                device=device,
                seed=seed,
                cases=cases,
                watch=self.cell.enter,
                without=without,
            )
        yield from lint_workload(
            problem,
            workload,
            protocol=task.protocol,
            device=device,
            seed=seed,
            cases=cases,
            watch=self.cell.enter,
            without=without,
        )


def _prepare(setup: LintSetup, cell: AttemptCell) -> tuple[Linter, LintReady]:
    logging.disable(logging.WARNING)  # the orchestrator has said what is wrong with plugins
    host = PluginHost.discover(disabled=setup.disabled_plugins)
    logging.disable(logging.NOTSET)
    accelerator, device = find_device(host, setup.device)
    import torch

    if setup.threads is not None:
        torch.set_num_threads(setup.threads)
    context = accelerator.open(device)
    environment = {
        "atrex_eval": importlib.metadata.version("atrex-eval"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **context.versions(),
    }
    linter = Linter(setup, host, context, cell, Alone(setup.timeout_s))
    return linter, LintReady(device=device, environment=environment)


def _beat(cell: AttemptCell) -> None:
    """Give signs of life for ever: a task may take long, or be stopped."""
    while True:
        cell.beat()
        time.sleep(PULSE_S)


if __name__ == "__main__":
    main(sys.argv[1:])
