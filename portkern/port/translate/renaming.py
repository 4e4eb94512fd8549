"""Names and headers by the table: CUDA's as HIP's and back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from portkern.cuda_source.lexer import Directive, Kind, SourceCode
from portkern.port.translate import single_source
from portkern.port.translate.context import NOTHING_AROUND, Context
from portkern.port.translate.draft import Draft
from portkern.port.translate.names import NameTable, is_hip_header, table
from portkern.port.translate.warps import WARP_FUNCTIONS

#: What HIP has no header for and needs none, once its functions are written otherwise.
_DROPPED = frozenset(
    [
        "cooperative_groups/reduce.h",
        "cooperative_groups/scan.h",
        "cooperative_groups/memcpy_async.h",
    ]
)
#: Headers that HIP lacks, and what they declare, of which the lint has hazards.
_LINTED = {
    "mma.h": re.compile(r"nvcuda|wmma"),
    "cuda_pipeline.h": re.compile(r"nvcuda|pipeline|__pipeline_\w+"),
    "cuda_pipeline_primitives.h": re.compile(r"__pipeline_\w+"),
    "cuda_awbarrier.h": re.compile(r"nvcuda|awbarrier|__mbarrier\w*"),
    "cuda_awbarrier_primitives.h": re.compile(r"__mbarrier\w*"),
}
_USING = ["using", "namespace", "nvcuda", ";"]
#: libcu++'s headers have no suffix; ``cuda/utils.cuh`` is a file of the user's.
_FOREIGN_HEADER = re.compile(r"cuda/(?:std/\w+|\w+)|(?:cute|cutlass|cudnn\w*|cuco|raft)/.*")
#: Names in the table that are CUDA's by their spelling too.
_OF_CUDA = re.compile(r"(?:cu|CU|nv|NV)[a-zA-Z]*[A-Z_]\w*")
_FOREIGN_NAME = re.compile(r"(?:cudnn|cutensor|nvml)[A-Z]\w*")
#: Namespaces, by what they are called: only before '::' or after 'namespace'.
_NAMESPACES = frozenset(["cub", "hipcub"])
_INCLUDES = ("include", "include_next", "import")
_CONDITIONS = ("if", "ifdef", "ifndef", "elif")
RUNTIME = "hip/hip_runtime.h"
#: Words of code for a device.
_OF_DEVICES = frozenset(
    "__global__ __device__ __shared__ __constant__ __managed__ <<< threadIdx blockIdx blockDim "
    "gridDim dim3".split()
)
#: Macros of HIP's compiler and of builds for AMD, which CUDA code has no use for.
_OF_AMD = frozenset(
    "__HIP_PLATFORM_AMD__ __HIP_PLATFORM_HCC__ __HIP_DEVICE_COMPILE__ __HIPCC__ USE_ROCM".split()
)
_HIP_MARKS = _OF_AMD | {"hipLaunchKernelGGL"}
#: What tells compilers and builds of the two vendors apart.
_VENDORS = _OF_AMD | {"__HIP_PLATFORM_NVIDIA__", "__HIP__", "USE_HIP", "__CUDACC__", "__NVCC__"}
_BLAS = frozenset(["hipblas/hipblas.h", "hipblaslt/hipblaslt.h"])
_FLOATS = {
    "hip/hip_fp16.h": frozenset(["half", "__half", "half2", "__half2"]),
    "hip/hip_bf16.h": frozenset(["__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162"]),
}
#: hipFuncSetAttribute and its kin take the kernel as a pointer to void: which argument it is.
_KERNEL_POINTERS = {"cudaFuncSetAttribute": 0, "cudaFuncSetCacheConfig": 0}
_KERNEL_POINTERS |= {"cudaFuncGetAttributes": 1, "cudaLaunchKernel": 0}


def included(draft: Draft, d: Directive) -> str:
    """The path that an #include names; "" when a macro gives it."""
    code = draft.code
    if d.begin + 2 >= d.end:
        return ""
    first, last = code.tokens[d.begin + 2], code.tokens[d.end - 1]
    text = code.source[first.begin : last.end]
    quoted = len(text) > 2 and (text[0], text[-1]) in (("<", ">"), ('"', '"'))
    return text[1:-1].strip() if quoted else ""


def includes(draft: Draft) -> list[tuple[Directive, str]]:
    return [(d, included(draft, d)) for d in draft.code.directives if d.name in _INCLUDES]


