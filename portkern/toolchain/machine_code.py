"""Machine code of a build by a digest: equal where the processor is told the same.

Of an ELF file that is what is loaded and either run or read: code, constants, kernel descriptors,
and what a file that was not linked calls. Where the code came from (paths, build ids, symbols,
unwinding tables, comments) is left out.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from portkern.errors import BuildError
from portkern.toolchain import elf

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

#: Flags of a section: it has a place in memory, and it is run.
_ALLOCATED, _RUN = 0x2, 0x4
#: The beginnings of names of sections that are loaded and not run: constants, and device code
#: within a program.
_READ = (".rodata", ".data.rel.ro", ".nv.constant", ".nv.info.", ".nv_fatbin", ".hip_fatbin")
_PACKED = ".nv_fatbin"
#: Files of nvcc's with device code, and those of them that have none of the kernel's.
_CUBIN, _OF_LINKING = ".cubin", "_dlink.cubin"
#: A text, whole, so that none is looked at twice.
_TEXT = re.compile(rb"[\x20-\x7e]+\0?")
#: The distance to the code in a kernel descriptor of AMD's, which moves with all that lies between.
_ENTRY, _ENTRY_BYTES = 16, 8
_ELF = b"\x7fELF"
#: What no kernel comes to; an emulator's runtime is not looked at.
MOST_BYTES = 64 << 20


#: An address in a name, which Numba gives to what it makes of a function.
_ADDRESS = re.compile(r"0x[0-9a-f]+|\.[0-9a-f]{8,}")


class MachineCode(NamedTuple):
    """``size``: bytes of instructions; None where they cannot be told from the rest."""

    digest: str
    size: int | None = None


def of(path: Path) -> MachineCode | None:
    """The machine code of the artifact's file, or of those beside it where it is a source that
    was compiled as it was loaded; None where there is no ELF file that can be read."""
    try:
        device = _cubins(path)
        files = [path] if _is_elf(path) else sorted(filter(_is_elf, path.parent.rglob("*")))
        host = [_read(file, file.stat().st_mtime_ns, packed=not device) for file in files]
        found = [_read(file, file.stat().st_mtime_ns) for file in device]
    except (OSError, BuildError):
        return None
    read = [*host, *found]
    if not read:
        return None
    text = " ".join(sorted({one.digest for one in read}))
    digest = read[0].digest if len(read) == 1 else hashlib.sha256(text.encode()).hexdigest()
    return MachineCode(digest[:16], sum(one.size or 0 for one in found or host))


def of_bytes(content: bytes) -> MachineCode | None:
    """The machine code of what a compiler or a driver keeps in memory: an ELF file, or else a
    binary of the driver's own, which is the same where each byte is. None for nothing, and for an
    ELF file that cannot be read."""
    if not content:
        return None
    if not content.startswith(_ELF):
        return MachineCode(hashlib.sha256(content).hexdigest()[:16])
    try:
        with elf.parsed(io.BytesIO(content), "the compiler's object") as file:
            found = _digest(file, "the compiler's object")
    except BuildError:
        return None
    return found._replace(digest=found.digest[:16])


def _is_elf(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > MOST_BYTES:
        return False
    with path.open("rb") as file:
        return file.read(4) == _ELF


def _cubins(library: Path) -> list[Path]:
    """The device code that nvcc left beside a library. The library has it packed, together with the
    lines of the source that they are of, so that a comment more would be other code."""
    if library.suffix != ".so":
        return []
    beside = sorted(library.parent.glob(f"*{_CUBIN}"))
    return [one for one in beside if not one.name.endswith(_OF_LINKING) and _is_elf(one)]


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int, *, packed: bool = True) -> MachineCode:
    """``changed``: when, so that a file is read again that is another. ``packed``: with the device
    code that is packed in it. Raises BuildError."""
    with elf.opened(path) as file:
        return _digest(file, path.name, packed=packed)


def _digest(file: ELFFile, name: str, *, packed: bool = True) -> MachineCode:
    """The whole digest. Raises BuildError for what cannot be read of a file of this name."""
    from elftools.common.exceptions import ELFError

    digest, size = hashlib.sha256(), 0
    try:
        for part, content, is_run in _parts(file):
            if part == _PACKED and not packed:
                continue
            digest.update(f"{part} {len(content)}\n".encode())
            digest.update(content)
            size += len(content) if is_run else 0
    except (ELFError, ValueError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise BuildError(f"{name} is not a readable ELF file: {error}") from error
    return MachineCode(digest.hexdigest(), size)


def _parts(file: ELFFile) -> Iterator[tuple[str, bytes, bool]]:
    """Name, content and whether it is run."""
    machine = str(file["e_machine"])
    yield machine, b"", False
    for section in file.iter_sections():
        flags, name = int(section["sh_flags"]), str(section.name)
        if not flags & _ALLOCATED or section["sh_type"] == "SHT_NOBITS":
            continue
        if flags & _RUN:
            yield name, elf.content(section), True
        elif name.startswith(_READ):
            content = bytearray(elf.content(section))
            for kernel in _descriptors(file) if machine == "EM_AMDGPU" else ():
                start = kernel - int(section["sh_addr"]) + _ENTRY
                if 0 <= start <= len(content) - _ENTRY_BYTES:
                    content[start : start + _ENTRY_BYTES] = bytes(_ENTRY_BYTES)
            yield name, _TEXT.sub(_without_path, bytes(content)), False
    if file["e_type"] == "ET_REL":
        yield from _calls(file)


def _calls(file: ELFFile) -> Iterator[tuple[str, bytes, bool]]:
    """The places in code that a linker would fill, and the names of what is elsewhere: without
    them a call of ``exp`` and one of ``log`` are the same bytes."""
    from elftools.elf.relocation import RelocationSection
    from elftools.elf.sections import SymbolTableSection

    for section in file.iter_sections():
        if isinstance(section, RelocationSection):
            of = file.get_section(int(section["sh_info"]))
            if int(of["sh_flags"]) & _RUN:
                yield str(section.name), elf.content(section), False
        elif isinstance(section, SymbolTableSection):
            names = (
                _ADDRESS.sub("", str(symbol.name))
                for symbol in section.iter_symbols()
                if symbol["st_shndx"] == "SHN_UNDEF"
            )
            yield str(section.name), "\n".join(names).encode(), False


def _without_path(text: re.Match[bytes]) -> bytes:
    """A text with a slash, as long as a path, is a file's name that an assertion or the compiler
    put there."""
    return b"\0" if text[0].endswith(b"\0") and b"/" in text[0][:-3] else text[0]


def _descriptors(file: ELFFile) -> list[int]:
    """Addresses of AMD's kernel descriptors."""
    from elftools.elf.sections import SymbolTableSection

    table = file.get_section_by_name(".dynsym") or file.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return []
    return [int(one["st_value"]) for one in table.iter_symbols() if str(one.name).endswith(".kd")]
