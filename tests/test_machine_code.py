"""Machine code as evidence: what is equal for the processor is equal, other code of one source is
named, and kernels without hardware have exact counts that may not grow."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern.errors import BuildError
from portkern.records.record import Counts, Evidence, Record
from portkern.regression import counts
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import Night
from portkern.regression.rule import ChangeKind
from portkern.regression.timed import TimedPlace
from portkern.toolchain import elf, machine_code
from tests.test_regression import UNAVAILABLE, record

SUM = "extern int seen(const char*); int sum(int n) { int s = 0; while (n) s += n--; return s; }"
NAMED = ' int where(void) { return seen(__FILE__ "/path"); }'


def library(folder: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k.c").write_text(source)
    command = [compiler, "-O1", "-shared", "-fPIC", *flags, "-o", "k.so", str(folder / "k.c")]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "k.so"


def test_where_code_was_built_and_what_only_debuggers_read_is_not_part_of_it(
    tmp_path: Path,
) -> None:
    one = machine_code.of(library(tmp_path / "one", SUM + NAMED))
    two = machine_code.of(library(tmp_path / "two", SUM + NAMED, "-g", "-Wl,--build-id=0x1234"))
    assert one is not None and one == two and one.size


@pytest.mark.parametrize(("device", "same"), [(SUM, True), (SUM.replace("n--", "2 * n--"), False)])
def test_of_a_library_with_packed_device_code_what_was_packed_counts(
    tmp_path: Path, device: str, same: bool
) -> None:
    """nvcc packs lines of the source too; the code by itself it leaves beside, if told to."""
    packed = '; __attribute__((section(".nv_fatbin"), used)) const char packed[] = "NAME";'
    found = []
    for name, code in ("one", SUM), ("two", device):
        made = library(tmp_path / name, SUM + packed.replace("NAME", name))
        assert machine_code.of(made) not in found
        cubin = library(tmp_path / name / "device", code)
        cubin.rename(made.with_suffix(".cubin"))
        found.append(machine_code.of(made))
    assert (found[0] == found[1]) == same


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (SUM.replace("s += n--", "s += 2 * n--"), []),
        (SUM, ["-O2"]),
        (SUM + " const int table[4] = {1, 2, 3, 4};", []),
    ],
    ids=["instruction", "flags", "constants"],
)
def test_another_instruction_or_constant_is_other_code(
    tmp_path: Path, source: str, flags: list[str]
) -> None:
    one = machine_code.of(library(tmp_path / "one", SUM))
    assert one != machine_code.of(library(tmp_path / "two", source, *flags))


@pytest.mark.parametrize(
    "content", [b"", b"#include", b"\x7fELF", b"\x7fELF" + bytes(range(256)) * 9]
)
def test_what_is_not_an_object_file_has_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(content)
    assert machine_code.of(path) is None and machine_code.of(tmp_path / "gone" / "x") is None


def test_what_an_object_that_was_not_linked_calls_counts_and_addresses_in_names_do_not(
    tmp_path: Path,
) -> None:
    def of(name: str) -> machine_code.MachineCode | None:
        other = f'extern double other(double) __asm__("{name}");'
        call = "double f(double x) { return other(x); }"
        path = library(tmp_path / name, f"{other} {call}", "-c", "-O2")
        return machine_code.of_bytes(path.read_bytes())

    assert of("exp") is not None and of("exp") != of("log")
    assert of("made_0x7f6cb16af910") == of("made_0x7fcccf31bad0")


def test_a_drivers_own_binary_is_known_by_its_bytes_and_a_broken_object_by_nothing() -> None:
    one, two = machine_code.of_bytes(b"\x01binary"), machine_code.of_bytes(b"\x02binary")
    assert one is not None and two is not None and one != two and one.size is None
    assert machine_code.of_bytes(b"") is None
    assert machine_code.of_bytes(b"\x7fELF" + bytes(range(256)) * 9) is None


# ---- between nights

HIP: dict[str, Any] = {"backend": "hip", "language": "hip", "target": "gfx942"}


def built(night: int, code: str = "a", **used: Any) -> Record:
    """A build for a GPU that is not there."""
    resources = [{"kernel": "k", "registers": 40, "spills": 0, "shared_bytes": 1024} | used]
    said = {**UNAVAILABLE, "evidence": Evidence.BUILT, "resources": resources, **HIP}
    size, executed = used.pop("size", 1000), used.pop("executed", 500)
    for name in ("size", "executed", "lines", "lds_passes"):
        resources[0].pop(name, None)
    moved = {name: used.pop(name, 64) for name in ("lines", "lds_passes")}
    made = {name: n for name, n in moved.items() if n}  # an executor names no count of 0
    launches = [{"name": "k", "counts": {"instructions": executed, **made}}]
    return Record.model_validate(
        record(night=night, **{**said, "resources": []}).model_dump()
        | {"resources": resources, "code": code, "code_bytes": size, "launches": launches}
    )


def last(several: Sequence[Record], name: str = "n") -> CellChange:
    nights = [Night.of(f"{name}{n}", [one]) for n, one in enumerate(several)]
    [cell] = RunComparison.of(nights[-2], nights[-1], nights[:-1]).cells
    return cell


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ({"spills": 4}, "spills 0 → 4"),
        ({"registers": 50}, "registers 40 → 50"),
        ({"shared_bytes": 2048}, "shared memory 1024 → 2048"),
        ({"size": 1200}, "bytes of instructions 1000 → 1200"),
        ({"executed": 600}, "executed instructions 500 → 600"),
        ({"lines": 80}, "lines of memory 64 → 80"),
        ({"lds_passes": 96}, "passes of LDS 64 → 96"),
    ],
    ids=["spills", "registers", "LDS", "bytes", "instructions", "lines", "passes"],
)
def test_a_kernel_without_hardware_may_not_grow(used: dict[str, Any], said: str) -> None:
    cell = last([built(0), built(1), built(2, "b", **used)])
    assert cell.change is ChangeKind.HEAVIER and cell.regressed and said in cell.detail
    assert cell.cause is Cause.TOOLCHAIN, "the source is the same"
    later = last([built(0), built(1), *(built(n, "b", **used) for n in (2, 3, 4))])
    assert later.nights == 3 and later.last_good == "n1"
    mended = last([built(0), built(1), built(2, "b", **used), built(3)])
    assert mended.change is ChangeKind.FIXED


def test_a_kernel_that_begins_to_use_lds_is_heavier() -> None:
    none = [built(0, lds_passes=0), built(1, lds_passes=0)]
    cell = last([*none, built(2, "b", lds_passes=100_000)])
    assert cell.change is ChangeKind.HEAVIER and "passes of LDS 0 → 100000" in cell.detail
    assert last([*none, built(2, "b", lds_passes=0)]).change is ChangeKind.UNCHANGED
    uncounted = built(0).model_copy(update={"launches": []}).counts
    assert uncounted.lds_passes is None and none[0].counts.lds_passes == 0


def test_counts_that_creep_are_compared_with_the_least_that_was_enough() -> None:
    several = [built(n, f"c{n}", size=1000 + 40 * n) for n in range(5)]
    assert last(several[:3]).change is ChangeKind.UNCHANGED
    assert last(several).change is ChangeKind.HEAVIER
    assert counts.more(Counts(), Counts(1, 2, 3, 4)) == [], "nothing is known of before"


def timed(night: int, us: float, tool: str = "12", code: str = "a", **changes: Any) -> Record:
    one = record(night=night, us=us, code=code, **changes)
    there = one.environment.model_copy(update={"toolchain": {"c++": tool}})
    return one.model_copy(update={"environment": there, "key": f"key of {tool}"})


def slower(code: str, **changes: Any) -> tuple[CellChange, Sequence[str]]:
    history = [Night.of(f"n{n}", [timed(n, 10.0)]) for n in range(8)]
    late = [timed(20, 20.0, "13", code, **changes) for _ in range(3)]
    comparison = RunComparison.of(history[-1], Night.of("late", late[:1], late[1:]), history)
    [cell] = comparison.cells
    return cell, comparison.machine


def test_a_compiler_is_blamed_where_it_made_other_code_and_only_there() -> None:
    other, lines = slower("b")
    assert other.change is ChangeKind.SLOWER and other.cause is Cause.TOOLCHAIN
    assert (
        "its machine code" in other.because and "other machine code of the same source" in lines[0]
    )
    same, lines = slower("a")
    assert same.change is ChangeKind.SLOWER and same.cause is Cause.UNEXPLAINED and not lines


def test_a_carried_time_is_not_a_new_time() -> None:
    history = [Night.of(f"n{n}", [timed(n, 10.0)]) for n in range(6)]
    carried = [
        Night.of(f"c{n}", [timed(n + 6, 10.0).model_copy(update={"carried": "n5"})])
        for n in range(6)
    ]
    comparison = RunComparison.of(history[-1], carried[-1], [*history, *carried[:-1]])
    [cell] = comparison.cells
    assert cell.change is ChangeKind.UNCHANGED and "carried over from n5" in cell.detail
    [one] = comparison.references.cells.values()
    assert len(one.levels[TimedPlace.of(carried[0].cells[cell.series])].first) == 6


@pytest.mark.parametrize("text", ["a" * 200_000, "a/b" * 60_000], ids=["letters", "slashes"])
def test_a_long_constant_is_read_in_time(tmp_path: Path, text: str) -> None:
    """Its author is a stranger, and who reads it has no limit of its own."""
    source = f'{SUM} const char* said(void) {{ return "{text}\\xff"; }}'
    begin = time.process_time()
    assert machine_code.of(library(tmp_path, source)) is not None
    assert time.process_time() - begin < 2


def _with_constants(path: Path, flags: int, content: bytes, size: int) -> None:
    """Gives the section of constants these flags, this content at the file's end, and this size."""
    data = bytearray(path.read_bytes())
    with elf.opened(path) as file:
        number = next(n for n, one in enumerate(file.iter_sections()) if one.name == ".rodata")
        header = file["e_shoff"] + number * file["e_shentsize"]
    struct.pack_into("<Q", data, header + 8, flags)
    struct.pack_into("<QQ", data, header + 24, len(data), size)
    path.write_bytes(bytes(data) + content)