def is_ported(draft: Draft, table: NameTable, context: Context = NOTHING_AROUND) -> bool:
    """Whether the file names HIP: its headers, its platform's macros or its functions. One that
    does so for AMD alone, by conditions of the preprocessor, and names CUDA for both, or has a
    function of warps with a mask, which has 32 bits for nvcc, is CUDA with parts for AMD."""
    places = list(_hip_names(draft, table))
    conditional = draft.for_amd | _in_conditions(draft)
    if any(i not in conditional for i in places):
        return True
    if not places or names_cuda(draft, table, context, without=draft.for_nvidia):
        return False
    masked = (i for name in WARP_FUNCTIONS if name.endswith("_sync") for i in draft.places(name))
    return all(i in draft.for_amd or i in draft.for_nvidia for i in masked)


def _hip_names(draft: Draft, table: NameTable) -> Iterator[int]:
    for d, path in includes(draft):
        if is_hip_header(path) or path.rpartition("/")[2] == single_source.HEADER:
            yield d.begin
    for i, token in enumerate(draft.code.tokens):
        is_function = token.text.startswith("hip") and token.text in table.back
        if token.kind is Kind.NAME and (token.text in _HIP_MARKS or is_function):
            yield i


def _in_conditions(draft: Draft) -> frozenset[int]:
    """The tokens of the preprocessor's own conditions."""
    found = (d for d in draft.code.directives if d.name in _CONDITIONS)
    return frozenset(i for d in found for i in range(d.begin, d.end))


def asks_for_vendor(draft: Draft) -> bool:
    """Whether a condition of the preprocessor is about the vendor's platform."""
    code = draft.code
    return any(code.text[i] in _VENDORS for i in _in_conditions(draft))


def names_cuda(
    draft: Draft,
    table: NameTable,
    context: Context = NOTHING_AROUND,
    *,
    without: Collection[int] = (),
) -> bool:
    """Whether the file has a header or a name of CUDA's that HIP calls otherwise, elsewhere than
    at the tokens ``without``."""
    for d, path in includes(draft):
        if path in context.own or d.begin in without:
            continue
        name = table.headers.get(path)
        if _by_folder(path) or _FOREIGN_HEADER.fullmatch(path):
            return True
        if name is not None and name.hip != name.cuda:
            return True
    return any(i not in without for i in _cuda_names(draft, table, context))


def warn_of_both(draft: Draft, table: NameTable, context: Context = NOTHING_AROUND) -> None:
    """Say where a file that names HIP has a name of CUDA's that HIP has a name for."""
    for i in _cuda_names(draft, table, context):
        text = draft.code.text[i]
        draft.warn(i, "PK106", f"{text} in a file that names HIP; nothing is changed")
        return


def _cuda_names(draft: Draft, table: NameTable, context: Context) -> Iterator[int]:
    skipped = _in_includes(draft)
    own = context.macros | _values(draft.code, table)
    for i, token in enumerate(draft.code.tokens):
        name = table.names.get(token.text) if token.kind is Kind.NAME else None
        if name is None or i in skipped or name.hip in ("", name.cuda):
            continue
        if token.text in own:
            continue
        if draft.is_free_name(i) and _OF_CUDA.fullmatch(token.text):
            yield i


def defined_values(text: str) -> frozenset[str]:
    """The macros of a text that stand for values, not for names of CUDA's that HIP calls otherwise:
    what has such a macro of its own needs no counterpart of the name."""
    return _values(SourceCode(text), table()) if "define" in text else frozenset()


def _values(code: SourceCode, table: NameTable) -> frozenset[str]:
    found: set[str] = set()
    for d in code.directives:
        if d.name != "define" or d.begin + 2 >= d.end or d.body != d.begin + 3:
            continue
        body = [word for word in code.text[d.body : d.end] if word not in found]
        names = [table.names.get(word) for word in body]
        if d.body < d.end and all(name is None or name.hip == name.cuda for name in names):
            found.add(code.text[d.begin + 2])
    return frozenset(found)


