"""An operator as data: by name and digest if it ships with portkern, else with the files that it is
read from."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import Base64Bytes, model_validator

from portkern import ops
from portkern.cells.selection import load_op
from portkern.errors import ConfigError, StorageError
from portkern.evaluator import from_torch
from portkern.evaluator.from_torch import OperatorFile
from portkern.records import atomic_write
from portkern.records.jsonl import JsonPart
from portkern.spec import stored_tensors
from portkern.spec.op import Op, Precision, Scalar, StoredTensor, Workload
from portkern.spec.safe_name import SafeName, refuse_collisions, short

#: What one operator's files may come to: a plan is one document.
MOST_BYTES = 256 << 20


class PlannedWorkload(JsonPart):
    """``stored``: of inputs that it comes with, the operator's file and the key in it."""

    name: str
    dims: dict[str, int]
    scalars: dict[str, Scalar] = {}
    stored: dict[str, tuple[SafeName, str]] = {}


class PlannedOp(JsonPart):
    """``asked`` is what ``op=`` takes, a file's name relative to where the files are written. Files
    that are not UTF-8 are ``binary``. ``precision`` is what kernels are held to, which a run may
    ask for itself. ``workloads`` are those of the plan's cells, by their sets."""

    digest: str
    asked: str
    precision: Precision = "strict"
    files: dict[SafeName, str] = {}
    binary: dict[SafeName, Base64Bytes] = {}
    workloads: dict[str, list[PlannedWorkload]]

    @model_validator(mode="after")
    def _within_itself(self) -> Self:
        """Checks that all which the operator names is among its files, or ships with portkern."""
        names = [*self.files, *self.binary]
        refuse_collisions(names, "file")
        file, operator = from_torch.split(self.asked)
        if names and (str(file) not in names or not (operator or self.asked in names)):
            raise ConfigError(f"Got the operator {short(self.asked)}, expected one of its files")
        if not names and self.asked not in ops.names():
            raise ConfigError(f"Got the operator {short(self.asked)} without a file")
        for workload in (one for several in self.workloads.values() for one in several):
            for name, _ in workload.stored.values():
                if name not in names:
                    raise ConfigError(f"Got tensors in {short(name)}, expected one of its files")
        return self

    @classmethod
    def of(cls, op: Op, used: Iterable[tuple[str, Workload]]) -> PlannedOp:
        """Raises ConfigError for one that is made of no file, or of too large ones."""
        contents = dict(_files(op))
        workloads: dict[str, list[PlannedWorkload]] = {}
        for which, workload in used:
            for stored in workload.stored.values():
                stored_tensors.check(stored.path)
                contents.setdefault(_tensors_name(stored.path), _read(stored.path))
            workloads.setdefault(which, []).append(_planned(workload))
        size = sum(map(len, contents.values()))
        if size > MOST_BYTES:
            raise ConfigError(
                f"The files of {op.name} have {size >> 20} MiB, expected at most "
                f"{MOST_BYTES >> 20}; choose workloads= with smaller stored tensors"
            )
        files = {SafeName(name, "file of an operator"): data for name, data in contents.items()}
        text = {name: data for name, data in files.items() if _is_text(data)}
        return cls(
            digest=op.digest,
            asked=_asked(op),
            precision=op.precision,
            files={name: data.decode() for name, data in text.items()},
            binary=dict(_encoded(files, text)),
            workloads=workloads,
        )

    def load(self, folder: Path) -> Op:
        """The operator here, its files written to ``folder`` if it has any. Raises ConfigError for
        one that is not what was planned, and StorageError."""
        contents = {name: text.encode() for name, text in self.files.items()} | self.binary
        for name, data in contents.items():
            _write(folder, name, data)
        loaded = load_op(self._place(folder) if contents else self.asked)
        op = replace(loaded, precision=self.precision)
        if op.digest != self.digest:
            raise ConfigError(
                f"The operator {op.name} is another here ({op.digest}) than in the plan "
                f"({short(self.digest)}); install the portkern that wrote the plan, or write it "
                "again"
            )
        return op

    def _place(self, folder: Path) -> str:
        """The file in ``folder``, and which of its operators it is."""
        file, operator = from_torch.split(self.asked)
        place = folder / SafeName(str(file), "operator")
        return f"{place}:{operator}" if operator else str(place)

    def planned(self, which: str, name: str) -> PlannedWorkload:
        """Raises ConfigError for one that the plan does not have."""
        for workload in self.workloads.get(which, ()):
            if workload.name == name:
                return workload
        asked = f"{short(which)}/{short(name)} of {short(self.asked)}"
        raise ConfigError(f"The plan has no workload {asked}")

    def workload(self, which: str, name: str, folder: Path) -> Workload:
        """The workload with its stored tensors in ``folder``. Raises ConfigError."""
        planned = self.planned(which, name)
        stored = {
            tensor: StoredTensor(folder / SafeName(file, "file of tensors"), key)
            for tensor, (file, key) in planned.stored.items()
        }
        return Workload(name, planned.dims, planned.scalars, stored)


def _asked(op: Op) -> str:
    return Path(op.file).name if op.file else op.name


def _files(op: Op) -> Iterator[tuple[str, bytes]]:
    """The files from which the operator is read, by the names that it is looked for under."""
    if not op.file:
        if op.name not in ops.names():
            raise ConfigError(
                f"The operator {op.name} has no file that a plan could hold; write it to one"
            )
        return
    if from_torch.is_file(op.file):
        file = OperatorFile.read(op.file)
        yield file.path.name, _read(file.path)
        sheet, path = from_torch.sheet_of(file)
        yield path.name, _read(path) if path.exists() else sheet.text().encode()
        return
    path = Path(op.file)
    yield path.name, _read(path)
    beside = path.with_suffix(".jsonl")
    if beside.exists():
        yield beside.name, _read(beside)


def _planned(workload: Workload) -> PlannedWorkload:
    stored = {
        name: (_tensors_name(tensor.path), tensor.key) for name, tensor in workload.stored.items()
    }
    return PlannedWorkload(
        name=workload.name,
        dims=dict(workload.dims),
        scalars=dict(workload.scalars),
        stored=stored,
    )


def _tensors_name(path: Path) -> SafeName:
    """One name per file: those of a data set are in folders, and may be called alike."""
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return SafeName.like(f"{digest}-{path.name}")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encoded(
    contents: Mapping[SafeName, bytes], text: Mapping[SafeName, bytes]
) -> Iterator[tuple[SafeName, bytes]]:
    """The contents in base 64, as pydantic reads bytes."""
    for name, data in contents.items():
        if name not in text:
            yield name, base64.b64encode(data)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error


def _write(folder: Path, name: SafeName, data: bytes) -> None:
    """A file that is as it should be stays: records know it by the time of its last change."""
    path = folder / SafeName(name, "file of an operator")
    try:
        if path.is_file() and path.read_bytes() == data:
            return
    except OSError as error:
        raise StorageError.of(error, path) from error
    atomic_write.write(path, data)
