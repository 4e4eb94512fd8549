"""Facts from ELF files, without loading them: loading runs their constructors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from portkern.errors import BuildError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section

#: What pyelftools raises of files that it believes.
_OF_LIES = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, OverflowError),
    *(RuntimeError, OSError, MemoryError),
)
#: The first number that a symbol has no room for: those of more sections stand elsewhere.
_MOST_SECTIONS = 0xFF00
#: A section's flag: it is packed, into whatever it says.
_COMPRESSED = 0x800


@contextmanager
def opened(path: Path) -> Iterator[ELFFile]:
    """The file as pyelftools reads it. Raises BuildError for what is not an ELF file."""
    with path.open("rb") as stream, parsed(stream, path.name) as file:
        yield file


@contextmanager
def parsed(stream: BinaryIO, name: str) -> Iterator[ELFFile]:
    """The same of a stream, which errors call ``name``. What is read within this context is a
    stranger's: a place or a number that cannot be is a BuildError as well."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        yield ELFFile(stream)
    except (ELFError, ConstructError, *_OF_LIES) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise BuildError(f"{name} is not a readable ELF file: {why:.200}") from error


def content(section: Section) -> bytes:
    """The bytes of a section that a process is given as they are in the file. Raises BuildError for
    one which says that there are more of them, and for one that would have to be unpacked."""
    if int(section["sh_flags"]) & _COMPRESSED:
        raise BuildError(f"the section {section.name!a} is compressed")
    at, size = int(section["sh_offset"]), int(section["sh_size"])
    section.stream.seek(0, SEEK_END)
    if at + size > section.stream.tell():
        raise BuildError(f"the section {section.name!a} has {size} bytes, which are not there")
    return bytes(section.data())


def defines(path: Path, symbol: str) -> bool:
    """Whether the file at ``path`` defines the global ``symbol``."""
    from elftools.elf.sections import SymbolTableSection

    with opened(path) as elf:
        tables = [part for part in elf.iter_sections() if isinstance(part, SymbolTableSection)]
        return any(
            entry["st_shndx"] != "SHN_UNDEF"  # used here, defined elsewhere
            and entry["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK")
            for table in tables
            for entry in table.get_symbol_by_name(symbol) or ()
        )


@dataclass(frozen=True)
class Linked:
    """The names that a program or library takes from others, and those of the functions that others
    may take from it, as the dynamic linker knows them. A name is taken where an address is to be
    put in: code that the linker dropped leaves its names behind, without such places. Variables are
    taken, whoever has them: a program may have a place of its own for one of a library's. What it
    has itself, also for nobody else, is defined."""

    taken: frozenset[str]
    given: frozenset[str]
    defined: frozenset[str]


def changeable_code(path: Path) -> str:
    """Why what a program runs may be other than what was compiled: '' where nothing in the file
    lets it. Raises BuildError for what is not an ELF file."""
    from elftools.elf.sections import SymbolTableSection

    with opened(path) as elf:
        if elf.num_sections() >= _MOST_SECTIONS:
            return "has more sections than its symbols can name"
        for segment in elf.iter_segments():
            flags, kind = int(segment["p_flags"]), segment["p_type"]
            if flags & _EXECUTED and (flags & _WRITTEN or kind == "PT_GNU_STACK"):
                return "has memory that is written to and executed"
        for table in elf.iter_sections("SHT_SYMTAB"):
            assert isinstance(table, SymbolTableSection)
            for entry in table.iter_symbols():
                place = entry["st_shndx"]
                if entry["st_info"]["type"] == "STT_OBJECT" and isinstance(place, int):
                    if int(elf.get_section(place)["sh_flags"]) & _EXECUTABLE:
                        return f"has data among its code ({entry.name:.60})"
    return ""


#: Flags of segments and of sections.
_EXECUTED, _WRITTEN, _EXECUTABLE = 1, 2, 4


def linked(path: Path) -> Linked:
    """Raises BuildError for what is not an ELF file."""
    from elftools.elf.sections import SymbolTableSection

    taken: set[str] = set()
    given: set[str] = set()
    with opened(path) as elf:
        for table in elf.iter_sections("SHT_DYNSYM"):
            assert isinstance(table, SymbolTableSection)
            for entry in table.iter_symbols():
                if entry["st_info"]["type"] == "STT_OBJECT":
                    taken.add(entry.name)
                elif entry["st_shndx"] != "SHN_UNDEF":
                    given.add(entry.name)
        taken.update(_put_in(elf))
        defined = frozenset(_defined(elf))
    return Linked(frozenset(taken), frozenset(given), defined)


def _defined(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.sections import SymbolTableSection

    for table in elf.iter_sections("SHT_SYMTAB"):
        assert isinstance(table, SymbolTableSection)
        for entry in table.iter_symbols():
            kind = entry["st_info"]["type"]
            if entry["st_shndx"] != "SHN_UNDEF" and kind not in ("STT_FILE", "STT_SECTION"):
                yield entry.name


def _put_in(elf: ELFFile) -> Iterator[str]:
    """The names whose addresses the dynamic linker puts in, by the tables that it reads itself."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.relocation import RelocationTable

    for segment in elf.iter_segments("PT_DYNAMIC"):
        assert isinstance(segment, DynamicSegment)
        for table in segment.get_relocation_tables().values():
            if not isinstance(table, RelocationTable):
                continue  # addresses of its own alone
            used = {entry["r_info_sym"] for entry in table.iter_relocations()} - {0}
            yield from (segment.get_symbol(number).name for number in sorted(used))


def note(path: Path, kind: int) -> bytes | None:
    """The payload of the first note of the type ``kind``; None where there is none."""
    from elftools.elf.sections import NoteSection

    with opened(path) as elf:
        for section in elf.iter_sections():
            if isinstance(section, NoteSection):
                for entry in section.iter_notes():
                    # Types that pyelftools has no name for stay numbers, whatever its stubs say.
                    if str(entry["n_type"]) == str(kind):
                        return bytes(entry["n_descdata"])
    return None
