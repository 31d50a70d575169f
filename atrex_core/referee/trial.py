"""One candidate on one workload, through the gates in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from attrs import define, evolve, field

from atrex_core.comparison import Comparison
from atrex_core.interfaces import Problem, Stage, Tensor
from atrex_core.journal import NOT_ASKED
from atrex_core.model import Gate, GateResult, Outcome, Workload
from atrex_core.printable import one_line, plain
from atrex_core.processes.messages import (
    Broken,
    Build,
    Call,
    CloseWorkload,
    Done,
    OpenWorkload,
)
from atrex_core.processes.workers import Answer, Died, Worker
from atrex_core.referee import verdicts
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import (
    Bench,
    Case,
    Truth,
    correctness_regimes,
    first_wrong,
    is_blank,
    judge_outputs,
)
from atrex_core.referee.docket import Docket
from atrex_core.referee.findings import Findings, is_same
from atrex_core.referee.laps import Lap, Laps
from atrex_core.referee.roof import Measurement
from atrex_core.referee.stopwatch import Stopwatch

_A_DAY_S = 86400.0
_BY_CASE = "outputs of a correctness case"


class _Ended(Exception):
    """A gate has failed, or nothing more can be said: the later gates do not run."""


class _Again(Exception):
    """What happened may not be the candidate's doing: only a second time will tell."""


