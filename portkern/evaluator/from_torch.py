"""Operators of PyTorch files. A file is code of others: a confined worker loads and traces it; what
is read here is the sheet beside it, which is written once."""

from __future__ import annotations

import io
import math
import sys
import tokenize
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import ConfigError, ReferenceFailed, StorageError, no_such
from portkern.evaluator import imported, inputs
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.sandbox.message import Failed, brief
from portkern.sandbox.session import Answered, Session
from portkern.spec.foreign_text import content
from portkern.spec.from_torch import sheet as sheets
from portkern.spec.from_torch.names import operator_name
from portkern.spec.from_torch.sheet import SUFFIX, Sheet
from portkern.spec.from_torch.traced import Traced, Untraceable
from portkern.spec.imported import ImportedReference
from portkern.spec.op import CELL, Op, Workload
from portkern.worker import protocol
from portkern.worker.tracing import PRELOAD

if TYPE_CHECKING:
    import torch

#: Tracing sets itself limits by counts; this ends what hangs.
TRACE_S = 1800.0
#: Elements of a workload that the reference is tried on before the sheet is written.
_TRIED = 1 << 22


@dataclass(frozen=True)
class OperatorFile:
    """A file, the operator that is asked of it, and its text. ``op=FILE.py[:NAME]``"""

    path: Path
    wanted: str
    source: str

    @classmethod
    def read(cls, text: str) -> OperatorFile:
        """Raises ConfigError."""
        path, wanted = split(text)
        try:
            data = content(path)
        except OSError as error:
            raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            source = data.decode(encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise ConfigError(
                f"{path} is not Python: {error}; save it as UTF-8 or name its encoding in line 1"
            ) from error
        return cls(path, wanted, source.replace("\r\n", "\n"))

    @property
    def name(self) -> str:
        return f"{self.path}:{self.wanted}" if self.wanted else str(self.path)

    @property
    def sheet_path(self) -> Path:
        """The path where the sheet is, or would be if the file had no other operator."""
        own = self.path_of(self.wanted) if self.wanted else None
        return own if own is not None and own.exists() else self.path.with_suffix(SUFFIX)

    def path_of(self, operator: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{operator}{SUFFIX}")

    def sheet(self) -> Sheet | None:
        """The sheet that lies beside the file, for what is asked for. Raises ConfigError."""
        path = self.sheet_path
        try:
            text = content(path).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read {path}: {error}") from error
        sheet = sheets.read(text, str(path))
        return sheet if self.wanted in ("", sheet.operator) else None


def is_file(text: str) -> bool:
    """Whether an op that is asked for is of a PyTorch file."""
    return split(text)[0].suffix == ".py"


def split(text: str) -> tuple[Path, str]:
    """``FILE.py:NAME``; a name is none of a file's."""
    head, colon, name = text.rpartition(":")
    if colon and head.endswith(".py") and name.isidentifier():
        return Path(head), name
    return Path(text), ""


def load(text: str) -> Op:
    """The operator of ``FILE.py[:NAME]`` by the sheet beside it, which is written if there is none.
    Raises ConfigError."""
    file = OperatorFile.read(text)
    sheet, path = sheet_of(file)
    try:
        return replace(sheet.op(file.source), file=text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


#: The languages, by backend, that a graph can be written in.
PLAIN = {
    "cpu": "c++",
    "cuda": "cuda",
    "hip": "hip",
    "opencl": "opencl",
    "pallas": "pallas",
    "triton": "triton",
}


def plain_kernel(text: str, backend: str) -> str:
    """The source of a kernel that does what the graph of ``FILE.py[:NAME]`` says, operation by
    operation. Raises ConfigError, also for what has no plain form."""
    return written_kernels(text, backend)[0]


def written_kernels(text: str, backend: str) -> tuple[str, ...]:
    """The plain kernel, then others of the same graph: with rows that are gone through at once,
    shared reductions and tiled products, and knobs that say how. Raises ConfigError."""
    if backend not in PLAIN:
        raise no_such("backend of plain kernels", backend, PLAIN)
    file = OperatorFile.read(text)
    sheet, _ = sheet_of(file)
    asked = protocol.WritePlain(
        file.source,
        file.path.name,
        file.wanted,
        operator_name(file.path.stem),
        any(given.state for given in sheet.inputs.values()),
        sheet.op(file.source).signature,
        backend,
        PLAIN[backend],
    )
    return _written(asked, file.name)


#: The last that were asked for: tracing takes seconds.
_WRITTEN: deque[tuple[protocol.WritePlain, tuple[str, ...]]] = deque(maxlen=8)


def _written(asked: protocol.WritePlain, name: str) -> tuple[str, ...]:
    """Raises ConfigError."""
    for before, sources in _WRITTEN:
        if before == asked:
            return sources
    with Session(PRELOAD, {}) as session:
        outcome = session.ask(asked, timeout_s=TRACE_S)
    if not isinstance(outcome, Answered):
        raise ConfigError(f"{name} cannot be traced: {_said(outcome)}")
    if not outcome.reply.sources:
        raise ConfigError(f"{name} has no plain kernel: {outcome.reply.problem}")
    _WRITTEN.append((asked, tuple(map("".join, outcome.reply.sources))))
    return _WRITTEN[-1][1]


def _said(outcome: object) -> str:
    if isinstance(outcome, Failed):
        return brief(f"raised {outcome.error}: {outcome.message.partition(chr(10))[0]}")
    return brief(str(outcome))


#: The sheets of files beside which nothing can be written.
_UNWRITTEN: dict[OperatorFile, tuple[Sheet, Path]] = {}


def sheet_of(
    file: OperatorFile, *, fresh: bool = False, lift: bool = True, timeout_s: float = TRACE_S
) -> tuple[Sheet, Path]:
    """The sheet of the operator and where it is; derived where there is none, where the file has
    changed since, or ``fresh``. One that a person changed is only replaced when asked. Raises
    ConfigError."""
    if not fresh and file in _UNWRITTEN:
        return _UNWRITTEN[file]
    known = None if fresh else file.sheet()
    if known is not None and known.fits(file.source):
        return known, file.sheet_path
    if known is not None:
        path = file.sheet_path
        if known.edited:
            raise ConfigError(
                f"{path} was changed by hand, and {file.path} has changed since it was derived; "
                f"'portkern op {file.name} fresh=true' derives it again without what was changed, "
                f"file_sha256: {sheets.text_digest(file.source)} keeps it for the new file"
            )
        _say(f"{file.path} has changed: {path} is derived again")
    sheet, path = derive(file, lift=lift, timeout_s=timeout_s)
    try:
        atomic_write.write(path, sheet.text())
        sheet = sheets.read(path.read_text(encoding="utf-8"), str(path))
    except StorageError as error:
        _say(f"{error}; what {file.path} holds is derived in each run")
        _UNWRITTEN[file] = sheet, path
    return sheet, path


def _say(text: str) -> None:
    sys.stderr.write(f"portkern: note: {printable(text)}\n")


def derive(
    file: OperatorFile, *, lift: bool = True, timeout_s: float = TRACE_S
) -> tuple[Sheet, Path]:
    """Derives a file's sheet by tracing the file in a worker and calling what was traced; returns
    it and its path. Raises ConfigError."""
    traced = _traced(file, lift=lift, timeout_s=timeout_s)
    path = file.path.with_suffix(SUFFIX) if traced.only else file.path_of(traced.operator)
    sheet = sheets.of(traced, file.path.name, file.source)
    try:
        return _tried(file, sheet, traced), path
    except ConfigError:
        if not any(one.draws == "own" and not one.state for one in traced.inputs):
            raise
    # What the file makes, such as offsets into another input, may fit its own sizes alone.
    traced = _traced(file, lift=lift, timeout_s=timeout_s, as_in_file=True)
    return _tried(file, sheets.of(traced, file.path.name, file.source), traced), path


def exact(op: Op, workload: Workload) -> tuple[torch.Tensor, ...]:
    """The outputs of the imported reference of ``op`` for inputs drawn for ``workload``, in
    float64 as the right answer is made. Raises ConfigError where it gives nothing, or other
    sizes than the signature says, and ReferenceFailed where there are no inputs."""
    return _Try(op.name, op, workload).outputs("float64")


def _traced(
    file: OperatorFile, *, lift: bool, timeout_s: float, as_in_file: bool = False
) -> Traced:
    name = operator_name(file.path.stem)
    asked = protocol.Describe(file.source, file.path.name, file.wanted, name, lift, as_in_file)
    with Session(PRELOAD, {}) as session:
        outcome = session.ask(asked, timeout_s=timeout_s)
    if not isinstance(outcome, Answered):
        raise ConfigError(f"{file.name} cannot be traced: {_said(outcome)}")
    reply = outcome.reply
    if reply.traced is None:
        raise ConfigError(_explained(file, reply.untraceable or Untraceable("says nothing")))
    return reply.traced


def _explained(file: OperatorFile, why: Untraceable) -> str:
    """Why a file cannot be traced, in one line that names the file's line."""
    place = f"{file.path}:{why.line}" if why.line else str(file.path)
    text = f" ({why.text[:80]})" if why.text else ""
    return " ".join(f"{place}{text} {why.problem}".split())


# ---- one call of what was traced


def _tried(file: OperatorFile, sheet: Sheet, traced: Traced) -> Sheet:
    """The sheet with the dtypes in which the reference works, and the inputs for which it has
    finite answers."""
    op = sheet.op(file.source)
    least = min(op.workloads["ci"], key=lambda one: op.signature.nelements(one.dims))
    if op.signature.nelements(least.dims) > _TRIED:
        return sheet
    try:
        _Try(file.name, op, least).outputs("float64")
        if "float32" in op.dtypes and not _finite(_Try(file.name, op, least).outputs("float32")):
            sheet, op = _within_unit(file, sheet, traced, least)
        seen = {dtype: _dtypes(file, op, least, dtype) for dtype in op.dtypes}
        able = [dtype for dtype, outputs in seen.items() if outputs]
        if not able:
            _Try(file.name, op, least).outputs(op.dtypes[0])
        outputs = {}
        for number, (name, one) in enumerate(sheet.outputs.items()):
            follows = all(seen[dtype][number] == dtype for dtype in able)
            dtype = CELL if follows else seen[able[0]][number]
            able = [d for d in able if follows or seen[d][number] == dtype]
            outputs[name] = one.model_copy(update={"dtype": dtype})
        sheet = sheet.model_copy(update={"outputs": outputs})
        kept = {which: _kept(file, op, which, able[0]) for which in op.workloads}
        workloads = {
            which: [one for one, works in zip(several, kept[which], strict=True) if works]
            for which, several in sheet.workloads.items()
        }
        return sheet.model_copy(update={"dtypes": able, "workloads": workloads})
    finally:
        imported.close(op.reference)


def _kept(file: OperatorFile, op: Op, which: str, dtype: str) -> list[bool]:
    """Whether the reference has an answer at each size that is tried, which small ones are."""
    return [
        op.signature.nelements(one.dims) > _TRIED
        or max(op.flops(one.dims), 0) > _TRIED << 10
        or bool(_dtypes(file, op, one, dtype))
        for one in op.workloads[which]
    ]


def _within_unit(
    file: OperatorFile, sheet: Sheet, traced: Traced, least: Workload
) -> tuple[Sheet, Op]:
    """The sheet with inputs between 0 and 1, where values of any size have no answer and the file
    draws so."""
    changed = {
        name: one.model_copy(update={"draws": "unit"}) if name in traced.uniform else one
        for name, one in sheet.inputs.items()
    }
    inside = sheet.model_copy(update={"inputs": changed, "adversaries": []})
    op = inside.op(file.source)
    if traced.uniform and _finite(_Try(file.name, op, least).outputs("float32")):
        return inside, op
    return sheet, sheet.op(file.source)


def _dtypes(file: OperatorFile, op: Op, workload: Workload, dtype: str) -> list[str]:
    """The dtypes of the outputs in this cell; an empty list where the operator does not work in
    it."""
    try:
        outputs = _Try(file.name, op, workload).outputs(dtype)
    except ConfigError:
        return []
    return [str(one.dtype).removeprefix("torch.") for one in outputs]


def _finite(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether more than half of the values are finite."""
    floats = [one for one in outputs if one.is_floating_point() and one.numel()]
    return all(float(one.isfinite().float().mean()) > 0.5 for one in floats)


@dataclass(frozen=True)
class _Try:
    name: str
    op: Op
    workload: Workload

    def outputs(self, dtype: str) -> tuple[torch.Tensor, ...]:
        """The outputs for normal inputs, of the sizes that the signature says. Raises
        ConfigError."""
        cell = dtype if dtype != "float64" else self.op.dtypes[0]
        given = inputs.draw(self.op, self.workload, cell, inputs.BASE)
        if dtype == "float64":
            given = tuple(one.double() if one.is_floating_point() else one for one in given)
        scalars = self.op.signature.scalar_values({})
        assert isinstance(self.op.reference, ImportedReference)
        try:
            outputs = imported.worker_of(self.op.reference).outputs(given, scalars)
        except ReferenceFailed as error:
            where = "in float64, where the right answer is made" if dtype == "float64" else dtype
            raise ConfigError(f"{self.name} cannot be called ({where}): {error}") from error
        for spec, output in zip(self.op.signature.outputs, outputs, strict=True):
            expected = spec.sizes(self.workload.dims)
            if tuple(output.shape) != expected or math.prod(expected) != output.numel():
                raise ConfigError(
                    f"{self.name} gives {spec.name}{list(output.shape)} for "
                    f"{dict(self.workload.dims)}, expected {list(expected)} as it was traced"
                )
        return outputs