@pytest.mark.parametrize("kind", ["packed", "absent"])
def test_a_section_takes_no_more_memory_than_the_file_has(tmp_path: Path, kind: str) -> None:
    path = library(tmp_path, SUM + " const int table[4] = {1, 2, 3, 4};")
    assert machine_code.of(path) is not None
    packed = struct.pack("<IIQQ", 1, 0, 1 << 40, 1) + zlib.compress(bytes(1 << 20))
    _with_constants(
        path, *((0x802, packed, len(packed)) if kind == "packed" else (2, b"", 1 << 40))
    )
    machine_code._read.cache_clear()
    assert machine_code.of(path) is None


#: Sections of code, of which the last has data, and more of them than a symbol can number.
MANY_SECTIONS = """
.macro one flags
.section s\\@,"\\flags",@progbits
ret
.endm
.rept 65400
one ax
.endr
.section zz,"ax",@progbits
.type data,@object
data: .long 0
.rept 1000
one a
.endr
"""


def test_data_among_code_does_not_hide_behind_many_sections(tmp_path: Path) -> None:
    few = MANY_SECTIONS.replace("65400", "10").replace("1000", "10")
    for text, why in ((few, "has data among its code (data)"), (MANY_SECTIONS, "more sections")):
        (tmp_path / "a.s").write_text(text)
        command = [shutil.which("gcc") or pytest.skip("no gcc"), "-c", "a.s", "-o", "a.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        assert why in elf.changeable_code(tmp_path / "a.o")


def test_a_file_whose_tables_lie_is_refused_in_a_line(tmp_path: Path) -> None:
    data = library(tmp_path, SUM).read_bytes()
    (sections,) = struct.unpack_from("<Q", data, 40)
    draw, file, refused = random.Random(44), tmp_path / "made.so", 0
    for _ in range(200):
        made = bytearray(data)
        size = draw.choice([2, 4, 8])
        at = draw.choice([range(16, 64), range(64, 600), range(sections, len(data))])
        value = draw.choice([0, 1, 1 << 15, (1 << 31) - 1, (1 << 32) - 1, (1 << 64) - 1])
        place = draw.choice(at) // size * size
        made[place : place + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
        file.write_bytes(made[: len(data)])
        for reader in (elf.linked, elf.changeable_code, lambda path: elf.note(path, 1)):
            try:
                reader(file)
            except BuildError as error:
                refused += 1
                assert "\n" not in str(error)
    assert refused
