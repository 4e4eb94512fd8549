"""Targets that kernels are written for: a YAML of facts per architecture (``sm_90``) or product
(``h200``).

A product names its architecture and states only what it adds. A folder named by
``PORTKERN_TARGETS_DIR`` may add targets, or override single values of ours, such as a peak
measured on the machine at hand. No device, driver or toolchain is needed to read any of it.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from portkern.errors import ConfigError, no_such
from portkern.spec.foreign_text import Malformed, yaml_value

SITE = "PORTKERN_TARGETS_DIR"
#: How vendors spell theirs; compilers and the executor read numbers out of it.
_ARCHITECTURES = {"nvidia": r"sm_\d{2,3}", "amd": r"gfx(9|10|11|12)[0-9a-f]{2}"}
Kind = Literal["architecture", "product"]
Vendor = Literal["nvidia", "amd", "cpu", "opencl", "google"]
# A product's and a site's words are added to those they build on; any other value replaces.
_ACCUMULATE = frozenset({"hints", "sources", "uncertain"})
_Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
#: What becomes an option of a compiler or a variable of a process.
_Word = Annotated[str, Field(pattern=r"^[\w.+=,-]{1,100}$")]
_Lengths = Annotated[list[int], Field(min_length=3, max_length=3)]
_Count = Annotated[int, Field(gt=0)]


class _Facts(BaseModel):
    # strict: a quoted number in YAML is a mistake, not a number
    # built when a target is first read: processes that read none need not wait for it
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Peak(_Facts):
    """A ceiling on dense data, never with structured sparsity. No number without its basis."""

    value: Annotated[float, Field(gt=0)]
    unit: Literal["TFLOP/s", "GB/s"]
    basis: Literal["datasheet", "derived", "measured"]
    source: _Text
    note: str = ""


class NvidiaLimits(_Facts):
    """Per streaming multiprocessor (sm), block or thread; occupancy.py says how they combine."""

    vendor: Literal["nvidia"]
    threads_block: _Count
    block_dim_max: _Lengths
    grid_dim_max: _Lengths
    warps_sm: _Count
    blocks_sm: _Count
    subpartitions_sm: _Count
    registers_sm: _Count
    registers_block: _Count
    registers_thread: _Count
    register_granule: _Count  # registers of one warp are allocated in these steps
    smem_sm_bytes: _Count
    smem_block_bytes: _Count  # dynamic, opted into with cudaFuncSetAttribute
    smem_static_bytes: _Count  # a declaration beyond this is refused by ptxas
    smem_granule_bytes: _Count
    smem_reserved_block_bytes: int
    const_bytes: _Count
    cluster_max: int | None = None  # blocks; 0: no clusters, None: not known here
    tmem_sm_bytes: int = 0


class AmdLimits(_Facts):
    """Per unit (what the waves of a block share), SIMD, block or thread.

    The unit is the CU on CDNA. On RDNA it is the WGP, two CUs, because code is compiled in WGP
    mode unless ``-mcumode`` is given. A product's ``multiprocessors`` counts CUs on both.
    """

    vendor: Literal["amd"]
    threads_block: _Count
    block_dim_max: _Lengths
    grid_threads_max: _Count
    unit: Literal["CU", "WGP"]
    simds_unit: _Count
    waves_simd: _Count
    blocks_unit: _Count  # blocks of one wave need no barrier and are not counted
    vgprs_simd: _Count  # per lane
    vgprs_thread: _Count
    agprs_thread: int  # accumulation VGPRs out of the same vgprs_simd; 0: the ISA has none
    vgpr_granule: _Count
    lds_unit_bytes: _Count
    lds_block_bytes: _Count
    lds_granule_bytes: _Count


class CpuLimits(_Facts):
    """Per core."""

    vendor: Literal["cpu"]
    simd_bits: _Count
    vector_registers: _Count
    cacheline_bytes: _Count


class OpenClLimits(_Facts):
    """The limits that the standard promises; the others are the device's answer at run time."""

    vendor: Literal["opencl"]
    local_min_bytes: _Count
    wave_query: _Text


class TpuLimits(_Facts):
    """Per TensorCore. ``tiles`` are the sublanes and lanes that a block of a type is made of;
    ``device_kind`` and ``topology`` are what JAX and the compiler call such a chip."""

    vendor: Literal["google"]
    vmem_bytes: _Count
    smem_bytes: _Count
    lanes: _Count
    sublanes: _Count
    mxu: Annotated[str, Field(pattern=r"^\d+x\d+$")]
    mxus: _Count
    tiles: dict[str, Annotated[str, Field(pattern=r"^\d+x\d+$")]]
    device_kind: _Text
    topology: _Text


class MatrixInstruction(_Facts):
    """``shapes`` are MxNxK of one call by a warp (of four with wgmma; of a block with tcgen05);
    ``call`` is its intrinsic or PTX, with ``{shape}`` for MxNxK or ``{m} {n} {k}``; ``needs`` the
    compiler's name of the architecture where the plain one does not do."""

    name: _Text
    inputs: _Text
    sums: _Text
    shapes: Annotated[list[Annotated[str, Field(pattern=r"^\d+x\d+x\d+$")]], Field(min_length=1)]
    call: _Text
    needs: str = ""

    @property
    def calls(self) -> list[str]:
        """The instructions' calls, for authors who write them out."""
        return [
            self.call.format(shape=shape, **dict(zip("mnk", shape.split("x"), strict=True)))
            for shape in self.shapes
        ]


