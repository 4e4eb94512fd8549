"""Constructs without a model, found in a compiler's log: those the rewriter made an error of,
and names that no header of ours declares."""

from __future__ import annotations

import re

from portkern.simt.diagnostics import CODES, Diagnostic

_ERROR = re.compile(
    r"^(?:(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: )?(?:fatal )?error: (?P<said>[^\n]*)$",
    re.MULTILINE,
)
_NUMBERED = re.compile(
    r"(?:.*?attribute(?: error)?: |#error )?\"?(?P<code>SX\d{3}) (?P<message>.*?)\"?$"
)
#: g++ and clang of a name that nothing declares; what they suggest instead comes after a ';'.
_UNKNOWN = re.compile(
    r"(?:not declared|not been declared|does not name|not a member of|not a (?:class|type|template)"
    r"|incomplete type|undeclared|unknown type|no \w+ named [^;]* in namespace"
    r"|no arguments to .* that depend on a template parameter|has no member named)[^;,]*"
)
#: g++ and clang of an include.
_NO_FILE = re.compile(r"(\S+): No such file or directory$|'([^']+)' file not found$")
#: GNU's linkers and lld of a name that is called and not defined; clang quotes it otherwise.
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`'\u2018]?([^'\u2019\n]+)")
_QUOTED = re.compile("['\u2018](.+?)['\u2019]")
#: Names of CUDA and HIP by what they belong to, in full or after a namespace.
_NAMES = [
    (re.compile(pattern), code)
    for pattern, code in (
        (
            r"(CUtensorMap|cuTensorMap|CU_TENSOR_MAP_|__mbarrier_|cp_async_bulk|mbarrier_)\w*"
            r"|memcpy_async_tx|barrier_(arrive|expect)_tx|fence_proxy_async\w*",
            "SX002",
        ),
        (
            r"(tex|surf)(1D|2D|3D|Cubemap)\w*|(texture|surface)(Reference)?"
            r"|(cuda|hip)\w*(Texture|Surface|Array|ChannelDesc|ChannelFormat|Resource(View)?Desc"
            r"|AddressMode|FilterMode|ReadMode|BoundaryMode)\w*",
            "SX003",
        ),
        (r"cute|cutlass", "SX004"),
        (
            r"cudaGetParameterBuffer\w*|cudaLaunchDevice\w*|cudaStream(FireAndForget|TailLaunch)"
            r"|cudaGetCurrentGraphExec",
            "SX006",
        ),
        (
            r"this_cluster|cluster_group|__?cluster\w*|cluster(Idx|Dim)\w*|(cuda|hip)\w*Cluster\w*",
            "SX009",
        ),
        (r"w?gmma_\w+|tcgen05_\w+", "SX010"),
    )
]
#: Any other name of a vendor's interface or of PyTorch's, by its prefix.
_VENDORS = re.compile(
    r"(cuda|cu|cublas|cublasLt|curand|cufft|cusparse|cusolver|cudnn|nccl|nvrtc|nvml"
    r"|hip|hipblas|hiprand|rocblas|rocrand|rocprim|miopen)[A-Z]\w*"
    r"|(CU|CUDA|CUBLAS|CURAND|CUDNN|HIP|HIPBLAS|NCCL)_[A-Z]\w*"
    r"|__(nv|hip|cuda|nvvm|ocml|ockl)_\w+|AT_DISPATCH_\w+|C10_\w+|TORCH_\w+"
)
_KEYWORDS = frozenset(["class", "const", "enum", "struct", "typename", "union", "unsigned"])
#: Namespaces whose members have plain names.
_NAMESPACES = frozenset(
    [
        *("cub", "hipcub", "thrust", "rocprim", "cooperative_groups", "cg", "nvcuda", "wmma"),
        *("at", "torch", "c10", "rocwmma"),
    ]
)
#: Members of namespace cuda and of its children, which have plain names.
_OF_CUDA = re.compile(r"(barrier|arrive_tx|ptx|pipeline|bulk)\w*")


def unmodelled(log: str, name: str) -> list[Diagnostic]:
    """The constructs without a model that a compiler's log complains of, once each.

    ``name`` is the file where the compiler names none.
    """
    diagnostics: dict[Diagnostic, None] = {}
    for error in _ERROR.finditer(log):
        known = _numbered(error["said"]) or _named(error["said"]) or _absent(error["said"])
        if known is not None:
            code, message = known
            diagnostic = Diagnostic(code, message, error["file"] or name, int(error["line"] or 0))
            diagnostics[diagnostic] = None
    return list(diagnostics)


def undefined(log: str, name: str) -> list[Diagnostic]:
    """Diagnostics for the names that a linker's log calls undefined, once each."""
    title, names = CODES["SX014"].title, dict.fromkeys(_UNDEFINED.findall(log))
    return [Diagnostic("SX014", f"{title}: {each}", name) for each in names]


def _absent(said: str) -> tuple[str, str] | None:
    header = _NO_FILE.search(said)
    return ("SX013", f"{CODES['SX013'].title}: <{header[1] or header[2]}>") if header else None


def _numbered(said: str) -> tuple[str, str] | None:
    numbered = _NUMBERED.match(said)
    if numbered is None or numbered["code"] not in CODES:
        return None
    return numbered["code"], numbered["message"]


def _named(said: str) -> tuple[str, str] | None:
    """The unknown name in an error, and what it belongs to, when that is known."""
    unknown = _UNKNOWN.search(said)
    if unknown is None:
        return None
    quoted = _QUOTED.findall(said[: unknown.end()])
    if "has no member named" in said:  # of a type of the source's own it says nothing
        owner = quoted[0].replace("struct ", "").replace("const ", "") if quoted else ""
        if len(quoted) < 2 or not _VENDORS.fullmatch(owner):
            return None
        return "SX012", f"{CODES['SX012'].title}: {owner}::{quoted[1]}"
    words = [word for text in quoted for word in re.findall(r"\w+", text)]
    words = [word for word in words if word not in _KEYWORDS]
    for word in words:
        code = next((code for pattern, code in _NAMES if pattern.fullmatch(word)), None)
        if code is None and "cuda" in words and _OF_CUDA.fullmatch(word):
            code = "SX002"
        if code is not None:
            return code, f"{CODES[code].title}: {word}"
    spaces = [word for word in words if word in _NAMESPACES]
    vendors = next((word for word in words if _VENDORS.fullmatch(word)), None)
    if vendors is None and spaces and words and words[0] not in _NAMESPACES:
        vendors = f"{spaces[-1]}::{words[0]}"
    return ("SX012", f"{CODES['SX012'].title}: {vendors}") if vendors else None
