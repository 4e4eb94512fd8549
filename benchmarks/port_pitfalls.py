"""The catalogue's pitfalls before each tool: which are seen, which pass in silence.

    python -m benchmarks.port_pitfalls [hipify=FOLDER] [work=FOLDER] [page=true]

FOLDER is a checkout of ROCm/HIPIFY, of which bin/hipify-perl is run; without it the columns of
hipify-perl and clang stay empty. Snippets are those of tests/data/port_pitfalls.yaml, each made a
file by the includes and declarations that it takes for granted (``COMPLETIONS``), the same for all
tools, and each for its own target. With page=true the summary goes into docs/port.md.

- hipify-perl sees a pitfall when it prints a warning.
- clang alone sees it when it rejects what hipify-perl made; warnings are off, as in every build.
- portkern sees it when the lint or the translator names it in what was translated, or when the
  build of that is rejected; it is mended when the lint named it in the original and no longer does
  in the translation, which builds and has another line there, or another value in it.

A rejection is about a pitfall unless a header is absent here, or a correct snippet of the same
pitfall is rejected with the same words. What is rejected otherwise "does not build" and counts as
neither seen nor silent. A pitfall counts as seen when all of its snippets are, as mended when all
are seen or mended and at least one is the latter, as in part when some are.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import yaml

from benchmarks import _script
from portkern.errors import BuildError
from portkern.port import device_build
from portkern.port.device_build import NotBuilt
from portkern.port.hazard import PITFALLS
from portkern.port.lint import lint
from portkern.port.translate import translate
from portkern.records import atomic_write
from portkern.spec import target as targets
from portkern.spec.target import AmdLimits, Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import run_tool

ROOT = Path(__file__).parents[1]
SNIPPETS = ROOT / "tests" / "data" / "port_pitfalls.yaml"
PAGE = ROOT / "docs" / "port.md"
HEAD = (
    "__global__ void k(float* x, float* y, int n) {\n"
    "  int t = threadIdx.x;\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
)
#: What snippets take for granted: a sign of it in the text, and what is written before the text.
COMPLETIONS = {
    r"\bcg::|\bcooperative_groups\b": "#include <cooperative_groups.h>",
    r"\buint32_t\b": "#include <cstdint>",
    r"\bprintf\b": "#include <cstdio>",
    r"\bclock_t\b": "#include <ctime>",
    r"\b__half2?\b": "#include <cuda_fp16.h>",
    r"\A(?!#define).*\b__nv_bfloat16\b": "#include <cuda_bf16.h>",
    r"\b__hip_bfloat16\b": "#include <hip/hip_bf16.h>",
    r"\b__nv_fp8": "#include <cuda_fp8.h>",
    r"\b__hip_fp8": "#include <hip/hip_fp8.h>",
    r"\b__pipeline_": "#include <cuda_pipeline.h>",
    r"(?<!hip)\bcub::": "#include <cub/cub.cuh>",
    r"\bhipcub::": "#include <hipcub/hipcub.hpp>",
    r"\brocwmma::": "#include <rocwmma/rocwmma.hpp>",
    r"\bcublas\w": "#include <cublas_v2.h>",
    r"\bHIPBLAS_": "#include <hipblas/hipblas.h>",
    r"\bc10::": "#include <c10/util/Float8_e4m3fn.h>",
    r"\bUSE_ROCM\b": "#define USE_ROCM",
    r"\bkernel\b": "__global__ void kernel(float* x);",
    r"\bchild<<<": "__global__ void child(float* x);",
    r"\breduce<float, warpSize>": "template <class T, int N>\n"
    "__device__ T reduce(T v) { return v; }",
    r"\bParameters\b": "struct Parameters { float* y; };",
    r"\bToken\b": "struct Token { int type; };",
    r"\bgraph\b": "extern cudaGraph_t graph;\nextern cudaGraphExec_t instance;",
    r"\battribute\.": "extern cudaLaunchAttribute attribute;",
    r"&config\b": "extern cudaLaunchConfig_t config;\nextern float* x;",
    r"\bhipLaunchKernelGGL\(kernel, 1": "extern hipStream_t stream;\nextern float* x;",
    r"mfma_f32_16x16x4f32": "typedef float f4 __attribute__((ext_vector_type(4)));\n"
    "__device__ f4 c;",
}
#: Texts that are HIP already begin with HIP's header, all others with CUDA's.
_HIP = re.compile(
    r"\bhip[A-Z]\w+|\bhip/|__hip_|__HIP_|USE_ROCM|rocwmma|__builtin_amdgcn|hipcub|hipblas|HIPBLAS|miopen"
)
#: A macro that the header reads.
_DEFINED_BEFORE = re.compile(r"#define \w+\n#include <hip/hip_runtime.h>")
_PARENT = re.compile(r"void parent\(")
_NAME = re.compile(r"[A-Za-z_]\w*")
#: A variable that gets a value; an element of an array is none.
_SET = re.compile(r"\b([A-Za-z_]\w*)\s*[-+*/%&|^]?=(?!=)")

Kind = Literal["bad", "good"]
#: ``unbuilt`` says nothing of the pitfall; ``unread`` is a file that is none for a compiler.
State = Literal["seen", "mended", "silent", "unbuilt", "unread", ""]
WORKERS = 6
TOOLS = ("hipify-perl", "clang", "hipify-perl or clang", "portkern")


@dataclass(frozen=True)
class Snippet:
    code: str
    kind: Kind
    number: int
    text: str
    file: str
    target: Target

    @property
    def name(self) -> str:
        return f"{self.code}-{self.kind}-{self.number}"

    @property
    def whole(self) -> str:
        """A file that a compiler for CUDA or HIP could take."""
        if not self.compiled:
            return self.text
        before = (
            "#include <hip/hip_runtime.h>"
            if _HIP.search(self.text)
            else "#include <cuda_runtime.h>"
        )
        wanted = [add for sign, add in COMPLETIONS.items() if re.search(sign, self.text)]
        if "hip_runtime" in before:
            wanted = [add.replace("extern cuda", "extern hip") for add in wanted]
        if "parent<<<" in self.text and not _PARENT.search(self.text):
            wanted.append("__global__ void parent(float* x);")
        added = [add for add in wanted if add not in self.text]
        if _DEFINED_BEFORE.search(self.text):
            return self.text
        return "\n".join([before, *added, self.text])

    @property
    def compiled(self) -> bool:
        return self.file.endswith(".cu")


@dataclass(frozen=True)
class Row:
    """The answers of the tools for one snippet. ``rejected`` and ``own_rejected`` are the
    compiler's words about what hipify-perl and portkern made, ``named`` the codes in portkern's
    translation, ``gone`` says that the snippet's own code was named in the original alone."""

    code: str
    kind: Kind
    number: int
    file: str
    target: str
    warnings: tuple[str, ...] = ()
    rejected: str = ""
    absent: bool = False
    named: tuple[str, ...] = ()
    gone: bool = False
    own_rejected: str = ""
    own_absent: bool = False
    states: Mapping[str, State] = field(default_factory=dict)

    @property
    def seen_in_text(self) -> bool:
        """Whether portkern sees the pitfall in the text; what the translator cannot do is not of a
        correct snippet's pitfall."""
        translator = any(code >= "PK101" for code in self.named)
        return self.code in self.named or (translator and self.kind == "bad")