class Hint(_Facts):
    """Advice for whoever writes a kernel; a text alone is for all. ``languages`` are those that
    it is about; it is of no use where a feature that it ``needs`` cannot be run."""

    text: _Text
    languages: list[_Text] = []
    needs: list[_Text] = []

    @model_validator(mode="before")
    @classmethod
    def _may_be_text_alone(cls, data: object) -> object:
        return {"text": data} if isinstance(data, str) else data

    def __str__(self) -> str:
        return self.text


class Features(_Facts):
    """The features of the instruction set. ``fp8`` says which encoding: FNUZ bytes read as OCP
    are off by a factor of two. ``tf32`` includes AMD's xf32. ``matrix`` are the matrix
    instructions worth writing out, of those that ``mma`` names."""

    mma: list[str] = []
    matrix: list[MatrixInstruction] = []
    mma_dtypes: list[str] = []
    async_copy: list[str] = []
    fp8: Literal["none", "ocp", "fnuz"] = "none"
    tf32: bool = False
    extras: dict[str, bool | int | str] = {}


class Target(_Facts):
    """``l2_bytes`` is what one multiprocessor reaches (per XCD or GCD on CDNA), ``llc_bytes`` the
    last-level cache behind it. ``knobs`` lists the legal values of a kernel's tuning parameters.
    ``cpu_flags`` is what /proc/cpuinfo must show to run ``march``; a driver's name for a product
    contains one of ``device_names``."""

    name: _Word
    kind: Kind
    vendor: Vendor
    arch: _Word
    title: _Text
    family: _Text
    warp: _Count | None = None
    march: _Word | None = None
    cpu_flags: list[_Word] = []
    device_names: list[_Text] = []
    limits: Annotated[
        NvidiaLimits | AmdLimits | CpuLimits | OpenClLimits | TpuLimits,
        Field(discriminator="vendor"),
    ]
    features: Features = Features()
    peaks: dict[str, Peak] = {}
    memory_gb: float | None = None
    l2_bytes: int | None = None
    llc_bytes: int | None = None
    multiprocessors: int | None = None
    knobs: dict[str, Annotated[list[int], Field(min_length=1)]] = {}
    hints: list[Hint] = []
    sources: Annotated[list[_Text], Field(min_length=1)]
    uncertain: list[_Text] = []

    @model_validator(mode="before")
    @classmethod
    def _limits_by_vendor(cls, data: object) -> object:
        # The union of limits is told apart by the vendor, which a file states once, at its top.
        if isinstance(data, dict) and isinstance(data.get("limits"), dict):
            return data | {"limits": data["limits"] | {"vendor": data.get("vendor")}}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Target:
        if (self.kind == "product") == (self.arch == self.name):
            msg = f"arch: got {self.arch!r}, expected a product to name its architecture"
            raise ValueError(msg)
        form = _ARCHITECTURES.get(self.vendor, ".*")
        if not re.fullmatch(form, self.arch, re.ASCII):
            msg = f"arch: got {self.arch!r}, expected such as {form} for {self.vendor}"
            raise ValueError(msg)
        if (self.warp is not None) != self.is_gpu:
            msg = f"warp: got {self.warp}, expected a number of lanes exactly when it is a GPU"
            raise ValueError(msg)
        if (self.march is not None) != (self.vendor == "cpu"):
            msg = f"march: got {self.march!r}, expected -march's value exactly when it is a CPU"
            raise ValueError(msg)
        if self.kind == "product" and not (self.multiprocessors and "memory" in self.peaks):
            msg = "multiprocessors, peaks.memory: missing; a product states both"
            raise ValueError(msg)
        if bool(self.device_names) != (self.kind == "product"):
            msg = f"device_names: got {self.device_names}, expected names exactly for a product"
            raise ValueError(msg)
        strange = {each.name for each in self.features.matrix} - set(self.features.mma)
        if strange:
            msg = f"features.matrix: got {min(strange)!r}, expected one of features.mma"
            raise ValueError(msg)
        for key, peak in self.peaks.items():
            unit = "GB/s" if key.startswith("memory") else "TFLOP/s"
            if peak.unit != unit:
                msg = f"peaks.{key}.unit: got {peak.unit!r}, expected {unit!r}"
                raise ValueError(msg)
        if isinstance(self.limits, NvidiaLimits | AmdLimits) and self.warp:
            # Triton's num_warps=32 is legal on 32 lanes and over the limit on 64 (Liger-Kernel#326)
            most = self.limits.threads_block // self.warp
            if max(self.knobs.get("num_warps", [0])) > most:
                msg = f"knobs.num_warps: got {self.knobs['num_warps']}, expected at most {most}"
                raise ValueError(msg)
        return self

    @property
    def is_gpu(self) -> bool:
        return self.vendor in ("nvidia", "amd")

    def hints_for(self, *languages: str, without: Collection[str] = ()) -> list[str]:
        """The hints for authors of ``languages`` who have to do ``without`` these features; the
        language ``port`` stands for the author who mends a translated file, and sees no
        backend's guide."""
        return [
            hint.text
            for hint in self.hints
            if (not hint.languages or set(languages) & set(hint.languages))
            and not set(hint.needs) & set(without)
        ]

    @property
    def shared_block_bytes(self) -> int | None:
        """The most shared memory (LDS) one block may have; None where the device must be asked."""
        if isinstance(self.limits, NvidiaLimits):
            return self.limits.smem_block_bytes
        return self.limits.lds_block_bytes if isinstance(self.limits, AmdLimits) else None

    def __hash__(self) -> int:
        # The lists and dicts inside cannot be hashed; equal targets have equal names.
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


