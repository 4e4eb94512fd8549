"""Answers of a Triton library's process about runs of a kernel, and whether two runs agree."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from portkern.port.kernel_port import Coverage
from portkern.port.proof import Outcome
from portkern.port.proof.compare import Judged, differing
from portkern.port.proof.element import ELEMENTS
from portkern.port.proof.recording import Content
from portkern.sandbox.message import FormError, read

Answer = Mapping[str, Any]


def of_original(original: Answer, back: Answer) -> str:
    """Why what the original did shows nothing, or ''; ``back`` with its programs backwards."""
    if why := problem(original):
        return f"in Triton's interpreter: {why}"
    if not original["written"]:
        return "it wrote no buffer on these inputs"
    if found := problem(back) or differs(original, back):
        why = "the original's own result depends on the order of its programs, on these inputs"
        return f"{why}: {found}"
    return ""


#: A number that is so many times as large as a buffer's others hides errors of theirs.
_HIDES = 2.0**12


@dataclass(frozen=True)
class _Written:
    """The contents that an interpreter wrote to one buffer; ``places`` is a digest, ``values``
    base64, of some where there are many."""

    type: str
    count: int
    places: str
    values: str

    def __post_init__(self) -> None:
        if self.type not in ELEMENTS or self.count < 0:
            raise FormError(f"{self.count} of {self.type!r:.40} were not written")
        size = len(base64.b64decode(self.values, validate=True))
        shown, rest = divmod(size, ELEMENTS[self.type].size)
        if rest or not min(self.count, 1) <= shown <= self.count:
            raise FormError(f"{size} bytes do not show {self.count} of {self.type}")


def formed(answer: Mapping[str, object], *parts: str) -> dict[str, object]:
    """The answer of the library's process, if it has the form of one; else why it is unknown.
    ``parts`` are what it tells of buffers; one that tells what was ``written`` tells of lines."""
    if why := problem(answer):
        return {"unknown": why}
    try:
        told = {part: read(dict[str, _Written], answer.get(part)) for part in parts}
        counted = ("lines", "all_lines") if "written" in parts else ()
        lines: dict[str, object] = {n: read(tuple[str, ...], answer.get(n)) for n in counted}
        if "written" in parts:
            lines["read"] = read(tuple[str, ...], answer.get("read"))
        if "resources" in answer:
            lines["resources"] = read(dict[str, int], answer["resources"])
    except ValueError as error:
        return {"unknown": f"its process answered in no form that is known: {error}"}
    of_buffers = {p: {n: asdict(own) for n, own in known.items()} for p, known in told.items()}
    return {**of_buffers, **lines}


def problem(answer: Answer) -> str:
    return str(answer.get("error") or answer.get("unknown") or "")


def differs(left: Answer, right: Answer) -> str:
    """How, or '' where they wrote the same but for the rounding of sums."""
    for number, name in enumerate(sorted({*left["written"], *right["written"]})):
        a, b = left["written"].get(name), right["written"].get(name)
        if a is None or b is None:
            return f"'{name}' is written by one of them alone"
        if a["type"] != b["type"]:
            return f"'{name}' is written as {b['type']}, expected {a['type']}"
        if (a["count"], a["places"]) != (b["count"], b["places"]):
            if a["count"] != b["count"]:
                return f"{b['count']} elements of '{name}' are written, expected {a['count']}"
            return f"other elements of '{name}' are written"
        found = differing(number, name, ELEMENTS[a["type"]], content(a), content(b))
        if found is not None and found.kind is not Judged.ROUNDED:
            return str(found)
    return ""


def differs_in_small_ones(left: Answer, right: Answer) -> str:
    """How numbers differ that the rounding of a much larger one in their buffer would excuse, or
    ''. Sums of large terms may come out as small: such a difference only shows nothing."""
    for name in sorted({*left["written"]} & {*right["written"]}):
        element = ELEMENTS[left["written"][name]["type"]]
        if not element.is_float:
            continue
        a, b = (_values(one["written"][name]) for one in (left, right))
        known = np.isfinite(a) & np.isfinite(b)
        a, b = a[known].astype(np.float64), b[known].astype(np.float64)
        sizes = np.abs(a)
        if not sizes.any():
            continue
        usual = _HIDES * float(np.median(sizes[sizes > 0]))
        if (np.abs(a - b) > element.ulps * element.rounding * np.maximum(sizes, usual)).any():
            return f"elements of '{name}' that are small beside its largest differ"
    return ""


def content(written: Answer) -> Content:
    data = base64.b64decode(written["values"])
    return Content(len(data), hashlib.sha256(data).hexdigest(), data)


def _values(written: Answer) -> np.ndarray[Any, Any]:
    return ELEMENTS[written["type"]].values(base64.b64decode(written["values"]))


def worth(answer: Answer) -> tuple[Outcome, str] | None:
    """The outcome where a result is mostly not finite, for such values agree with anything."""
    for name, written in answer["written"].items():
        is_float = ELEMENTS[written["type"]].is_float
        if is_float and written["count"] and np.isfinite(_values(written)).mean() < 0.5:
            return Outcome.UNPROVEN, f"most of '{name}' is not finite on these inputs"
    return None


def coverage(said: Sequence[Answer]) -> Coverage | None:
    lines, total = _lines(said, "lines"), _lines(said, "all_lines")
    if not total:
        return None
    return Coverage(lines=len(lines), lines_total=len(total), branches=0, branches_total=0)


def missed(said: Sequence[Answer]) -> set[str]:
    """The lines of a kernel that none of its runs reached."""
    return _lines(said, "all_lines") - _lines(said, "lines")


def _lines(said: Sequence[Answer], kind: str) -> set[str]:
    return {line for answer in said for line in answer.get(kind, ())}
