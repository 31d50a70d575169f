"""What only the evaluator knows of a problem, in forms that can be looked for in a text.

Collected from the private files beside the public ones and from what the problem's own methods
say, whatever a pack has put there: no list of kinds to keep up with.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import attrs
from attrs import frozen

from atrex_core.interfaces import Problem
from atrex_core.model import DType, Phase, Rule
from atrex_core.release.matching import LONG, spelled
from atrex_core.release.numbers import keys_of, plain
from atrex_core.release.view import PUBLIC_FILES

_RELEASE_ID = "release_id"
"""The key of the one text of a private file that is made to be shown."""
_LEAST_WORD = 3
_DISTINCTIVE = re.compile(r"\b[A-Z]\w*-[A-Z]\w*|\b(?=\w*\d)(?=\w*[a-z])\w{6,}")
"""Words of a sentence that are no ordinary ones: Some-Name, 1a2b3c4."""


@frozen(kw_only=True)
class Facts:
    """The private facts of one problem, each with where it was found."""

    release_id: str
    numbers: Mapping[str, str]
    """By what `numbers_in` yields for them."""
    words: Mapping[str, str]
    """Texts of the private files."""
    names: Mapping[str, str]
    """What private code defines, and what wrong and honest implementations are called."""
    tried: frozenset[str]
    """Those of names that wrong and honest implementations have."""
    ordinary: int
    """Facts that could be met anywhere, and are not looked for: 27, 0.5, `zeros`."""


def facts_of(problem: Problem) -> Facts:
    """Collect the facts of a problem. Runs the pack's code: what that raises comes through."""
    found = _Collected()
    public = _Public.of(problem)
    _from_methods(problem, found)
    for path in _private_files(problem):
        if path.suffix == ".json":
            for key, leaf in _leaves(json.loads(path.read_bytes())):
                if key != _RELEASE_ID:
                    found.add(leaf, f"{path.name}: {key}" if key else path.name)
        else:
            _from_code(path, found, public)
    mutants, variants = problem.mutants(), problem.variants()
    for name in [n for n in found.names if spelled(n).parts in public.vocabulary]:
        del found.names[name]
    for kind, names in (("mutant", mutants), ("variant", variants)):
        for name in names:
            found.name(name, f"the name of a {kind}")
    for word in public.words:
        found.words.pop(word, None)
    return Facts(
        release_id=problem.release_id,
        numbers={key: of for key, of in found.numbers.items() if key not in public.numbers},
        words=found.words,
        names=found.names,
        tried=frozenset({*mutants, *variants}),
        ordinary=found.ordinary,
    )


class _Collected:
    """Facts on their way into `Facts`."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}
        self.words: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.ordinary = 0

    def add(self, leaf: object, where: str) -> None:
        """Add a value of a private file."""
        match leaf:
            case bool() | None:
                return
            case int() | float():
                self.number(leaf, where)
            case str():
                self.text(leaf, where)

    def number(self, value: float, where: str) -> None:
        keys = list(keys_of(value))
        for key in keys:
            self.numbers.setdefault(key, where)
        self.ordinary += not keys

    def text(self, text: str, where: str) -> None:
        parts = [text]
        if " " in text:
            parts += [match.group() for match in _DISTINCTIVE.finditer(text)]
        else:
            parts += text.split("/")
        for part in parts:
            if len(part.strip()) >= _LEAST_WORD:
                self.words.setdefault(part.strip().casefold(), where)

    def name(self, name: str, where: str) -> None:
        """Add an identifier, unless it is a word that any text may use."""
        bare = name.strip("_")
        if "_" in bare or re.search(r"[a-z0-9][A-Z]", bare):
            self.names.setdefault(name, where)
        else:
            self.ordinary += 1


@frozen(kw_only=True)
class _Public:
    """What a release says by itself, and may: told from the problem, not from its public files.

    Of numbers, sizes of tensors alone: what merely stands among a workload's axes is no excuse.
    """

    vocabulary: frozenset[tuple[str, ...]]
    """Names that candidate and evaluator must agree on, taken apart."""
    code: frozenset[tuple[str, ...]]
    """Names in public code, taken apart."""
    numbers: frozenset[str]
    words: frozenset[str]

    @classmethod
    def of(cls, problem: Problem) -> _Public:
        vocabulary: set[str] = set()
        sizes: set[int] = set()
        for workload in problem.workloads:
            specs = (*problem.inputs(workload), *problem.outputs(workload))
            vocabulary |= {*workload.axes, *workload.init, *problem.regimes(workload)}
            vocabulary |= {spec.name for spec in specs}
            sizes |= {size for spec in specs for size in spec.shape}
        return cls(
            vocabulary=frozenset(spelled(name).parts for name in vocabulary),
            code=frozenset(spelled(name).parts for name in _names_in_code(problem)),
            numbers=frozenset(key for n in sizes for key in (*keys_of(n), plain(n))),
            words=frozenset({*map(str, DType), *map(str, Phase)}),
        )


def _from_methods(problem: Problem, found: _Collected) -> None:
    found.number(problem.importance, "importance")
    found.number(problem.importance * 100, "importance in percent")
    if problem.prevalence is not None:
        found.number(problem.prevalence, "prevalence")
    found.text(problem.provenance, "provenance")
    for weight in (*problem.workload_weights().values(), *problem.phase_weights().values()):
        found.number(weight.share, "the weight of a workload or phase")
    for workload in problem.workloads:
        cost = problem.cost(workload)
        for value in (*cost.flops.values(), cost.read_bytes, cost.write_bytes, cost.total_bytes):
            found.number(value, f"work or bytes of workload {workload.id}")
        for output in problem.outputs(workload):
            if output.dtype.is_floating:
                for value in attrs.asdict(problem.tolerance(output)).values():
                    found.add(value, "the tolerance of an output")
    for rule in get_args(Rule):
        found.names.setdefault(rule.__name__, "a rule of comparison")
        for field in attrs.fields(rule):
            found.name(field.name, "a rule of comparison")


def _private_files(problem: Problem) -> Iterator[Path]:
    """Yield what lies beside a problem's public folder, and beside its problems in a pack."""
    folder = _folder(problem)
    if folder is None:
        return
    public = folder / "public"
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".py") and not path.is_relative_to(public):
            yield path
    if (folder.parent / "__init__.py").is_file():
        for path in sorted(folder.parent.iterdir()):
            if path.suffix in (".json", ".py") and path.is_file():
                yield path


def _folder(problem: Problem) -> Path | None:
    for path in problem.public_files:
        if path.parent.name == "public":
            return path.parent.parent
    return None


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, object]]:
    match value:
        case dict():
            for name, inner in value.items():
                if any(char.isupper() for char in name):  # a name, where others are nouns
                    yield key, name
                yield from _leaves(inner, name)
        case list():
            for inner in value:
                yield from _leaves(inner, key)
        case _:
            yield key, value


def _from_code(path: Path, found: _Collected, public: _Public) -> None:
    tree = ast.parse(path.read_bytes())
    for name in _defined(tree):
        if len(spelled(name).bare) < LONG:
            found.ordinary += 1
        elif spelled(name).parts not in public.code:
            found.name(name, f"defined in {path.name}")


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield every function and class, and what modules and classes hold; no local variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else ()
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _names_in_code(problem: Problem) -> Iterator[str]:
    for path in problem.public_files:
        if path.name not in PUBLIC_FILES or path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    yield name
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.keyword(arg=str(name)):
                    yield name