def rename_headers(draft: Draft, table: NameTable, context: Context = NOTHING_AROUND) -> set[str]:
    """Returns the HIP headers that the file includes then."""
    present: set[str] = set()
    for d, path in includes(draft):
        if path in context.own:
            continue
        name = table.headers.get(path)
        hip = name.hip if name is not None else _by_folder(path)
        if hip:
            present.add(hip)
            why = f"HIP's header for <{path}>"
            _include(draft, d, path, hip, why)
        elif path in _DROPPED:
            draft.note(d.begin, f"#include <{path}>", "", "HIP has no such header; see PK104")
            draft.replace(d.begin, d.end, "")
        elif path in _LINTED and not _is_used(draft, _LINTED[path]):
            draft.note(d.begin, f"#include <{path}>", "", "nothing of it is used; HIP has no such")
            draft.replace(d.begin, d.end, "")
            for i in _using(draft):
                draft.replace(i, i + len(_USING), "")
        elif path in context.headers and not _FOREIGN_HEADER.fullmatch(path):
            continue
        elif path not in _LINTED and (name is not None or _FOREIGN_HEADER.fullmatch(path)):
            draft.warn(d.begin, "PK102", f"HIP has no counterpart of <{path}>")
    return present


def _is_used(draft: Draft, names: re.Pattern[str]) -> bool:
    """Whether any of the names stands elsewhere than where a file includes or opens it."""
    opened = {j for i in _using(draft) for j in range(i, i + len(_USING))}
    elsewhere = opened | _in_includes(draft)
    return any(
        names.fullmatch(token.text) is not None and i not in elsewhere
        for i, token in enumerate(draft.code.tokens)
    )


def _using(draft: Draft) -> list[int]:
    text = draft.code.text
    return [i - 2 for i in draft.places("nvcuda") if i >= 2 and text[i - 2 : i + 2] == _USING]


def _by_folder(path: str) -> str:
    if path.startswith("cub/"):
        return "hipcub/hipcub.hpp"
    if path.startswith("thrust/system/cuda/"):
        return path.replace("/cuda/", "/hip/", 1)
    return ""


def _include(draft: Draft, d: Directive, before: str, after: str, why: str) -> None:
    first = d.begin + 2
    quotes = '""' if draft.code.tokens[first].kind is Kind.STRING else "<>"
    text = f"{quotes[0]}{after}{quotes[1]}"
    draft.note(d.begin, f"#include {quotes[0]}{before}{quotes[1]}", f"#include {text}", why)
    draft.replace(first, d.end, text)


def rename_names(
    draft: Draft,
    table: NameTable,
    kept: dict[str, str] | None = None,
    *,
    own: Collection[str] = (),
) -> bool:
    """Whether any name is HIP's then. With ``kept``, names stay and are listed there, each with
    HIP's; namespaces change all the same. ``own`` are macros that the library defines itself; so
    are the file's."""
    code, seen, renamed = draft.code, set[str](), False
    own = _values(code, table).union(own)
    skipped = _in_includes(draft)
    for i, token in enumerate(code.tokens):
        if token.kind is not Kind.NAME or i in skipped:
            continue
        text = token.text
        if text == "cuda" and code.text[i - 2 : i] == ["thrust", "::"]:
            draft.rename(i, "hip", "Thrust's policy for AMD")
            continue
        name = table.names.get(text)
        if name is None:
            if _FOREIGN_NAME.fullmatch(text) and draft.is_free_name(i) and "foreign" not in seen:
                seen.add("foreign")
                draft.warn(i, "PK102", f"{text} and its library have no counterpart in HIP")
            continue
        if not _is_free(draft, i, table) or (text in _NAMESPACES and not _is_namespace(draft, i)):
            continue
        if name.hip == name.cuda or text in own:
            continue
        if name.hip:
            renamed = True
            if kept is None or text in _NAMESPACES:
                draft.rename(i, name.hip, f"HIP's name of {text}")
            else:
                kept[text] = name.hip
            _cast_kernel(draft, i)
        elif name.kind != "device" and _OF_CUDA.fullmatch(text) and text not in seen:
            seen.add(text)
            draft.warn(i, "PK101", f"{text} has no counterpart in HIP")
    return renamed


def _in_includes(draft: Draft) -> set[int]:
    return {i for d, _ in includes(draft) for i in range(d.begin, d.end)}


def _is_free(draft: Draft, i: int, table: NameTable) -> bool:
    """Whether the name stands by itself, or behind the name of CUDA's enumeration that it is of."""
    text = draft.code.text
    if i < 2 or text[i - 1] != "::" or text[i - 2] in _NAMESPACES:
        return draft.is_free_name(i)
    return draft.is_free_name(i) or (text[i - 2] in table.names and draft.is_free_name(i - 2))


