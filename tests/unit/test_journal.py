"""The journal: appended line by line, read whatever happened to it, locked by one run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from atrex_core import (
    Adoption,
    Bound,
    Candidate,
    Ceiling,
    Conditions,
    Device,
    Evaluation,
    Gap,
    Gate,
    GateResult,
    Isolation,
    Limiter,
    Origin,
    Outcome,
    Pack,
    Phase,
    Protocol,
    Scale,
    Share,
    ThrottleReason,
    Timing,
    TimingConditions,
    UsageError,
)
from atrex_core.journal import Damage, Encoding, Journal, upgraded

FROZEN_1 = Path(__file__).parents[1] / "journals" / "v1.jsonl"
FROZEN_2 = FROZEN_1.with_name("v2.jsonl")
FROZEN_3 = FROZEN_1.with_name("v3.jsonl")
SOURCE = b"import torch\n\n\nclass Model(torch.nn.Module):\n    pass  # \xc3\xa9\n"
PASSED = GateResult(outcome=Outcome.PASSED, details={"cases": 5})
EVALUATION = Evaluation(
    id="1a2b3c",
    submission="mine",
    candidate="kernels/norm.py",
    digest=hashlib.sha256(SOURCE).hexdigest(),
    pack=Pack(name="acme", version="1.0", digest="p1"),
    problem="norm",
    workload="8x1024",
    phase=Phase.DECODE,
    origin=Origin.PUBLISHED,
    scale=Scale.FULL,
    backend="acmelang",
    accelerator="acme",
    device=Device(
        id="acme:0",
        accelerator="acme",
        vendor="acme",
        name="Anvil 2",
        arch="anvil2",
        memory_bytes=137438953472,
        compute_units=128,
        driver="7.1",
    ),
    target="anvil2",
    profile="acme-anvil-2",
    profile_digest="f00d",
    protocol=Protocol.STRICT,
    isolation=Isolation.PROCESS,
    gates={Gate.COMPILE: PASSED, Gate.CORRECTNESS: PASSED, Gate.PERFORMANCE: PASSED},
    flags=("latency_bound",),
    timing=Timing(device_us=3.25, call_us=4.5, method="held queue", samples_us=(3.25, 3.5, 3.0)),
    bound=Bound(t_sol_us=1.5, limiter=Limiter.MEMORY, ceiling=Ceiling.SPEC),
    share_of_roofline=Share(device=0.46, call=0.33),
    adoption=Adoption(share=1.0, basis="measured", evidence=("launch log",)),
    peak_memory_bytes=4096,
    compile_seconds=0.75,
    seeds=(11, 18446744073709551615),
    importance=0.0625,
    seconds=2.5,
    environment={"torch": "2.13.0"},
    started_at="2026-01-02T03:04:05+00:00",
)
CANDIDATE = Candidate(
    name="mine", problem="norm", backend="acmelang", path=Path("norm.py"), source=SOURCE
)


def test_an_evaluation_is_one_line_that_reads_back_equal(path: Path, written: Any) -> None:
    data = written(path, EVALUATION)

    assert data.count(b"\n") == 1
    assert data.startswith(b'{"schema": 3, "kind": "evaluation", "id": "1a2b3c", ')
    assert data.endswith(b"}\n")
    assert list(Journal(path)) == [EVALUATION]


OF_2 = evolve(
    EVALUATION,
    timing=Timing(
        device_us=3.25,
        call_us=4.5,
        method="held queue",
        samples_us=(3.25, 3.5, 3.0),
        held_us=3.75,
        conditions=TimingConditions(
            before=Conditions(clock_mhz=1980.0, throttle_reasons=(ThrottleReason.IDLE,)),
            after=Conditions(clock_mhz=1755.0, throttle_reasons=(), power_w=512.5),
        ),
    ),
    gap=Gap(
        launch_us=1.25,
        device_us=1.75,
        fallback_us=None,
        limiter=Limiter.LATENCY,
        launch_floor_us=2.0,
        unmeasured={"fallback": "nobody has looked"},
    ),
)
"""With everything that schema 2 added."""
NOW = evolve(OF_2, stage_seconds={"start": 0.5, "judge": 1.25})
"""With everything that schema 3 added."""


def test_a_frozen_journal_of_schema_1_reads_back(path: Path) -> None:
    journal = Journal(FROZEN_1)

    assert list(journal) == [EVALUATION, evolve(EVALUATION, id="9f8e7d", timing=None)]
    assert [record.content for record in journal.candidates().values()] == [SOURCE]
    assert journal.damaged == ()


def test_this_release_writes_what_is_frozen(path: Path) -> None:
    with Journal(path) as journal:
        journal.add_candidate(CANDIDATE)
        journal.append(NOW)
        journal.append(evolve(NOW, id="9f8e7d", timing=None, gap=None))

    assert path.read_bytes() == FROZEN_3.read_bytes()


def test_a_frozen_journal_of_schema_2_reads_back() -> None:
    journal = Journal(FROZEN_2)

    assert list(journal) == [OF_2, evolve(OF_2, id="9f8e7d", timing=None, gap=None)]
    assert [record.content for record in journal.candidates().values()] == [SOURCE]
    assert journal.damaged == ()


def test_a_candidate_is_written_once_and_can_be_rebuilt(path: Path) -> None:
    with Journal(path) as journal:
        journal.add_candidate(CANDIDATE)
        journal.add_candidate(CANDIDATE)
    with Journal(path) as journal:
        journal.add_candidate(CANDIDATE)

    (line,) = path.read_text().splitlines()
    record = Journal(path).candidates()[CANDIDATE.digest]
    assert json.loads(line) == {
        "schema": 3,
        "kind": "candidate",
        "digest": CANDIDATE.digest,
        "backend": "acmelang",
        "problem": "norm",
        "name": "mine",
        "encoding": "utf-8",
        "source": SOURCE.decode(),
    }
    assert record.candidate(Path("norm.py")) == CANDIDATE


def test_a_candidate_that_is_not_text_is_rebuilt_byte_for_byte(path: Path) -> None:
    candidate = evolve(CANDIDATE, source=bytes(range(256)))

    with Journal(path) as journal:
        journal.add_candidate(candidate)

    record = Journal(path).candidates()[candidate.digest]
    assert record.encoding is Encoding.BASE64
    assert record.content == bytes(range(256))


def test_a_source_that_does_not_have_its_digest_is_damage(path: Path) -> None:
    with Journal(path) as journal:
        journal.add_candidate(CANDIDATE)
    path.write_text(path.read_text().replace("import torch", "import os"))

    journal = Journal(path)

    assert dict(journal.candidates()) == {}
    assert journal.damaged == (Damage(1, "a candidate's source does not have its digest"),)


def test_an_empty_file_is_a_journal_with_nothing(path: Path) -> None:
    path.touch()

    journal = Journal(path)

    assert list(journal) == []
    assert journal.damaged == ()
    assert journal.completed() == frozenset()


def test_a_half_written_last_line_is_reported_and_later_lines_are_whole(
    path: Path, written: Any
) -> None:
    first = evolve(EVALUATION, id="first")
    data = written(path, first, evolve(EVALUATION, id="lost"))
    path.write_bytes(data[:-400])

    with Journal(path) as journal:
        journal.append(evolve(EVALUATION, id="after"))

    assert [evaluation.id for evaluation in journal] == ["first", "after"]
    assert [damage.line for damage in journal.damaged] == [2]
    assert str(journal.damaged[0]).startswith("line 2: half-written or not JSON: ")
    assert path.read_bytes().startswith(data[:-400] + b"\n{")


@pytest.mark.parametrize("kept", range(1, 12))
def test_a_journal_cut_in_its_first_characters_goes_on(path: Path, kept: int, written: Any) -> None:
    data = written(path, EVALUATION)
    path.write_bytes(data[:kept])

    with Journal(path) as journal:
        journal.append(EVALUATION)

    assert list(journal) == [EVALUATION]
    assert [damage.line for damage in journal.damaged] == [1]


def test_a_last_line_that_lacks_only_its_end_is_whole(path: Path, written: Any) -> None:
    path.write_bytes(written(path, EVALUATION).rstrip(b"\n"))

    with Journal(path) as journal:
        journal.append(evolve(EVALUATION, id="after"))

    assert [evaluation.id for evaluation in journal] == ["1a2b3c", "after"]
    assert journal.damaged == ()


GARBAGE = {
    "text": (b"hello", "half-written or not JSON: "),
    "not utf-8": (b"\xff\xfe", "half-written or not JSON: "),
    "zeros": (b"\0" * 100, "half-written or not JSON: "),
    "nan": (b'{"schema": 2, "kind": "evaluation", "seconds": NaN}', "half-written or not JSON: "),
    "list": (b"[1]", "not a record: it has no schema number"),
    "no schema": (b'{"kind": "evaluation"}', "not a record: it has no schema number"),
    "schema 0": (b'{"schema": 0}', "not a record: it has no schema number"),
    "schema true": (b'{"schema": true}', "not a record: it has no schema number"),
    "no kind": (b'{"schema": 1}', "not a record: its kind is None"),
    "unknown kind": (b'{"schema": 1, "kind": "note"}', "not a record: its kind is 'note'"),
    "no fields": (
        b'{"schema": 2, "kind": "evaluation"}',
        "not a valid Evaluation: required field missing @ $.id",
    ),
    "unknown field": (
        (
            b'{"schema": 1, "kind": "candidate", "digest": "d", "backend": "b", "problem": "p", '
            b'"name": "n", "encoding": "utf-8", "source": "s", "more": 1}'
        ),
        "not a valid SourceRecord: unknown field more @ $",
    ),
    "broken base64": (
        (
            b'{"schema": 1, "kind": "candidate", "digest": "d", "backend": "b", "problem": "p", '
            b'"name": "n", "encoding": "base64", "source": "*"}'
        ),
        "a candidate's source cannot be decoded: ",
    ),
}


@pytest.mark.parametrize(("line", "reason"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_in_the_middle_is_reported_and_skipped(
    path: Path, line: bytes, reason: str, written: Any
) -> None:
    first, last = evolve(EVALUATION, id="first"), evolve(EVALUATION, id="last")
    path.write_bytes(
        written(path, first) + b"\n" + line + b"\n" + written(path.with_name("other.jsonl"), last)
    )

    journal = Journal(path)

    assert list(journal) == [first, last]
    (damage,) = journal.damaged
    assert damage.line == 3
    assert damage.reason.startswith(reason)


def test_joined_journals_are_a_journal(path: Path) -> None:
    other = path.with_name("other.jsonl")
    with Journal(path) as one, Journal(other) as two:
        for journal, name in ((one, "one"), (two, "two")):
            journal.add_candidate(CANDIDATE)
            journal.append(evolve(EVALUATION, id=name))

    joined = path.with_name("joined.jsonl")
    joined.write_bytes(path.read_bytes() + other.read_bytes() + path.read_bytes())

    assert [evaluation.id for evaluation in Journal(joined)] == ["one", "two"]
    assert list(Journal(joined).candidates()) == [CANDIDATE.digest]
    assert Journal(joined).damaged == ()


def test_joining_behind_a_half_written_line_loses_only_that_line(path: Path, written: Any) -> None:
    other = path.with_name("other.jsonl")
    half = written(path, evolve(EVALUATION, id="lost"))[:-300]
    joined = path.with_name("joined.jsonl")
    joined.write_bytes(half + written(other, evolve(EVALUATION, id="kept")))

    journal = Journal(joined)

    assert [evaluation.id for evaluation in journal] == ["kept"]
    assert [damage.line for damage in journal.damaged] == [1]


def test_a_newer_schema_is_refused(path: Path, written: Any) -> None:
    path.write_bytes(written(path, EVALUATION) + b'{"schema": 4, "kind": "evaluation"}\n')

    with pytest.raises(UsageError) as caught:
        list(Journal(path))
    with pytest.raises(UsageError), Journal(path):
        pass

    assert str(caught.value) == f"'{path}' line 2 has schema 4; this release reads up to 3"
    assert caught.value.hint == "upgrade atrex-eval"


def test_an_older_record_is_upgraded_one_step_at_a_time() -> None:
    steps = {
        1: lambda record: {**record, "flags": []},
        2: lambda record: {**record, "flags": [*record["flags"], "from 2"]},
    }

    assert upgraded({"schema": 1, "id": "x"}, to=3, steps=steps) == {
        "schema": 3,
        "id": "x",
        "flags": ["from 2"],
    }
    assert upgraded({"schema": 3, "id": "x"}, to=3, steps=steps) == {"schema": 3, "id": "x"}


def test_a_run_reads_what_it_has_written(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EVALUATION)
        before = [evaluation.id for evaluation in journal]
        journal.append(evolve(EVALUATION, id="second"))

        assert before == ["1a2b3c"]
        assert [evaluation.id for evaluation in journal] == ["1a2b3c", "second"]
