"""Claims about what the files of a release say: no private fact, and code that needs none."""

from __future__ import annotations

import platform
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from attrs import field, frozen

from atrex_core.release.claims import Claim, claim
from atrex_core.release.contents import MANIFEST
from atrex_core.release.facts import Facts
from atrex_core.release.matching import LEAST_HIDDEN, spelled, spellings
from atrex_core.release.numbers import is_scaled, numbers_in
from atrex_core.release.readings import Reading, readings
from atrex_core.release.sources import departures

_SUBJECT = "text"
_EVALUATOR = re.compile(
    r"(?<!\w)atrex_\w*|(?<!\w)roofline|(?<!\w)(?:private|variants)\.(?:py|json)(?!\w)",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w./])/(?:home|root|tmp|usr|opt|mnt|srv|var|data|work)/\w+")
_ODD = re.compile(r"[^\n\x20-\x7e]|[ ]+$", re.MULTILINE)
_MARKS = frozenset({"Sm", "Pd", "Pi", "Pf"})
"""Categories of what a text may hold beside ASCII: mathematical signs, dashes, quotation marks."""
_MORE_MARKS = frozenset("\N{DEGREE SIGN}\N{MIDDLE DOT}\N{HORIZONTAL ELLIPSIS}")
_LEAST_NAME = 4


@frozen(kw_only=True)
class Texts:
    """The files of a release, as texts."""

    files: Mapping[str, str]
    """By relative path."""
    not_text: Sequence[str] = field(factory=tuple)
    readings: Mapping[str, Sequence[Reading]] = field(repr=False)
    """By relative path, all ways to read a file."""
    unread: Mapping[str, str] = field(factory=dict)
    """By relative path, why a file could not be read in all ways."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Texts:
        texts, odd = {}, []
        for path, content in files.items():
            try:
                texts[path] = content.decode()
            except UnicodeDecodeError:
                texts[path] = content.decode("latin-1")
                odd.append(path)
        read: dict[str, Sequence[Reading]] = {}
        unread = {}
        for path, text in texts.items():
            if path != MANIFEST:
                try:
                    read[path] = readings(path, text)
                except Exception as error:  # noqa: BLE001 - whatever a text has provoked
                    read[path], unread[path] = [Reading(text)], _why(error)
        return cls(files=texts, not_text=odd, readings=read, unread=unread)

    @property
    def problems(self) -> frozenset[str]:
        """Release ids: the folders that there are."""
        return frozenset(path.partition("/")[0] for path in self.files if "/" in path)

    def beside(self, release_id: str) -> Iterator[tuple[str, Reading]]:
        """Yield readings of the files of one problem, and of those of no problem."""
        for path, reading in self.all():
            if "/" not in path or path.startswith(f"{release_id}/"):
                yield path, reading

    def all(self) -> Iterator[tuple[str, Reading]]:
        """Yield every reading of every file but the manifest.

        That holds names, sizes and digests alone: see the claims about the folder.
        """
        for path, found in self.readings.items():
            yield from ((path, reading) for reading in found)


def text_claims(texts: Texts, facts: Sequence[Facts], places: Iterable[Path]) -> Iterator[Claim]:
    """Yield what can be said of the texts alone; `places` are folders of this machine."""
    numbers = sum(len(known.numbers) for known in facts)
    ordinary = sum(known.ordinary for known in facts)
    yield _claim(
        "no weight, time, count, cost or tolerance is there",
        (leak for known in facts for leak in _numbers(texts, known)),
        proved=f"{numbers} numbers looked for; {ordinary} facts are too ordinary to look for",
    )
    words = {word for known in facts for word in known.words}
    yield _claim(
        "no kernel, framework, device or source that the private files name is there",
        _words(texts, facts),
        proved=f"{len(words)} texts looked for",
    )
    yield _claim(
        "no problem is called as a kernel that its private files name",
        (leak for known in facts for leak in _called(known)),
        proved=f"{len(facts)} names",
    )
    names = {name for known in facts for name in known.names}
    yield _claim(
        "nothing that private code defines is named: no mutant, variant or rule",
        (leak for known in facts for leak in _names(texts, known)),
        proved=f"{len(names)} names looked for",
    )
    yield _claim(
        "nothing of the evaluator is named",
        _matching(texts, _EVALUATOR),
        proved=f"{len(texts.files)} files",
    )
    known_places = _places(places)
    yield _claim(
        "no place on this machine is named",
        chain(_matching(texts, _PATH), _holding(texts, known_places)),
        proved=f"{len(known_places)} places looked for",
    )
    yield _claim(
        "texts are plain: ASCII letters and digits, nothing that cannot be seen",
        _not_plain(texts),
        proved=f"{sum(map(len, texts.files.values()))} characters",
    )
    modules = {path: text for path, text in texts.files.items() if path.endswith(".py")}
    yield _claim(
        "public code is made of torch alone and reaches for nothing outside itself",
        (f"{path!r} {what}" for path, text in modules.items() for what in departures(text)),
        proved=f"{len(modules)} modules",
    )


def _claim(text: str, found: Iterable[str], *, proved: str) -> Claim:
    """Return a claim about the texts, which fails where the search itself does."""

    def searched() -> Iterator[str]:
        try:
            yield from found
        except Exception as error:  # noqa: BLE001 - whatever a text has provoked
            yield f"not looked at to the end: {_why(error)}"

    return claim(_SUBJECT, text, searched(), proved=proved)


def _numbers(texts: Texts, known: Facts) -> Iterator[str]:
    for path, reading in texts.beside(known.release_id):
        for written, keys in numbers_in(reading.text):
            for key in keys & known.numbers.keys():
                if reading.is_open or is_scaled(key):
                    yield _has(path, written, reading, known.numbers[key])


def _words(texts: Texts, facts: Sequence[Facts]) -> Iterator[str]:
    """Look for each problem's words beside it; for those of several problems, everywhere."""
    ids = texts.problems
    counted = Counter(word for known in facts for word in known.words)
    common = {w: of for known in facts for w, of in known.words.items() if counted[w] > 1}
    yield from _having(texts.all(), common, ids)
    for known in facts:
        own = {w: of for w, of in known.words.items() if counted[w] == 1}
        yield from _having(texts.beside(known.release_id), own, ids)