def _is_namespace(draft: Draft, i: int) -> bool:
    text = draft.code.text
    return text[i + 1] == "::" or text[i - 1] == "namespace"


def _cast_kernel(draft: Draft, i: int) -> None:
    code = draft.code
    at, parts = _KERNEL_POINTERS.get(code.text[i]), draft.arguments(i)
    if at is None or parts is None or at >= len(parts):
        return
    first, last = parts[at]
    if first >= last or code.text[first] in ("(", "reinterpret_cast", "static_cast", "&"):
        return
    draft.insert_before(first, "(const void*)")
    draft.note(
        first,
        code.flat(first, last),
        f"(const void*){code.flat(first, last)}",
        "HIP takes the kernel as a pointer to void",
    )


def add_headers(draft: Draft, present: set[str], *, used: bool) -> None:
    """Adds the headers that CUDA's compiler and libraries include by themselves, and HIP's leave
    to the source."""
    headers: dict[str, str] = {}
    used = used or not _OF_DEVICES.isdisjoint(draft.code.text)
    if RUNTIME not in present and used:
        headers[RUNTIME] = "nvcc includes its runtime by itself, hipcc does not"
    if not present.isdisjoint(_BLAS):
        words = set(draft.code.text)
        for header, names in _FLOATS.items():
            if header not in present and not names.isdisjoint(words):
                headers[header] = "cuBLAS includes it by itself, hipBLAS does not"
    if headers:
        _insert(draft, headers)


def _insert(draft: Draft, headers: Mapping[str, str]) -> None:
    i = _top(draft)
    for header, why in headers.items():
        draft.note(i, "", f"#include <{header}>", why)
    text = "\n".join(f"#include <{header}>" for header in headers)
    gap = draft.code.tokens[i].gap
    start = _after_comments(gap)
    blank = re.search(r"\n[ \t]*\n(?=\s*\Z)", gap[start:])
    if blank is not None:
        # A blank line is there to take it, so that all else stays on its line.
        at = start + blank.end() - 1
        draft.gaps[i] = gap[:at].rstrip(" \t") + text + gap[at:]
    else:
        lead = "" if gap.endswith("\n") or not gap else "\n"
        draft.gaps[i] = f"{gap}{lead}{text}\n"


def _after_comments(gap: str) -> int:
    """The end of the last comment or line continuation of ``gap``."""
    end = max(gap.rfind("*/") + 2 if "*/" in gap else 0, 0)
    for match in re.finditer(r"//[^\n]*(?=\n|\Z)|\\[ \t]*\n", gap):
        end = max(end, match.end())
    return end


def _top(draft: Draft) -> int:
    """The token before which an #include may stand: after the include guard."""
    code = draft.code
    for n, d in enumerate(code.directives):
        operands = code.text[d.begin + 2 : d.end]
        if d.begin != (code.directives[n - 1].end if n else 0):
            break
        following = code.directives[n + 1] if n + 1 < len(code.directives) else None
        if d.name == "pragma" and operands == ["once"]:
            return d.end
        guard = following is not None and following.name == "define" and d.end == following.begin
        if d.name in ("ifndef", "if") and guard and following is not None:
            if code.text[following.begin + 2 : following.end] == operands[-1:]:
                return following.end
        break
    return 0


# ---- the way back -------------------------------------------------------------------------


def rename_back(draft: Draft, table: NameTable) -> None:
    skipped = _in_includes(draft)
    for d, path in includes(draft):
        cuda = table.headers_back.get(path)
        if cuda:
            _include(draft, d, path, cuda, f"CUDA's header for <{path}>")
        elif is_hip_header(path):
            draft.warn(d.begin, "PK102", f"CUDA has no counterpart of <{path}>")
    _rename_by(draft, table.back, skipped)


def _rename_by(draft: Draft, names: Mapping[str, str], skipped: set[int]) -> None:
    text = draft.code.text
    for i, token in enumerate(draft.code.tokens):
        if token.kind is not Kind.NAME or i in skipped:
            continue
        if token.text == "hip" and text[i - 2 : i] == ["thrust", "::"]:
            draft.rename(i, "cuda", "Thrust's policy for NVIDIA")
        elif token.text in names and draft.is_free_name(i):
            if token.text not in _NAMESPACES or _is_namespace(draft, i):
                draft.rename(i, names[token.text], f"CUDA's name of {token.text}")
