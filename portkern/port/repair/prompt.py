"""The prompt for a file that is to be mended: what a model is told of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from portkern.agent import prompts
from portkern.agent.axes import PromptMessage
from portkern.cuda_source import syntax
from portkern.port.hazard import PITFALLS
from portkern.port.kernel_port import HazardLine
from portkern.port.repair import standing
from portkern.port.repair.excerpt import Excerpt
from portkern.port.request import PortRequest
from portkern.port.result import KernelRow
from portkern.port.translated import TranslatedFile
from portkern.simt.diagnostics import CODES
from portkern.simt.execute.options import UNMODELLED
from portkern.spec.target import Target

NAME = "port_repair"
#: Findings of one kernel, characters of one, of the originals' text, and of a case.
_MOST_FINDINGS, _MOST_FINDING, _MOST_ORIGINAL, _MOST_DIFF = 12, 600, 8_000, 4_000
#: A folder says where a run was, and nothing of its kernels; it also differs between runs, whose
#: prompts would not be equal.
_FOLDER = re.compile(r"(?<![\w./])/(?:[^\s/:'\"]+/)+(?=[\w.+-])")
_CODE = re.compile(r"\bSX\d{3}\b")


@dataclass(frozen=True)
class Tried:
    """An attempt that came to nothing, as the next one is told of it."""

    why: str
    diff: str = ""


@dataclass(frozen=True)
class _Kernel:
    name: str
    line: int
    outcome: str
    why: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Told:
    title: str
    text: str
    diff: str = field(default="")


def messages(
    file: TranslatedFile,
    excerpt: Excerpt,
    rows: Sequence[KernelRow],
    tried: Sequence[Tried],
    request: PortRequest,
) -> list[PromptMessage]:
    target = request.by_width[max(request.by_width)]
    to_hip = request.to == "hip"
    return prompts.render(
        NAME,
        language="HIP" if to_hip else "CUDA",
        tag="hip" if to_hip else "cuda",
        tag_original="cuda" if to_hip else "hip",
        target=target,
        others=sorted(width for width in request.by_width if width != target.warp),
        limits=_limits(target),
        hints=target.hints_for("hip" if to_hip else "cuda", "port", without=UNMODELLED),
        path=file.name,
        shown=excerpt.shown,
        original=_original(file, {row.first.kernel for row in rows}),
        kernels=[
            _Kernel(
                row.first.kernel,
                row.first.line,
                standing.words(row),
                _plain(row.why),
                tuple(findings(row)),
            )
            for row in rows
        ],
        told=[_told(attempt) for attempt in tried],
    )


def _limits(target: Target) -> Mapping[str, object]:
    known = target.limits.model_dump(exclude_none=True, exclude={"vendor"})
    return {name.replace("_", " "): value for name, value in known.items()}


def _told(tried: Tried) -> _Told:
    diff = tried.diff if len(tried.diff) <= _MOST_DIFF else ""
    return _Told("An edit that was not kept", _plain(tried.why), diff)


def _original(file: TranslatedFile, names: set[str]) -> str:
    """The source of these kernels before the translation, where that changed them; empty if it
    is too long."""
    before, after = file.source.text, file.translation.text
    texts = [
        before[kernel.start : kernel.stop]
        for kernel in syntax.parse(before).kernels
        if kernel.name in names and before[kernel.start : kernel.stop] not in after
    ]
    text = "\n\n".join(texts)
    return text if len(text) <= _MOST_ORIGINAL else ""


def findings(row: KernelRow) -> Iterator[str]:
    """One line each: where, which code, what, and what mends it."""
    lines = [_hazard(row.first.path, hazard) for hazard in row.hazards]
    lines += [_finding(text) for text in row.worst.proof.findings]
    several = list(dict.fromkeys(lines))
    yield from several[:_MOST_FINDINGS]
    if len(several) > _MOST_FINDINGS:
        yield f"… {len(several) - _MOST_FINDINGS} more"


def _hazard(path: str, hazard: HazardLine) -> str:
    text = f"{path}:{hazard.line}: {hazard.severity}: {hazard.code} {hazard.message}"
    pitfall = PITFALLS.get(hazard.code)
    mended = " ".join(pitfall.good.split()) if pitfall else ""
    return _plain(f"{text}; write as in: {mended}" if mended else text)


def _finding(text: str) -> str:
    code = _CODE.search(text)
    known = CODES.get(code[0]) if code else None
    return _plain(f"{text}; {known.remedy}" if known else text)


def _plain(text: str) -> str:
    """The text on one line, without folders of this machine."""
    line = _FOLDER.sub("", " ".join(text.split()))
    return line if len(line) <= _MOST_FINDING else f"{line[:_MOST_FINDING]}…"
