"""Near-duplicates among sources: MinHash finds pairs that may be, and what they share decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from portkern.errors import BackendUnavailable

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")
_COMMENT = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"
    r"|\#(?![ \t]*(?:define|include|pragma|if|ifdef|ifndef|elif|else|endif|undef)\b)[^\n]*"
    r"|(?P<kept>\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?)",
    re.DOTALL,
)
#: Tokens in a row that are compared; hashes of a text; from which estimated likeness on a pair is
#: looked at: MinHash errs by about 0.1, and at 0.5 missed 2 of 15 pairs of the catalogue.
GRAM, HASHES, LOOKED_AT = 5, 128, 0.35


@dataclass(frozen=True)
class ComparedText:
    """A source as what it has in common with others: its tokens in fives, without comments."""

    source: str

    @cached_property
    def grams(self) -> frozenset[str]:
        plain = _COMMENT.sub(lambda found: found["kept"] or " ", self.source)
        tokens = _TOKEN.findall(plain)
        count = max(1, len(tokens) - GRAM + 1)
        return frozenset(" ".join(tokens[i : i + GRAM]) for i in range(count))

    def likeness(self, other: ComparedText) -> float:
        """The share of what either has that both have."""
        both = len(self.grams & other.grams)
        return both / max(1, len(self.grams) + len(other.grams) - both)


class Near:
    """Finds the texts that are like others, by name. Raises BackendUnavailable without the
    library that finds them."""

    def __init__(self, texts: Mapping[str, ComparedText]) -> None:
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError:
            raise BackendUnavailable(
                "Near-duplicates need datasketch, and it is not installed; pip install "
                "'portkern[learn]'"
            ) from None
        self._texts = dict(texts)
        self._index = MinHashLSH(threshold=LOOKED_AT, num_perm=HASHES)
        self._hashed = {}
        for name, text in self._texts.items():
            hashed = MinHash(num_perm=HASHES)
            hashed.update_batch([gram.encode() for gram in sorted(text.grams)])
            self._hashed[name] = hashed
            self._index.insert(name, hashed)

    def of(self, name: str, *, least: float) -> Iterator[tuple[str, float]]:
        """Others that are at least so like it, in the order in which they were given."""
        found = set(self._index.query(self._hashed[name])) - {name}
        for other in (one for one in self._texts if one in found):
            likeness = self._texts[name].likeness(self._texts[other])
            if likeness >= least:
                yield other, likeness


def kept_of(
    texts: Mapping[str, ComparedText], *, least: float, groups: Mapping[str, object] | None = None
) -> tuple[list[str], dict[str, str]]:
    """The names that stay, the first of those that are alike, and for the others whose duplicate
    they are. Only texts of one group can be duplicates; without groups all are of one."""
    near, duplicates = Near(texts), dict[str, str]()
    group = groups or {}
    kept: dict[str, object] = {}
    for name in texts:
        own = group.get(name)
        alike = (other for other, _ in near.of(name, least=least))
        original = next((o for o in alike if o in kept and kept[o] == own), None)
        if original is None:
            kept[name] = own
        else:
            duplicates[name] = original
    return [*kept], duplicates


def overlaps(
    texts: Mapping[str, ComparedText], others: Mapping[str, ComparedText], *, least: float
) -> dict[str, Sequence[str]]:
    """The names of the others that each text is like, by the text's name."""
    mine = {f"mine {name}": text for name, text in texts.items()}
    theirs = {f"theirs {name}": text for name, text in others.items()}
    near, found = Near(mine | theirs), dict[str, Sequence[str]]()
    for name in texts:
        like = [
            other.removeprefix("theirs ")
            for other, _ in near.of(f"mine {name}", least=least)
            if other in theirs
        ]
        if like:
            found[name] = like
    return found
