"""Headers of libraries that host code calls, where this machine has none: enough of them to read
that code by.

An object for the GPU has nothing of such calls in it. What device code uses has no stand-in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from portkern.records import atomic_write
from portkern.toolchain.run_tool import cache_root


@dataclass(frozen=True)
class _HostLibrary:
    title: str
    headers: tuple[str, ...]
    prefix: str


_LIBRARIES = (
    _HostLibrary("hipBLAS", ("hipblas/hipblas.h", "hipblas.h", "hipblaslt/hipblaslt.h"), "hipblas"),
    _HostLibrary("hipFFT", ("hipfft/hipfft.h", "hipfft.h"), "hipfft"),
    _HostLibrary("hipSPARSE", ("hipsparse/hipsparse.h", "hipsparse.h"), "hipsparse"),
    _HostLibrary("hipSOLVER", ("hipsolver/hipsolver.h", "hipsolver.h"), "hipsolver"),
    _HostLibrary("hipRAND", ("hiprand/hiprand.h", "hiprand.h"), "hiprand"),
    _HostLibrary("RCCL", ("rccl/rccl.h", "rccl.h"), "nccl"),
)
#: One type for all of theirs: it is made from anything, and is a number where one is asked for.
_BEGIN = """\
// Stand-ins of {title}: host code is read by them, nothing can be linked. Written by portkern.
#pragma once
#include <hip/hip_runtime.h>
#if __has_include(<hip/library_types.h>)
#include <hip/library_types.h>
#endif
#ifndef PORTKERN_STAND_IN
#define PORTKERN_STAND_IN
namespace portkern_stand_in {{
struct Any {{
    Any() = default;
    template <class T>
    Any(const T&) {{}}
    operator int() const {{ return 0; }}
}};
struct Chosen : Any {{
    Any algo, state;
    size_t workspaceSize;
    float wavesCount;
}};
}}  // namespace portkern_stand_in
#endif
"""
#: Structures whose fields are used, and types that kernels see.
_OWN = {
    "hipblasLtMatmulHeuristicResult_t": "typedef portkern_stand_in::Chosen {name};",
    "hipfftComplex": "typedef float2 {name};",
    "hipfftDoubleComplex": "typedef double2 {name};",
    "hipfftReal": "typedef float {name};",
    "hipfftDoubleReal": "typedef double {name};",
}


def title(header: str) -> str:
    """The title of the library that a header belongs to; '' for a header that has no stand-in."""
    return next((library.title for library in _LIBRARIES if header in library.headers), "")


def folder(texts: Iterable[str]) -> Path:
    """Headers with all names that these files use, in a folder that stays."""
    whole = "\n".join(texts)
    written = {library: _header(library, whole) for library in _LIBRARIES}
    digest = hashlib.sha256("".join(written.values()).encode()).hexdigest()[:24]
    place = home() / digest
    for library, text in written.items():
        for name in library.headers:
            if not (place / name).is_file():
                atomic_write.write(place / name, text)
    return place


def home() -> Path:
    """The folder in which all stand-ins lie, which is made if need be."""
    place = cache_root() / "port-stand-ins"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _header(library: _HostLibrary, text: str) -> str:
    names = rf"\b(?:{library.prefix}|{library.prefix.upper()}(?:LT)?_)\w+"
    used = sorted(set(re.findall(names, text)))
    called = set(re.findall(rf"({names})\s*\(", text))
    guard = f"PORTKERN_STAND_IN_{library.prefix.upper()}"
    types = [name for name in used if _is_type(name)]
    constants = [name for name in used if not _is_type(name) and name not in called]
    functions = [name for name in used if not _is_type(name) and name in called]
    lines = [_BEGIN.format(title=library.title), f"#ifndef {guard}", f"#define {guard}"]
    own = "typedef portkern_stand_in::Any {name};"
    lines += [_OWN.get(name, own).format(name=name) for name in types]
    if constants:
        lines.append(f"enum portkern_names_of_{library.prefix} {{ {', '.join(constants)} }};")
    lines += [f"template <class... T> portkern_stand_in::Any {name}(T...);" for name in functions]
    return "\n".join([*lines, "#endif", ""])


def _is_type(name: str) -> bool:
    return name.endswith(("_t", "Handle", "UniqueId")) or name in _OWN