_PARTS: dict[str, type[BaseModel]] = {
    "peaks": Peak,
    "features": Features,
    "nvidia": NvidiaLimits,
    "amd": AmdLimits,
    "cpu": CpuLimits,
    "opencl": OpenClLimits,
    "google": TpuLimits,
}


def load(name: str) -> Target:
    return _load(name, os.environ.get(SITE))


def names(kind: Kind | None = None) -> list[str]:
    site = os.environ.get(SITE)
    known = sorted(_files(site))
    return known if kind is None else [name for name in known if _load(name, site).kind == kind]


@cache
def _load(name: str, site: str | None) -> Target:
    files = _files(site)
    if name not in files:
        raise no_such(kind="target", name=name, known=files)
    where = files[name][-1]  # ours are tested: what is wrong came with the last file
    facts: dict[str, object] = {}
    for file in files[name]:
        facts = _merge(facts, _read(file))
    for field in facts.keys() & {"name", "kind"}:
        msg = f"{where}: {field}: got {facts[field]!r}; delete it: the file name and 'arch' say it"
        raise ConfigError(msg)
    arch = facts.get("arch")
    if arch is not None:
        facts = _merge(_architecture(where, str(arch), site), facts)
    facts |= {"name": name, "kind": "product" if arch else "architecture", "arch": arch or name}
    try:
        return Target.model_validate(facts)
    except ValidationError as error:
        msg = f"{where}: {_first_problem(error)}"
        raise ConfigError(msg) from error


def _files(site: str | None) -> dict[str, list[Traversable]]:
    """The files of every target, ours before the site's: the order in which they merge."""
    folders: list[Traversable] = [resources.files("portkern.targets")]
    if site is not None:
        if not Path(site).is_dir():
            msg = (
                f"{SITE}: got {site!r}, expected a folder of YAML files; create it or unset {SITE}"
            )
            raise ConfigError(msg)
        folders.append(Path(site))
    files: dict[str, list[Traversable]] = {}
    for folder in folders:
        for file in folder.iterdir():
            if file.name.endswith(".yaml"):
                files.setdefault(file.name.removesuffix(".yaml"), []).append(file)
    return files


def _read(file: Traversable) -> dict[str, object]:
    try:
        facts = yaml_value(file.read_text("utf-8"))
    except (Malformed, UnicodeDecodeError) as error:
        msg = f"{file}: got YAML that does not parse: {error}"
        raise ConfigError(msg) from error
    if not isinstance(facts, dict):
        msg = f"{file}: got {type(facts).__name__}, expected fields such as 'title: ...'"
        raise ConfigError(msg)
    return facts


def _architecture(where: Traversable, arch: str, site: str | None) -> dict[str, object]:
    """The facts a product builds on; loading them first lets their own file take the blame."""
    try:
        base = _load(arch, site)
    except ConfigError as error:
        if arch in _files(site):
            raise
        msg = f"{where}: arch: {error}"
        raise ConfigError(msg) from error
    if base.kind == "product":
        msg = f"{where}: arch: got the product {arch!r}, expected its architecture {base.arch!r}"
        raise ConfigError(msg)
    return base.model_dump(exclude_unset=True)


def _merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(old, value)
        elif key in _ACCUMULATE and isinstance(old, list) and isinstance(value, list):
            merged[key] = old + value
        else:
            merged[key] = value
    return merged


def _first_problem(error: ValidationError) -> str:
    """pydantic's first complaint in one line: the field, what was got, what was expected."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    if path[:1] == ["limits"]:
        del path[1:2]  # the vendor, which chose the kind of limits
    field, got = ".".join(path), textwrap.shorten(repr(first["input"]), 80)
    if first["type"] == "missing":
        return f"{field}: missing; add it"
    if first["type"] == "extra_forbidden":
        owner = next((_PARTS[str(part)] for part in first["loc"][:-1] if part in _PARTS), Target)
        return f"{field}: {no_such('field', path[-1], owner.model_fields)}"
    if not path:
        return first["msg"].removeprefix("Value error, ")
    return f"{field}: got {got}, expected {first['msg'].removeprefix('Input should be ')}"