def snippets(path: Path = SNIPPETS) -> Iterator[Snippet]:
    """All for AMD's targets."""
    kinds: tuple[Kind, Kind] = ("bad", "good")
    for code, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for kind in kinds:
            for number, item in enumerate(entry.get(kind, []), start=1):
                fields = {"code": item} if isinstance(item, str) else item
                text = fields["code"]
                if text.startswith(";"):
                    text = f"{HEAD}{text[1:]}}}\n"
                target = targets.load(fields.get("target", "gfx942"))
                if isinstance(target.limits, AmdLimits):
                    file = fields.get("file", "kernel.cu")
                    yield Snippet(code, kind, number, text, file, target)


class Compiler:
    """Builds a text once, also over several runs with the same work folder; the runtime's header,
    which hipify-perl writes twice, counts once."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def rejection(self, text: str, target: Target) -> tuple[str, bool]:
        """The compiler's words, "" if it takes the text; and whether a header is absent here."""
        header = "#include <hip/hip_runtime.h>\n"
        plain = header + re.sub(r'#include\s+["<]hip/hip_runtime\.h[">]\n', "", text)
        if _DEFINED_BEFORE.search(text):
            plain = text.replace('#include "hip/hip_runtime.h"\n', "")
        name = hashlib.sha256(f"{target.name}\n{plain}".encode()).hexdigest()[:16]
        file, note = self.work / f"{name}.cu", self.work / f"{name}.json"
        if not note.exists():
            file.write_text(plain, encoding="utf-8")
            made = device_build.build(file, target, workdir=self.work / name)
            said = ("", False)
            if isinstance(made, NotBuilt):
                said = (made.reason, made.cause == "machine")
            atomic_write.write(note, json.dumps(said))
        reason, absent = json.loads(note.read_text(encoding="utf-8"))
        return reason, absent


