"""The port of one kernel to one target, and all that is known of it: a line of ``port.jsonl``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from pydantic import model_validator

from portkern.records.jsonl import JsonLine, JsonPart, LineFile
from portkern.records.record import Text
from portkern.spec.occupancy import Occupancy

SCHEMA: Final = 1
FILE = "port.jsonl"
#: The reason of a kernel that no proof was asked for.
NOT_ASKED = "not asked"
PROVEN = "proven in emulation"


class Rung(StrEnum):
    """How far a port is confirmed; each rung needs the one before it."""

    LINTED = "linted"  # translated, and read for what differs between the two
    BUILT = "built"  # an object for the real instruction set
    EMULATED = "emulated"  # ran at the target's width, and did what the original does


class HazardLine(JsonPart):
    code: Text
    severity: Text
    message: Text
    line: int


class InstanceResources(Protocol):
    """The resources that one instance of a kernel uses, read from its object."""

    @property
    def vgprs(self) -> int: ...
    @property
    def sgprs(self) -> int | None: ...
    @property
    def agprs(self) -> int: ...
    @property
    def spills(self) -> int: ...
    @property
    def lds_bytes(self) -> int: ...
    @property
    def occupancy(self) -> Occupancy: ...


class PortResources(JsonPart):
    """The resources of a kernel, as the object of the real instruction set says: of the instance
    with most registers where a template has several (``scratch_bytes``: the most of any);
    ``occupancy`` is 0..1. With ``exceeded`` no launch can succeed. ``relocatable``: it has
    device code of other files."""

    vgprs: int | None = None
    sgprs: int | None = None
    agprs: int | None = None
    spills: int | None = None
    scratch_bytes: int | None = None
    lds_bytes: int | None = None
    occupancy: float | None = None
    instances: int = 1
    exceeded: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    relocatable: bool = False

    @classmethod
    def of(
        cls,
        instances: Sequence[InstanceResources],
        *,
        scratch_bytes: int | None = None,
        exceeded: Sequence[str] = (),
        warnings: Sequence[str] = (),
        relocatable: bool = False,
    ) -> PortResources:
        largest = max(instances, key=lambda used: (used.vgprs + used.agprs, used.lds_bytes))
        return cls(
            vgprs=largest.vgprs,
            sgprs=largest.sgprs,
            agprs=largest.agprs,
            spills=largest.spills,
            lds_bytes=largest.lds_bytes,
            occupancy=round(largest.occupancy.fraction, 4),
            instances=len(instances),
            scratch_bytes=scratch_bytes,
            exceeded=tuple(dict.fromkeys(exceeded)),
            warnings=tuple(dict.fromkeys(warnings)),
            relocatable=relocatable,
        )


class Coverage(JsonPart):
    """How much of the kernel the inputs reached."""

    lines: int
    lines_total: int
    branches: int
    branches_total: int

    def __str__(self) -> str:
        lines = f"{self.lines}/{self.lines_total} lines"
        branches = f", {self.branches}/{self.branches_total} branches"
        return lines + branches if self.branches_total else lines


class ProofLine(JsonPart):
    """``findings`` are of the port, ``original_findings`` of what it was made from;
    ``counterexample`` is a file in the run's folder, ``algebra`` what runs on elements of a ring
    say."""

    outcome: Text
    why: Text = ""
    inputs: Text = ""
    coverage: Coverage | None = None
    findings: tuple[Text, ...] = ()
    original_findings: tuple[Text, ...] = ()
    counterexample: Text = ""
    command: Text = ""
    algebra: Text = ""


class KernelPort(JsonLine):
    """``key`` is of all that the answer follows from: the texts of the library, the target, the
    options, portkern's own code. ``not_built`` says why there are no ``resources``; ``lacking``:
    this machine has no compiler for the target, which is not the port's fault. ``not_whole`` is
    why the file is only built without a part of it: as it stands in the tree, it is not."""

    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    key: Text
    path: Text
    line: int
    kernel: Text
    target: Text
    width: int
    hazards: tuple[HazardLine, ...] = ()
    resources: PortResources | None = None
    not_built: Text = ""
    lacking: bool = False
    not_whole: Text = ""
    proof: ProofLine
    seconds: float = 0.0

    @model_validator(mode="after")
    def _built_or_why(self) -> KernelPort:
        if (self.resources is None) != bool(self.not_built):
            raise ValueError(
                f"A kernel has resources or a reason, got {self.resources} {self.not_built!r}"
            )
        return self

    @property
    def built(self) -> bool:
        return self.resources is not None

    @property
    def fits(self) -> bool:
        """Built, and within what the target lets a launch have."""
        return self.resources is not None and not self.resources.exceeded

    @property
    def stands(self) -> bool:
        """It fits, and so does the whole of its file, the host's part included."""
        return self.fits and not self.not_whole

    @property
    def proven(self) -> bool:
        return self.proof.outcome == PROVEN

    @property
    def rung(self) -> Rung:
        if not self.fits:
            return Rung.LINTED
        return Rung.EMULATED if self.proven else Rung.BUILT

    @property
    def missing(self) -> str:
        """The reason why the port is not on a higher rung."""
        if self.resources is None:
            return f"not built: {self.not_built}"
        if self.resources.exceeded:
            return f"no launch can succeed: {self.resources.exceeded[0]}"
        if self.not_whole:
            return f"file does not build: {self.not_whole}"
        if not self.proven:
            return f"{self.proof.outcome}: {self.proof.why}".removesuffix(": ")
        return "no GPU of this target here"


class KnownKernels:
    """The kernels that runs before this one wrote of, by the last line about each."""

    def __init__(self, ports: Iterable[KernelPort] = ()) -> None:
        self._by_key: dict[str, dict[tuple[str, str, int, str], KernelPort]] = {}
        for port in ports:
            place = (port.path, port.kernel, port.line, port.target)
            self._by_key.setdefault(port.key, {})[place] = port

    def of(self, key: str) -> list[KernelPort]:
        return list(self._by_key.get(key, {}).values())

    def kernel(self, name: str, line: int, keys: Collection[str]) -> list[KernelPort]:
        """The ports of a kernel under the keys of its file, if there is one for each; else none."""
        ported = [p for key in keys for p in self.of(key) if (p.kernel, p.line) == (name, line)]
        return ported if len(ported) == len(keys) else []


class PortFile(LineFile[KernelPort]):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE, KernelPort.from_json)

    def known(self) -> KnownKernels:
        return KnownKernels(self.read()[0])
