"""The text that a GPU compiler sees: our prelude, then the author's lines under their own
numbers."""

from __future__ import annotations

import re
from pathlib import Path

from portkern.errors import BuildError
from portkern.spec import abi
from portkern.spec.backend import Build
from portkern.toolchain.source_tree import SourceTree

#: CUDA's names of the dtypes that tensors may have.
TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
# Each costs 0.1 to 0.3 s of compile time, so only the dtypes in use bring theirs.
_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}

_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*(?:.*?\*/|.*)|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL
)


def dtypes(request: Build) -> set[str]:
    """Every dtype that a pointer of this cell has."""
    signature = request.signature
    return {t.resolve(request.dtype) for t in (*signature.inputs, *signature.outputs)}


def prelude(request: Build) -> str:
    """CUDA's headers, ``scalar_t`` and the entry's prototype."""
    headers = ["cuda_runtime.h", *(_HEADERS[d] for d in sorted(dtypes(request)) if d in _HEADERS)]
    return abi.prelude(
        request.signature,
        request.candidate.entry,
        request.dtype,
        TYPES,
        include="\n".join(f"#include <{h}>" for h in headers),
        stream="cudaStream_t",
    )


def numbered(request: Build, before: str, suffix: str, tree: SourceTree) -> str:
    """``before``, then the candidate such that errors name ``<op>.cu`` and the author's lines;
    ``tree.after`` is for its further sources."""
    name = f"{request.signature.name}{suffix}"
    return f'{before}#line 1 "{name}"\n{request.candidate.source}\n{tree.after}'


def write(request: Build, text: str, workdir: Path, suffix: str) -> Path:
    """Put the translation unit into ``workdir``."""
    path = workdir / f"{request.signature.name}{suffix}"
    path.write_text(text, encoding="utf-8")
    return path


def defines_entry(request: Build) -> bool:
    """Whether the text holds a body for the entry; compiling for the device alone needs none."""
    candidate = request.candidate
    text = "\n".join((candidate.source, *candidate.companions.texts.values()))
    text = _COMMENT_OR_STRING.sub(" ", text)
    entry = re.escape(candidate.entry)
    return re.search(rf"\b{entry}\s*\([^;{{}}]*\)\s*{{", text) is not None


def no_entry(request: Build, suffix: str, stream: str) -> BuildError:
    """The error for a source that compiles and cannot be called."""
    entry, types = request.candidate.entry, TYPES | {request.dtype: "scalar_t"}
    expected = abi.prototype(request.signature, entry, types, stream=stream)
    name = f"{request.signature.name}{suffix}"
    return BuildError(f"No function {entry!r} in {name}; expected: {expected}")


def exports(library: Path, symbol: str) -> bool:
    """Whether a shared library names ``symbol`` among its dynamic strings; nothing is opened."""
    return b"\0" + symbol.encode() + b"\0" in library.read_bytes()