def hipified(hipify: Path, snippet: Snippet, work: Path) -> tuple[str, tuple[str, ...]]:
    """The text that hipify-perl makes of it, and its warnings without names of files."""
    source, output = work / f"{snippet.name}-{snippet.file}", work / f"{snippet.name}.hip"
    source.write_text(snippet.whole, encoding="utf-8")
    perl = shutil.which("perl") or "perl"
    log = run_tool([perl, hipify, f"-o={output}", source], whose="own", timeout_s=60.0, cwd=work)
    lines = [line.strip() for line in log.splitlines() if "warning:" in line]
    text = output.read_text(encoding="utf-8") if output.exists() else snippet.whole
    return text, tuple(re.sub(r"\S*PK\d+-\S*?:#?\d+\s*:? ?", "", line) for line in lines)


def examine(snippet: Snippet, hipify: Path | None, compiler: Compiler) -> Row:
    row = Row(snippet.code, snippet.kind, snippet.number, snippet.file, snippet.target.name)
    if hipify is not None:
        text, warnings = hipified(hipify, snippet, compiler.work)
        row = replace(row, warnings=warnings)
        if snippet.compiled:
            words, absent = compiler.rejection(text, snippet.target)
            row = replace(row, rejected=words, absent=absent)
    made = translate(snippet.whole, snippet.file)
    after = [*made.hazards, *lint(made.text, snippet.file, target=snippet.target)]
    named = tuple(sorted({hazard.code for hazard in after}))
    row = replace(row, named=named, gone=snippet.code not in named and mended(snippet, made.text))
    if snippet.compiled and not row.seen_in_text:
        words, absent = compiler.rejection(made.text, snippet.target)
        row = replace(row, own_rejected=words, own_absent=absent)
    return row


def mended(snippet: Snippet, text: str) -> bool:
    """Whether the translation changed each line at which the lint names the snippet's own pitfall,
    or one that a variable in it has its value from: a rule that falls silent over lines that stay
    as they are, and mean what they meant, mends nothing."""
    lines, kept = snippet.whole.splitlines(), set(text.splitlines())
    hazards = lint(snippet.whole, snippet.file, target=snippet.target)
    own = [lines[hazard.line - 1] for hazard in hazards if hazard.code == snippet.code]
    set_anew = {name for line in lines if line not in kept for name in _SET.findall(line)}
    return bool(own) and all(
        line not in kept or not set_anew.isdisjoint(_NAME.findall(line)) for line in own
    )


def judged(rows: Sequence[Row], *, hipify: bool) -> list[Row]:
    """The rows with the state of each tool; the correct snippets tell which words are not of the
    pitfall."""
    words: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.kind == "good":
            words[row.code] |= {_words(row.rejected), _words(row.own_rejected)} - {""}
    return [replace(row, states=_states(row, words[row.code], hipify=hipify)) for row in rows]


def _states(row: Row, common: Collection[str], *, hipify: bool) -> dict[str, State]:
    compiled = row.file.endswith(".cu")
    unrelated = common if row.kind == "bad" else ()
    clang = _build_state(row.rejected, row.absent, unrelated) if compiled else "unread"
    own = _build_state(row.own_rejected, row.own_absent, unrelated) if compiled else "silent"
    if row.seen_in_text:
        own = "seen"
    elif row.gone and own == "silent":
        own = "mended"
    perl: State = "seen" if row.warnings else "silent"
    both: State = perl if perl == "seen" or clang == "unread" else clang
    if not hipify:
        perl = clang = both = ""
    return dict(zip(TOOLS, (perl, clang, both, own), strict=True))


