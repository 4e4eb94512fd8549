"""AMD code objects as the executor needs them: an image, its kernels and what each is started with.

The layout is LLVM's (AMDGPUUsage, code objects of version 5 and 6): a kernel descriptor of 64 bytes
in the image, and a msgpack note which names arguments, also those that the compiler adds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError
from portkern.toolchain import amd_metadata, elf

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

#: ``EF_AMDGPU_MACH`` of the processors that are modelled.
PROCESSORS = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x41: "gfx1100", 0x4E: "gfx1201"}
#: Code object versions by the ELF file's ABI version.
VERSIONS = {3: 5, 4: 6}
_MACHINE = "EM_AMDGPU"
_DESCRIPTOR_BYTES = 64
_RELATIVE = 13  # R_AMDGPU_RELATIVE64
#: An image is read whole into memory, and a stranger's may say anything.
MOST_BYTES = 1 << 28
#: Instructions may be fetched, and tables read, a little past the last section.
_SLACK = 256


@dataclass(frozen=True)
class ObjectArgument:
    """A place in the kernel's argument segment; ``kind`` is the metadata's ``.value_kind``."""

    offset: int
    size: int
    kind: str
    name: str = ""

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")


@dataclass(frozen=True)
class ObjectKernel:
    """The facts that a launch needs: where the code begins, and what registers hold by then."""

    name: str
    descriptor: int
    entry: int
    lds_bytes: int
    scratch_bytes: int
    dynamic_stack: bool
    kernarg_bytes: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_words: int
    preload_offset: int
    wave_size: int
    most_threads: int
    vectors: int
    arguments: tuple[ObjectArgument, ...]

    @property
    def explicit(self) -> tuple[ObjectArgument, ...]:
        return tuple(argument for argument in self.arguments if not argument.hidden)

    @property
    def asks_for_dispatch_packet(self) -> bool:
        return bool(self.properties >> 1 & 1)


@dataclass(frozen=True)
class CodeObject:
    """``image`` is the file as it would be loaded at address 0; ``relocations`` are the places to
    which the address that it is loaded at is added, with what is added to it; ``variables`` are the
    addresses and sizes of the device's variables."""

    processor: str
    version: int
    image: bytes
    text: tuple[int, int]
    relocations: tuple[tuple[int, int], ...]
    kernels: dict[str, ObjectKernel]
    variables: dict[str, tuple[int, int]]

    def kernel(self, name: str) -> ObjectKernel:
        if name not in self.kernels:
            known = ", ".join(sorted(self.kernels)[:5]) or "none"
            raise BuildError(f"No kernel {name!r} in the code object; it has {known}")
        return self.kernels[name]


def read(path: Path) -> CodeObject:
    """The code object in ``path``. Raises BuildError with what is wrong about another file."""
    facts = amd_metadata.kernels(path)
    with elf.opened(path) as file:
        try:
            return _read(path, file, facts)
        except (struct.error, KeyError, IndexError, ValueError, AttributeError) as error:
            raise BuildError(f"{path.name} is not a whole code object: {error!r}") from error


def _read(path: Path, file: ELFFile, facts: Sequence[dict[str, Any]]) -> CodeObject:
    header = file.header
    if header["e_machine"] != _MACHINE or not file.little_endian or file.elfclass != 64:
        raise BuildError(f"{path.name} is for {header['e_machine']}, expected an AMD code object")
    processor = PROCESSORS.get(header["e_flags"] & 0xFF)
    if processor is None:
        known = ", ".join(PROCESSORS.values())
        mark = header["e_flags"] & 0xFF
        raise BuildError(f"{path.name} is for AMD's processor {mark:#x}; modelled are {known}")
    abi = header["e_ident"]["EI_ABIVERSION"]
    if abi not in VERSIONS:
        raise BuildError(f"{path.name} has the ABI version {abi}, expected code object 5 or 6")
    image, text = _image(path, file)
    table = _symbols(file)
    symbols = {entry.name: entry["st_value"] for entry in table.iter_symbols()}
    kernels = {str(one[".name"]): _kernel(one, symbols, image) for one in facts}
    relocations = _relocations(file, image)
    variables = _variables(table, len(image))
    return CodeObject(processor, VERSIONS[abi], image, text, relocations, kernels, variables)


def _image(path: Path, file: ELFFile) -> tuple[bytes, tuple[int, int]]:
    segments = [part for part in file.iter_segments() if part["p_type"] == "PT_LOAD"]
    size = max((part["p_vaddr"] + part["p_memsz"] for part in segments), default=0) + _SLACK
    if size > MOST_BYTES:
        raise BuildError(f"{path.name} asks for {size} bytes, the most is {MOST_BYTES}")
    image = bytearray(size)
    for part in segments:
        data = part.data()[: part["p_memsz"]]
        image[part["p_vaddr"] : part["p_vaddr"] + len(data)] = data
    code = file.get_section_by_name(".text")
    if code is None or code["sh_addr"] + code["sh_size"] > size or code["sh_addr"] % 4:
        raise BuildError(f"{path.name} has no code that lies inside its image")
    return bytes(image), (code["sh_addr"], code["sh_size"])


def _symbols(file: ELFFile) -> SymbolTableSection:
    from elftools.elf.sections import SymbolTableSection

    table = file.get_section_by_name(".symtab") or file.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        raise ValueError("no symbols")
    return table


def _variables(table: SymbolTableSection, size: int) -> dict[str, tuple[int, int]]:
    """The symbols of data that are not descriptors and lie in the image."""
    return {
        entry.name: (entry["st_value"], entry["st_size"])
        for entry in table.iter_symbols()
        if entry["st_info"]["type"] == "STT_OBJECT"
        and entry["st_shndx"] != "SHN_UNDEF"
        and not entry.name.endswith(".kd")
        and 0 < entry["st_size"] <= size - entry["st_value"]
    }


def _relocations(file: ELFFile, image: bytes) -> tuple[tuple[int, int], ...]:
    from elftools.elf.relocation import RelocationSection

    found = []
    for section in file.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        for entry in section.iter_relocations():
            kind, at = entry["r_info_type"], entry["r_offset"]
            if kind != _RELATIVE or at + 8 > len(image):
                raise BuildError(f"The code object has a relocation of type {kind} at {at:#x}")
            found.append((at, entry["r_addend"]))
    return tuple(found)


def _kernel(facts: dict[str, Any], symbols: dict[str, int], image: bytes) -> ObjectKernel:
    at = symbols[facts[".symbol"]]
    descriptor = image[at : at + _DESCRIPTOR_BYTES]
    lds, scratch, kernarg = struct.unpack_from("<III", descriptor, 0)
    (entry,) = struct.unpack_from("<q", descriptor, 16)
    rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", descriptor, 44)
    properties, preload = struct.unpack_from("<HH", descriptor, 56)
    arguments = tuple(
        ObjectArgument(one[".offset"], one[".size"], one[".value_kind"], one.get(".name", ""))
        for one in facts.get(".args", ())
    )
    return ObjectKernel(
        name=facts[".name"],
        descriptor=at,
        entry=at + entry,
        lds_bytes=lds,
        scratch_bytes=scratch,
        dynamic_stack=bool(facts.get(".uses_dynamic_stack", False)),
        kernarg_bytes=max(kernarg, facts[".kernarg_segment_size"]),
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        preload_words=preload & 127,
        preload_offset=preload >> 7,
        wave_size=32 if properties >> 10 & 1 else 64,
        most_threads=facts[".max_flat_workgroup_size"],
        vectors=facts[".vgpr_count"],
        arguments=arguments,
    )
