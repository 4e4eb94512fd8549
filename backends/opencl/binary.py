"""The binary that a driver made of a program, without what differs from one process to the next.

AMD's and Intel's binaries are ELF files; NVIDIA's is PTX, and PoCL's LLVM's bitcode, from which the
driver makes machine code as kernels are enqueued, a copy for each size of groups. Such a binary and
the driver's version decide what runs.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl

_ELF, _POCL, _PTX = b"\x7fELF", b"poclbin\0", b"//"
#: The mark in PoCL's binary: the name of the file with the bitcode, before its size.
_BITCODE = b"/program.bc"
#: The file into which PoCL wrote the source, as bitcode names it: in a folder of the process's own.
_SOURCE = re.compile(rb"/[\w./-]+/tempfile_\w{6}\.cl")
#: LLVM says that name once more among its numbers, in so many bits for a character.
_BITS = 7
#: The build of the compiler that wrote PTX.
_COMMENT = re.compile(rb"(?m)^//.*\n?")


def code(program: pyopencl.Program, device: pyopencl.Device) -> bytes:
    """The binary for a device; empty where the driver gives none that is known to stay the same."""
    import pyopencl as cl

    try:
        devices: Any = program.get_info(cl.program_info.DEVICES)
        binaries: Any = program.get_info(cl.program_info.BINARIES)
    except cl.Error:
        return b""
    built = bytes(binaries[devices.index(device)])
    driver = f"{device.name}, {device.driver_version}\n".encode()
    if built.startswith(_ELF):
        return built
    if built.startswith(_POCL):
        bitcode = _bitcode(built)
        return driver + bitcode if bitcode else b""
    return driver + _COMMENT.sub(b"", built) if built.startswith(_PTX) else b""


def _bitcode(built: bytes) -> bytes:
    """The bitcode in PoCL's binary without the name of its source; empty where it has none."""
    at = built.find(_BITCODE) + len(_BITCODE)
    if at < len(_BITCODE) or at + 4 > len(built):
        return b""
    [size] = struct.unpack_from("<I", built, at)
    content = built[at + 4 : at + 4 + size]
    name = _SOURCE.search(content)
    return _without(content, name[0]) if name else b""


def _without(content: bytes, name: bytes) -> bytes:
    """The content with zeros for a name, as text and packed at any bit."""
    packed = sum(letter << (_BITS * at) for at, letter in enumerate(name))
    width = _BITS * len(name)
    for shift in range(8):
        # The bytes that are the name's alone: the first may begin with something else.
        alone = packed >> (8 - shift)
        at = content.find(alone.to_bytes(width // 8 + 1, "little")[: (width + shift) // 8 - 1])
        if at > 0:
            bits = int.from_bytes(content, "little")
            bits &= ~(((1 << width) - 1) << (8 * (at - 1) + shift))
            content = bits.to_bytes(len(content), "little")
    return content.replace(name, bytes(len(name)))
