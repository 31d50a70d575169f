"""Claims about what the files of a release say: no private fact, and code that needs none."""

from __future__ import annotations

import ast
import platform
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen

from atrex_core.release.claims import Claim, claim
from atrex_core.release.contents import MANIFEST
from atrex_core.release.facts import Facts
from atrex_core.release.numbers import numbers_in

_SUBJECT = "text"
_EVALUATOR = re.compile(
    r"(?<!\w)atrex_\w*|(?<!\w)roofline|(?<!\w)(?:private|variants)\.(?:py|json)(?!\w)",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w./])/(?:home|root|tmp|usr|opt|mnt|srv|var|data|work)/\w+")
_MODULES = frozenset(
    {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math"}
    | {"operator", "torch", "typing"}
)
"""What public code may import: it is to run with torch alone."""
_REACHING = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open"}
    | {"vars", "__builtins__", "__file__", "__loader__", "__spec__"}
)
_TORCH_REACHING = frozenset(
    {"classes", "cpp_extension", "from_file", "hub", "load", "load_library", "ops", "save"}
)
_LEAST_NAME = 4


@frozen(kw_only=True)
class Texts:
    """The files of a release, as texts."""

    files: Mapping[str, str]
    """By relative path."""
    not_text: Sequence[str] = field(factory=tuple)

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Texts:
        texts, odd = {}, []
        for path, content in files.items():
            try:
                texts[path] = content.decode()
            except UnicodeDecodeError:
                texts[path] = content.decode("latin-1")
                odd.append(path)
        return cls(files=texts, not_text=odd)

    def beside(self, release_id: str) -> Iterator[tuple[str, str]]:
        """Yield the files of one problem, and those of no problem."""
        for path, text in self.files.items():
            if "/" not in path or path.startswith(f"{release_id}/"):
                yield path, text


def text_claims(texts: Texts, facts: Sequence[Facts], places: Iterable[Path]) -> Iterator[Claim]:
    """Yield what can be said of the texts alone; `places` are folders of this machine."""
    numbers = sum(len(known.numbers) for known in facts)
    ordinary = sum(known.ordinary for known in facts)
    yield claim(
        _SUBJECT,
        "no weight, time, count, cost or tolerance is there",
        (leak for known in facts for leak in _numbers(texts, known)),
        proved=f"{numbers} numbers looked for; {ordinary} facts are too ordinary to look for",
    )
    words = {word for known in facts for word in known.words}
    yield claim(
        _SUBJECT,
        "no kernel, framework, device or source that the private files name is there",
        _words(texts, facts),
        proved=f"{len(words)} texts looked for",
    )
    yield claim(
        _SUBJECT,
        "no problem is called as a kernel that its private files name",
        (leak for known in facts for leak in _called(known)),
        proved=f"{len(facts)} names",
    )
    names = {name for known in facts for name in known.names}
    yield claim(
        _SUBJECT,
        "nothing that private code defines is named: no mutant, variant or rule",
        (leak for known in facts for leak in _names(texts, known)),
        proved=f"{len(names)} names looked for",
    )
    yield claim(
        _SUBJECT,
        "nothing of the evaluator is named",
        _matching(texts, _EVALUATOR),
        proved=f"{len(texts.files)} files",
    )
    known_places = _places(places)
    yield claim(
        _SUBJECT,
        "no place on this machine is named",
        [*_matching(texts, _PATH), *_holding(texts, known_places)],
        proved=f"{len(known_places)} places looked for",
    )
    yield claim(
        _SUBJECT,
        "public code needs torch alone and reaches for nothing outside itself",
        [*(f"{path!r} is no text" for path in texts.not_text), *_reaching(texts)],
        proved=f"{sum(path.endswith('.py') for path in texts.files)} modules",
    )


def _numbers(texts: Texts, known: Facts) -> Iterator[str]:
    for path, text in texts.beside(known.release_id):
        if path == MANIFEST:  # sizes and digests of files, and nothing else: see the folder
            continue
        for written, keys in numbers_in(text):
            for key in keys & known.numbers.keys():
                yield f"{path!r} has {written} ({known.numbers[key]})"


def _words(texts: Texts, facts: Sequence[Facts]) -> Iterator[str]:
    """Look for each problem's words beside it; for those of several problems, everywhere."""
    folded = evolve(texts, files={path: text.casefold() for path, text in texts.files.items()})
    counted = Counter(word for known in facts for word in known.words)
    common = {w: of for known in facts for w, of in known.words.items() if counted[w] > 1}
    yield from _having(folded.files.items(), common)
    for known in facts:
        own = {w: of for w, of in known.words.items() if counted[w] == 1}
        yield from _having(folded.beside(known.release_id), own)


def _having(files: Iterable[tuple[str, str]], words: Mapping[str, str]) -> Iterator[str]:
    for path, text in files:
        for word, where in words.items():
            if word in text and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                yield f"{path!r} has {word!r} ({where})"


def _called(known: Facts) -> Iterator[str]:
    own = _bare(known.release_id)
    for word, where in known.words.items():
        other = _bare(word)
        is_name = not re.search(r"\s", word) and len(other) >= _LEAST_NAME
        if is_name and (own in other or other in own):
            yield f"{known.release_id!r} is like {word!r} ({where}): it needs another release id"


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _names(texts: Texts, known: Facts) -> Iterator[str]:
    for path, text in texts.beside(known.release_id):
        for word in dict.fromkeys(re.findall(r"\w+", text)):
            if word in known.names:
                yield f"{path!r} has {word!r} ({known.names[word]})"


def _matching(texts: Texts, pattern: re.Pattern[str]) -> Iterator[str]:
    for path, text in texts.files.items():
        for match in pattern.finditer(text):
            yield f"{path!r} has {match.group()!r}"


def _places(places: Iterable[Path]) -> list[str]:
    found = {str(path) for path in (*places, Path(sys.prefix), Path.home())}
    found = {path for path in found if path.count("/") > 1}
    host = platform.node()
    if re.search(r"[\d-]", host):  # no ordinary word
        found.add(host)
    return sorted(found)


def _holding(texts: Texts, wanted: Sequence[str]) -> Iterator[str]:
    for path, text in texts.files.items():
        yield from (f"{path!r} has {place!r}" for place in wanted if place in text)


def _reaching(texts: Texts) -> Iterator[str]:
    for path, text in texts.files.items():
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            yield f"{path!r} is no Python: {error}"
            continue
        for node in ast.walk(tree):
            for what in _reach(node):
                yield f"{path!r} line {getattr(node, 'lineno', 0)}: {what}"


def _reach(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            for name in names:
                yield from _imported(name.name)
        case ast.ImportFrom(module=module, names=names):
            for name in names:
                yield from _imported(f"{'.' * node.level}{module or ''}.{name.name}")
        case ast.Name(id=name) if name in _REACHING:
            yield name
        case ast.Attribute(attr=name) if name in _TORCH_REACHING and _is_torchs(node):
            yield f"torch's {name}"
        case ast.Attribute(attr=name) if name.startswith("__") and name != "__init__":
            yield name


def _imported(name: str) -> Iterator[str]:
    top, *rest = name.split(".")
    if top not in _MODULES or (top == "torch" and _TORCH_REACHING & set(rest)):
        yield f"import of {name!r}"


def _is_torchs(node: ast.Attribute) -> bool:
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return isinstance(inner, ast.Name) and inner.id == "torch"