def _having(
    files: Iterable[tuple[str, Reading]], words: Mapping[str, str], ids: frozenset[str]
) -> Iterator[str]:
    """Look for words in files; `ids` of problems may be like another's words."""
    names = {word: where for word, where in words.items() if re.fullmatch(r"[\w-]+", word)}
    for path, reading in files:
        folded = reading.text.casefold()
        for word, where in words.items():
            is_told = reading.is_open or len(word) >= LEAST_HIDDEN
            if is_told and word in folded and re.search(_alone(word), folded):
                yield _has(path, repr(word), reading, where)
        for run, word in spellings(reading.text, names, names, hidden=not reading.is_open):
            if run.casefold() != word and run not in ids:
                yield _has(path, repr(run), reading, f"{word!r}, {names[word]}")


def _alone(word: str) -> str:
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def _has(path: str, what: str, reading: Reading, where: str = "") -> str:
    how = "" if reading.is_open else f", {reading.how}"
    return f"{path!r} has {what}{how}" + (f" ({where})" if where else "")


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
    words = {name for name in known.names if len(spelled(name).parts) < 2}  # `Tolerance`
    for path, reading in texts.beside(known.release_id):
        hidden = not reading.is_open
        for run, name in spellings(reading.text, known.names, known.tried, hidden=hidden):
            if name in words and run != name:
                continue
            where = known.names[name] if run == name else f"{name!r}, {known.names[name]}"
            yield _has(path, repr(run), reading, where)


def _matching(texts: Texts, pattern: re.Pattern[str]) -> Iterator[str]:
    for path, reading in texts.all():
        for match in pattern.finditer(reading.text):
            yield _has(path, repr(match.group()), reading)


def _not_plain(texts: Texts) -> Iterator[str]:
    yield from (f"{path!r} is no text" for path in texts.not_text)
    yield from (f"{path!r} cannot be read: {why}" for path, why in texts.unread.items())
    yield from _odd(texts)


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _odd(texts: Texts) -> Iterator[str]:
    for path, text in texts.files.items():
        for match in _ODD.finditer(text):
            char = match.group()
            if char not in _MORE_MARKS and unicodedata.category(char[0]) not in _MARKS:
                line = text.count("\n", 0, match.start()) + 1
                what = "blanks at its end" if char[0] == " " else f"U+{ord(char):04X}"
                yield f"{path!r} line {line} has {what}"
        if path.endswith(".json") and "\\" in text:
            yield f"{path!r} has an escape"


def _places(places: Iterable[Path]) -> list[str]:
    found = {str(path) for path in (*places, Path(sys.prefix), Path.home())}
    found = {path for path in found if path.count("/") > 1}
    host = platform.node()
    if re.search(r"[\d-]", host):  # no ordinary word
        found.add(host)
    return sorted(found)


def _holding(texts: Texts, wanted: Sequence[str]) -> Iterator[str]:
    for path, reading in texts.all():
        for place in wanted:
            if place in reading.text:
                yield _has(path, repr(place), reading)