@define(eq=False)
class Trial:
    """Mutable while it runs; `Evaluation` is what remains of it."""

    bench: Bench
    docket: Docket
    problem: Problem
    workload: Workload
    announce: Callable[[Gate, GateResult], None]
    gates: dict[Gate, GateResult] = field(factory=dict)
    seeds: list[int] = field(factory=list)
    flags: set[str] = field(factory=set)
    measurement: Measurement | None = None
    peak_memory_bytes: int | None = None
    compile_seconds: float | None = None
    laps: Laps = field(factory=Laps)
    _arena: Arena | None = None
    _worker: Worker | None = None
    _case: Case | None = None
    _own_launches: int = 0
    _launched: tuple[str, ...] = ()

    def run(self) -> None:
        """Go through the gates; afterwards `gates` holds every word spoken."""
        try:
            self._go_through()
        except _Again:
            self.docket.forgive()
            self.gates.clear()
            self.flags.clear()
            self.seeds.clear()
            self._go_through()

    def _go_through(self) -> None:
        if self.bench.device.virtual:
            self.flags.add("virtual")
        try:
            with self.laps.within(Lap.OPEN):
                self._open()
            with self.laps.within(Lap.COMPILE):
                self._compile()
            for gate, step in (
                (Gate.CORRECTNESS, self._correctness),
                (Gate.PERFORMANCE, self._performance),
                (Gate.AUTHENTICITY, self._authenticity),
            ):
                if not self._is_asked_for(gate):
                    reason = f"{NOT_ASKED} (--until {self.bench.setup.until})"
                    self._speak(gate, GateResult(outcome=Outcome.SKIPPED, reason=reason))
                    continue
                with self.laps.within(_LAPS[gate]):
                    step()
        except _Ended:
            pass
        finally:
            with self.laps.within(Lap.CLOSE):
                self._close()

    # -- opening and closing -------------------------------------------------------------------

    def _open(self) -> None:
        with self.laps.within(Lap.START):
            worker = self.docket.ensure_worker()
        if not isinstance(worker, Worker):
            self._charge(worker, Gate.COMPILE)
        self._worker = worker
        room = self.bench.context.free_bytes()
        sets, cold = self.bench.rotation(self.problem, self.workload, room)
        needed = self.bench.needed_bytes(self.problem, self.workload, sets)
        if room is not None and needed > room:
            self._skip_for_want_of_memory(f"about {needed} bytes, of which {room} are free")
        if self.bench.accelerator.is_timed and not cold and not self.bench.context.overrun_caches():
            self.flags.add("warm")
        try:
            self._arena = Arena.allocate(
                self.bench.context,
                self.problem.inputs(self.workload),
                self.problem.outputs(self.workload),
                sets=sets,
                output_sets=self.bench.held_sets(self.problem, self.workload, sets, room),
            )
        except MemoryError as error:
            self._skip_for_want_of_memory(str(error))
        handles, fds = self._arena.export()
        answer = worker.ask(
            OpenWorkload,
            timeout_s=self._timeout_s,
            fds=fds,
            init=dict(self.workload.init),
            container=self.problem.container,
            in_place=dict(self.problem.in_place),
            buffers=handles,
            input_sets=self._arena.input_sets,
            output_sets=self._arena.output_sets,
        )
        if not isinstance(answer, Done):
            self._charge(answer, Gate.COMPILE)

    def _skip_for_want_of_memory(self, why: str) -> NoReturn:
        reason = f"needs more memory than {self.bench.device.id} has free: {why}"
        self._speak(Gate.COMPILE, GateResult(outcome=Outcome.SKIPPED, reason=reason))
        raise _Ended

    def _close(self) -> None:
        worker, arena = self._worker, self._arena
        if worker is not None and worker.alive and worker.strays():
            worker.stop()
        if worker is not None and worker.alive and arena is not None:
            answer = worker.ask(CloseWorkload, timeout_s=self._timeout_s)
            if isinstance(answer, Done):
                self.peak_memory_bytes = answer.peak_memory_bytes
            else:
                worker.stop()
        if arena is not None:
            arena.close()
        self._worker = self._arena = None

    # -- the gates -----------------------------------------------------------------------------

    def _compile(self) -> None:
        case = self._draw(self.problem.regimes(self.workload)[0])
        with self.laps.within(Lap.WAIT):
            ahead = self.docket.compiled_ahead(self.workload.id, self._timeout_s)
        answer = self._call(case, report=True)
        if isinstance(answer, Broken) or verdicts.is_compile_failure(answer):
            self._charge(answer, Gate.COMPILE)
        reports = self.docket.restated(answer.reports if isinstance(answer, Done) else ())
        kernels = [verdicts.kernel_report(r) for r in reports]
        details: dict[str, Any] = {"kernels": kernels, "targets": {}}
        if ahead is not None:
            details["ahead"] = ahead.details()
        claimed = [
            report.compile_seconds
            for report in self.docket.first_seen(reports)
            if report.compile_seconds is not None
        ]
        seconds = [s for s in claimed if 0 <= s < _A_DAY_S]
        self.compile_seconds = sum(seconds) if seconds else None
        failed: list[str] = []
        if self._live.alive:  # a call that raised has launched, and so compiled, what it needs
            for target in self.bench.setup.targets:
                built = self._build(target)
                details["targets"][target] = built
                if built["outcome"] != Outcome.PASSED:
                    failed.append(str(built["reason"]))
        if failed:
            result = GateResult(outcome=Outcome.FAILED, reason="; ".join(failed), details=details)
            self._end(Gate.COMPILE, result)
        if self.bench.setup.targets and not details["targets"]:
            reason = "not built for the targets asked for: the first call ended the process"
            skipped = GateResult(outcome=Outcome.SKIPPED, reason=reason, details=details)
            self._speak(Gate.COMPILE, skipped)
        else:
            self._speak(Gate.COMPILE, GateResult(outcome=Outcome.PASSED, details=details))
        if not isinstance(answer, Done) and self._is_asked_for(Gate.CORRECTNESS):
            # It compiled, and then failed while running.
            self._charge(answer, Gate.CORRECTNESS, case=f"first call ({case.regime})")

    def _build(self, target: str) -> dict[str, Any]:
        answer = self._live.ask(Build, timeout_s=self._timeout_s, target=target)
        if isinstance(answer, Done):
            kernels = [verdicts.kernel_report(r) for r in self.docket.restated(answer.reports)]
            return {"outcome": Outcome.PASSED, "reason": None, "kernels": kernels}
        if isinstance(answer, Broken):
            self._charge(answer, Gate.COMPILE)
        if isinstance(answer, Died):
            self._charge(answer, Gate.COMPILE, case=f"building for {target}")
        return {"outcome": Outcome.FAILED, "reason": answer.reason, "message": answer.details}

    def _correctness(self) -> None:
        regimes = correctness_regimes(self.problem, self.workload, self.bench.setup.cases)
        found = Findings(regimes=regimes)
        for number, regime in enumerate(regimes):
            case = self._draw(regime)
            label = f"case {number} ({regime})"
            answers = {label: self._answer(case, label)}
            if not number and not self.bench.device.virtual:  # a stand-in has an order of its own
                again = f"{label}, called again"
                repeated = self._answer(case, again)
                found.is_deterministic = is_same(answers[label], repeated)
                if not found.is_deterministic:
                    answers[again] = repeated
            with self.laps.within(Lap.JUDGE):
                truth = Truth.of(self.problem, self.workload, case.inputs)
                for said, outputs in answers.items():
                    found.note(self._judge(case, outputs, truth, number, said))
        self._refuse_strays(Gate.CORRECTNESS)
        result = GateResult(outcome=Outcome.PASSED, details=found.details())
        self._speak(Gate.CORRECTNESS, result)

    def _answer(self, case: Case, label: str) -> Mapping[str, Tensor]:
        """Return what a call answers, or end the trial where it does not or changes an input."""
        answer = self._call(case)
        if not isinstance(answer, Done):
            gate = Gate.COMPILE if verdicts.is_compile_failure(answer) else Gate.CORRECTNESS
            self._charge(answer, gate, case=label)
        outputs = self._held.snapshot_outputs()
        updated = self.problem.in_place.values()
        if changed := self._held.changed_inputs(0, case.inputs, updated=updated):
            reason = f"{label}: forward changed its input {changed[0]!r}"
            details = {"caught_by": _BY_CASE}
            caught = GateResult(outcome=Outcome.FAILED, reason=reason, details=details)
            self._end(Gate.CORRECTNESS, caught)
        return outputs

    def _judge(
        self, case: Case, outputs: Mapping[str, Tensor], truth: Truth, number: int, label: str
    ) -> Mapping[str, Comparison]:
        """Return how right outputs are, or end the trial where one is not."""
        comparisons = judge_outputs(self.problem, self.workload, case.inputs, outputs, truth)
        if wrong := first_wrong(comparisons):
            self._refuse_strays(Gate.CORRECTNESS)  # one may have written the output
            name, comparison = wrong
            where = {"case": number, "output": name, "caught_by": _BY_CASE}
            details = {**where, **comparison.details}
            reason = f"{label}: output {name!r}: {comparison.reason}"
            result = GateResult(outcome=Outcome.FAILED, reason=reason, details=details)
            self._end(Gate.CORRECTNESS, result)
        return comparisons

    def _performance(self) -> None:
        if not self.bench.accelerator.is_timed:
            self._speak(Gate.PERFORMANCE, verdicts.untimed(self.bench.device.id))
            return
        parts = (self.bench, self._live, self._held, self.problem, self.workload)
        stopwatch = Stopwatch(*parts, self.docket.next_epoch, self.laps)
        with self.docket.pause_ahead() as standstill:
            found = stopwatch.measure(self._draw)
        if isinstance(found, GateResult):
            self._end(Gate.PERFORMANCE, found)
        if not isinstance(found, Measurement):
            self._charge(found, Gate.PERFORMANCE)
        self._refuse_strays(Gate.PERFORMANCE)
        if standstill.moved:
            self._end(Gate.PERFORMANCE, verdicts.left_behind(verdicts.WOKEN))
        self.measurement = found
        self.flags |= set(found.flags)
        errors = self.gates[Gate.CORRECTNESS].details
        spoken = verdicts.performance(found, errors=errors, launches=self._own_launches)
        self._speak(Gate.PERFORMANCE, spoken)

    def _authenticity(self) -> None:
        details: dict[str, Any] = {
            "launches": self._own_launches,
            "kernels": list(self._launched),
        }
        dsl = self.bench.backend.name
        if not self._own_launches:
            self._end(Gate.AUTHENTICITY, verdicts.without_own_launch(dsl, details))
        case = self._draw(self.problem.regimes(self.workload)[0])
        with self.docket.pause_ahead():
            answer = self._call(case, knock_out=True)
        if self._live.alive:
            self._refuse_strays(Gate.AUTHENTICITY)
        if isinstance(answer, Broken):
            self._charge(answer, Gate.AUTHENTICITY)
        if isinstance(answer, Done):
            outputs = self._held.snapshot_outputs()
            with self.laps.within(Lap.JUDGE):
                is_right = not is_blank(outputs) and not first_wrong(
                    judge_outputs(self.problem, self.workload, case.inputs, outputs)
                )
            if is_right:
                self._end(Gate.AUTHENTICITY, verdicts.right_without_launches(dsl, details))
            details["knock_out"] = "wrong without the launches"
        else:
            details["knock_out"] = "no answer without the launches"
        self._speak(Gate.AUTHENTICITY, GateResult(outcome=Outcome.PASSED, details=details))

    # -- shared steps --------------------------------------------------------------------------

    def _draw(self, regime: str) -> Case:
        with self.laps.within(Lap.DRAW):
            case = Case.draw(self.bench, self.problem, self.workload, regime)
        self._case = case
        self.seeds.append(case.seed)
        return case

    def _call(self, case: Case, *, knock_out: bool = False, report: bool = False) -> Answer:
        arena = self._held
        arena.write_inputs(0, case.inputs)
        arena.poison_outputs()
        self.bench.context.synchronize()
        stage = Stage.AUTHENTICITY if knock_out else Stage.CORRECTNESS
        answer = self._live.ask(
            Call, timeout_s=self._timeout_s, stage=stage, knock_out=knock_out, report=report
        )
        if isinstance(answer, Done) and not knock_out:
            own = [launch for launch in answer.launches if launch.own]
            self._own_launches = len(own)
            self._launched = tuple(sorted({launch.kernel for launch in answer.launches}))
        return answer

    def _refuse_strays(self, gate: Gate) -> None:
        """Let no process outlive the call that started it: it could work, or spy, later on."""
        if strays := self._live.strays():
            reason = f"forward left {len(strays)} process(es) behind: {', '.join(strays[:3])}"
            self._live.stop()
            self._end(gate, verdicts.left_behind(reason))

    def _charge(self, answer: Answer, gate: Gate, *, case: str = "") -> NoReturn:
        """Turn an answer that is no `Done` into a failed or errored gate, and end the trial."""
        if self.docket.may_forgive(answer):
            raise _Again
        if isinstance(answer, Broken) and self._worker is not None:
            self._worker.stop()  # who knows what state it is in
        on_stand_in = self.bench.device.virtual
        self._end(gate, verdicts.from_answer(answer, case=case, on_stand_in=on_stand_in))

    def _end(self, gate: Gate, result: GateResult) -> NoReturn:
        """Speak for a gate and end the trial, with what it takes to see the failure again."""
        if self._case is not None:
            again = {"regime": self._case.regime, "seed": self._case.seed}
            result = evolve(result, details={**again, **result.details})
        self._speak(gate, result)
        raise _Ended

    def _speak(self, gate: Gate, result: GateResult) -> None:
        reason = one_line(result.reason) if result.reason else None
        result = evolve(result, reason=reason, details=plain(dict(result.details)))
        self.gates[gate] = result
        self.announce(gate, result)

    def _is_asked_for(self, gate: Gate) -> bool:
        gates = tuple(Gate)
        return gates.index(gate) <= gates.index(self.bench.setup.until)

    @property
    def _timeout_s(self) -> float:
        return self.docket.limits.timeout_s

    @property
    def _live(self) -> Worker:
        assert self._worker is not None, "_open comes first"
        return self._worker

    @property
    def _held(self) -> Arena:
        assert self._arena is not None, "_open comes first"
        return self._arena


_LAPS = {
    Gate.CORRECTNESS: Lap.CALL,
    Gate.PERFORMANCE: Lap.WALL,
    Gate.AUTHENTICITY: Lap.EVIDENCE,
}
"""What a gate spends where it does not say more."""
