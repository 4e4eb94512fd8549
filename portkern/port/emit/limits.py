"""Constructs that have no counterpart here in OpenCL C or in C++ for CPUs, by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from portkern.cuda_source.lexer import Kind, Token, tokenize


@dataclass(frozen=True)
class RefusedEmission:
    """Why no source is emitted for a kernel; ``line`` is of its file, 0 where it is none of it."""

    reason: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line > 0 else self.reason


_NAMES: tuple[tuple[str, str], ...] = (
    (
        r"__(shfl|ballot|any|all|match|reduce)\w*|__activemask|__syncwarp|warpSize|__lane_id|"
        r"__lanemask\w*|__nvvm_\w+|__builtin_amdgcn_\w+",
        "is a function of warps",
    ),
    (r"cooperative_groups|cg|this_thread_block|tiled_partition|this_grid", "is cooperative groups"),
    (r"__syncthreads_(count|and|or)|__barrier_sync\w*", "is a barrier that returns a value"),
    (r"asm|__asm__|__asm", "is inline assembly"),
    (r"(tex|surf)[123]D\w*|cudaTextureObject_t|texture|surface", "is a texture"),
    (r"wmma|nvcuda|mma_sync|ldmatrix\w*", "is for tensor cores"),
    (r"cub|thrust|hipcub|rocprim|cuda|cutlass|cute", "is a library of device code"),
    (r"curand\w*|hiprand\w*", "is a generator of random numbers"),
    (
        r"__?half2?(_raw)?|half2?|(__)?nv_bfloat16\w*|__hip_bfloat16\w*|bfloat16|__nv_fp8\w*|"
        r"(__)?(float2half|half2float|h(add|mul|fma|sub|max|min|exp|rsqrt|sqrt)2?)\w*",
        "is of a narrow type, which is not emitted",
    ),
    (r"new|delete|malloc|free|virtual|throw|try", "is not for a kernel of C"),
    (r"clock|clock64|__nanosleep|__trap|__pipeline\w+|__cp_async\w*", "is of the GPU alone"),
)
_REFUSED = tuple((re.compile(pattern), why) for pattern, why in _NAMES)


def refusals(text: str, first_line: int) -> Iterator[RefusedEmission]:
    """The refusals of a text; its first line is ``first_line`` of its file."""
    tokens = tokenize(text)
    for i, token in enumerate(tokens):
        line = first_line + token.line - 1
        if token.text == "<<<":
            yield RefusedEmission("a launch from a kernel", line)
        elif token.text == "[" and _is_lambda(tokens, i):
            yield RefusedEmission("a lambda", line)
        elif token.kind is Kind.NAME and (i == 0 or tokens[i - 1].text not in (".", "->")):
            why = next((why for pattern, why in _REFUSED if pattern.fullmatch(token.text)), None)
            if why is not None:
                yield RefusedEmission(f"'{token.text}' {why}", line)


def _is_lambda(tokens: list[Token], i: int) -> bool:
    """``[`` that follows no value."""
    before = tokens[i - 1] if i else None
    if before is None or before.kind in (Kind.NAME, Kind.NUMBER) or before.text in (")", "]"):
        return before is not None and before.text == "return"
    return tokens[i + 1].text in ("&", "=", "]") and before.text != "["
