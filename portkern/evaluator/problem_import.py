"""Makes an operator of a collection's problem: its file is written, its sheet derived and its
reference called."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import ConfigError, PortkernError, ReferenceFailed, StorageError
from portkern.evaluator import from_torch, host_memory, imported
from portkern.evaluator.from_torch import OperatorFile
from portkern.formats import randomness
from portkern.formats.problem import TENSORS, Item, Problem, UnreadableProblem
from portkern.formats.table import ImportRow, ReferenceCall
from portkern.records import atomic_write
from portkern.spec import flashinfer
from portkern.spec.from_torch.sheet import Sheet
from portkern.spec.from_torch.traced import RANDOM
from portkern.spec.op import ITEMSIZE, Op, Workload
from portkern.spec.safe_name import SafeName
from portkern.toolchain.make_once import aside

#: How many of ``ci`` are called, the least first.
_MOST_ANSWERED = 2
#: Tensors of all inputs' and outputs' size that one call has alive at once, at float64.
_AT_ONCE = 6
#: Bytes above which calls take turns.
_LARGE, _ALONE = 1 << 31, threading.Lock()
#: The replacements for a problem that draws random numbers, and the remark about each.
_REWRITTEN = (
    (randomness.without_dropout, randomness.WITHOUT_DROPOUT),
    (randomness.with_drawn_inputs, randomness.AS_INPUTS),
)


@dataclass(frozen=True)
class ProblemImport:
    """Imports problems into ``folder``; ``timeout_s`` limits the tracing of each; ``fresh``: also
    those that are there."""

    folder: Path
    timeout_s: float = from_torch.TRACE_S
    fresh: bool = False

    def reusable(self, item: Item, row: ImportRow) -> bool:
        """Whether ``row`` is of the same text, and its file is there. As sheets are kept once they
        are derived, so are rows; what was not good is tried again."""
        if not isinstance(item, Problem) or self.fresh or not row.good:
            return False
        return row.sha256 == _digest(item) and self.path_of(item).exists()

    def path_of(self, problem: Problem) -> Path:
        folder = self.folder / SafeName(problem.group) if problem.group else self.folder
        return folder / SafeName(f"{problem.name}{problem.suffix}")

    def row(self, item: Item) -> ImportRow:
        """Whatever is wrong with the problem is in the row. Raises StorageError."""
        begun = time.monotonic()
        row = ImportRow(name=item.name, group=item.group, place=item.place)
        if isinstance(item, UnreadableProblem):
            return row.model_copy(update={"reason": item.reason})
        file = str(self.path_of(item).relative_to(self.folder))
        said = {"sha256": _digest(item), "file": file}
        found = self._found(row.model_copy(update=said), item)
        return found.model_copy(update={"seconds": round(time.monotonic() - begun, 2)})

    def _found(self, row: ImportRow, problem: Problem) -> ImportRow:
        path = self.path_of(problem)
        _write(path, problem.data)
        for suffix, data in problem.beside.items():
            _write(path.with_suffix(suffix), data)
        for name, source in problem.tensors.items():
            _link(source, path.parent / TENSORS / SafeName(name))
        if problem.suffix != ".py":
            return self._of_definition(row, path)
        found = self._of_file(row, path)
        for rewritten, note in _REWRITTEN:
            changed = rewritten(problem.data) if RANDOM in found.reason else None
            if changed is not None:
                _write(path, changed)
                found = self._of_file(row, path)
                found = found.model_copy(update={"notes": [note, *found.notes]})
        return found

    def _of_file(self, row: ImportRow, path: Path) -> ImportRow:
        try:
            file = OperatorFile.read(str(path))
            sheet, _ = from_torch.sheet_of(file, fresh=self.fresh, timeout_s=self.timeout_s)
            op = sheet.op(file.source)
        except (ConfigError, ReferenceFailed) as error:
            return row.model_copy(update={"reason": self._short(error)})
        return self._answered(row.model_copy(update=_of_sheet(sheet, op)), op)

    def _of_definition(self, row: ImportRow, path: Path) -> ImportRow:
        try:
            op = flashinfer.load(path)
        except ConfigError as error:
            return row.model_copy(update={"reason": self._short(error)})
        row = row.model_copy(update=_of_op(op))
        if not op.workloads["ci"]:
            return row.model_copy(update={"reason": "has no workload, so nothing says its sizes"})
        return self._answered(row, op)

    def _answered(self, row: ImportRow, op: Op) -> ImportRow:
        """The row with what the reference answered."""
        answers: list[ReferenceCall] = []
        size = op.signature.nelements
        try:
            for work in sorted(op.workloads["ci"], key=lambda one: size(one.dims))[:_MOST_ANSWERED]:
                answers.append(self._answer(op, work))
        except PortkernError as error:
            if not answers:
                return row.model_copy(update={"reason": self._short(error)})
        finally:
            imported.close(op.reference)
        return row.model_copy(update={"answered": answers})

    def _answer(self, op: Op, workload: Workload) -> ReferenceCall:
        """Raises PortkernError."""
        elements = op.signature.nelements(workload.dims)
        needed = elements * ITEMSIZE["float64"] * _AT_ONCE
        with _ALONE if needed > _LARGE else nullcontext():
            if lack := host_memory.shortage(needed):
                at = dict(workload.dims) or "its own size"
                raise ConfigError(f"is not called at {at}: {lack}")
            begun = time.monotonic()
            outputs = from_torch.exact(op, workload)
        return ReferenceCall(
            dims=dict(workload.dims),
            elements=elements,
            finite=all(bool(one.isfinite().all()) for one in outputs),
            seconds=round(time.monotonic() - begun, 2),
        )

    def _short(self, error: PortkernError) -> str:
        """The error in one line without the folder, which is the same in each row."""
        return " ".join(str(error).replace(f"{self.folder}/", "").split())


def _of_sheet(sheet: Sheet, op: Op) -> dict[str, object]:
    derived = op.derived(sheet.axes, {}) if op.derived else {}
    return {
        **_of_op(op),
        "traced": sheet.traced,
        "axes": dict(sheet.axes),
        "elements": op.signature.nelements({**sheet.axes, **derived}),
        "notes": list(sheet.notes),
    }


def _of_op(op: Op) -> dict[str, object]:
    """The fields of a row that follow from an operator; sizes of a Definition vary as it says,
    and its own are those of its workloads."""
    return {
        "operator": op.name,
        "traced": "all sizes" if op.signature.axes else "no size",
        "tensors": len(op.signature.inputs) + len(op.signature.outputs),
        "dtypes": list(op.dtypes),
    }


def _write(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        atomic_write.write(path, data)


def _link(source: Path, place: Path) -> None:
    """The file under another name, which costs no room, or a copy on another file system. One that
    is absent is missed by whoever needs it. Raises StorageError."""
    if not source.is_file() or (place.exists() and place.samefile(source)):
        return
    try:
        with aside(place) as made:
            try:
                os.link(source.resolve(), made)
            except OSError:
                shutil.copyfile(source, made)
            made.replace(place)
    except OSError as error:
        raise StorageError.of(error, place) from error


def _digest(problem: Problem) -> str:
    digest = hashlib.sha256(problem.data)
    for suffix, data in sorted(problem.beside.items()):
        digest.update(f"{suffix} {len(data)} ".encode() + data)
    return digest.hexdigest()[:16]