def _build_state(reason: str, absent: bool, unrelated: Collection[str]) -> State:
    if not reason:
        return "silent"
    return "unbuilt" if absent or _words(reason) in unrelated else "seen"


def _words(reason: str) -> str:
    return re.sub(r"\d+", "N", reason)


def verdict(states: Iterable[State]) -> str:
    """The summary over all snippets with a pitfall."""
    every = list(states)
    if not every:
        return "no text"
    if "" in every:
        return ""
    given = [state for state in every if state in ("seen", "mended", "silent")]
    if not given:
        return "unbuilt" if "unbuilt" in every else "unread"
    told = [state for state in given if state in ("seen", "mended")]
    if len(told) == len(given):
        return "mended" if "mended" in told else "seen"
    if told:
        return "in part"
    return "silent"


def pitfalls(rows: Sequence[Row]) -> dict[str, dict[str, str]]:
    """The verdicts on pitfalls, by code, then by tool."""
    codes = [code for code in PITFALLS if code < "PK101"]
    bad = [row for row in rows if row.kind == "bad"]
    return {
        code: {tool: verdict(row.states[tool] for row in bad if row.code == code) for tool in TOOLS}
        for code in codes
    }


def alarms(rows: Sequence[Row], tool: str) -> int:
    """Correct snippets of which a tool says that they are not."""
    return sum(row.kind == "good" and row.states[tool] == "seen" for row in rows)


def summary(rows: Sequence[Row]) -> str:
    table = pitfalls(rows)
    good = sum(row.kind == "good" for row in rows)
    names = ("seen", "mended", "in part", "silent", "does not build", "no source or text")
    lines = [f"| of {len(table)} pitfalls | {' | '.join(names)} | false alarms of {good} |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for tool in TOOLS:
        said = [verdicts[tool] for verdicts in table.values()]
        counts = [said.count(name) for name in ("seen", "mended", "in part", "silent", "unbuilt")]
        counts += [said.count("unread") + said.count("no text"), alarms(rows, tool)]
        cells = ["" if "" in said else str(count) for count in counts]
        lines.append("| " + " | ".join([tool, *cells]) + " |")
    return "\n".join(lines) + "\n"


def each(rows: Sequence[Row]) -> str:
    lines = [f"| code | pitfall | {' | '.join(TOOLS)} |", "|---" * (len(TOOLS) + 2) + "|"]
    for code, verdicts in pitfalls(rows).items():
        said = (verdicts[tool] for tool in TOOLS)
        lines.append("| " + " | ".join([code, PITFALLS[code].title, *said]) + " |")
    return "\n".join(lines) + "\n"


def version(hipify: Path | None) -> str:
    if hipify is None:
        return ""
    try:
        return run_tool(["perl", hipify, "-version"], whose="own", timeout_s=60.0).strip()
    except BuildError as error:
        raise SystemExit(f"{hipify} does not run: {error}") from error


def main() -> None:
    given = _script.words(("hipify", "work", "page"), __doc__)
    hipify = Path(given["hipify"]).resolve() / "bin" / "hipify-perl" if "hipify" in given else None
    said = version(hipify)
    work = Path(given.get("work", "reports/port-pitfalls")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    compiler = Compiler(work)
    with ThreadPoolExecutor(WORKERS) as pool:
        seen = list(pool.map(lambda snippet: examine(snippet, hipify, compiler), snippets()))
    rows = judged(seen, hipify=hipify is not None)
    document = {
        "host": host.machine(),
        "hipify-perl": said,
        "pitfalls": pitfalls(rows),
        "snippets": [asdict(row) for row in rows],
    }
    _script.write("port-pitfalls.json", document)
    print(summary(rows))
    print(each(rows))
    if given.get("page") == "true":
        _script.show_on_page(PAGE, "benchmarks/port_pitfalls.py", summary(rows))


if __name__ == "__main__":
    main()
