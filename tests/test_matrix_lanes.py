"""The facts about lanes of matrix operations: operands that are laid out by them multiply as
matrices do, in the executor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.machine import Language
from portkern.spec import lanes, target
from portkern.spec.lanes import Lanes
from portkern.spec.target import MatrixInstruction

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)
SOURCES = Path(__file__).parent / "simt" / "matrix"
LISTED = (SOURCES / "amd_list.h").read_text("utf-8")
SUMS = {"f32": "float", "i32": "int", "f64": "double"}
#: The bits by the name in a target's file, and how a small whole number ``v`` is encoded.
ENCODED = {
    "f64": (64, "bits<double, uint64_t>(v)"),
    "f32": (32, "bits<float, uint32_t>(v)"),
    "xf32": (32, "bits<float, uint32_t>(v)"),
    "tf32": (32, "bits<float, uint32_t>(v)"),
    "f16": (16, "bits<_Float16, uint16_t>(v)"),
    "bf16": (16, "bits<float, uint32_t>(v) >> 16"),
    "fp8": (8, "v == 0 ? 0 : (v < 0 ? 128 : 0) + (v * v == 4 ? 64 : 56) + fnuz * 8"),
    "i8": (8, "(uint8_t)v"),
    "i4": (4, "v & 15"),
}


def instructions(kind: str) -> Iterator[tuple[MatrixInstruction, str, str, Lanes]]:
    """Yields the instructions of a kind, of all targets, whose lanes are known: each once, with
    shape and call."""
    seen = set()
    for name in target.names("architecture"):
        for each in target.load(name).features.matrix:
            for shape, call in zip(each.shapes, each.calls, strict=True):
                held = lanes.of(each, shape)
                if each.name == kind and held is not None and call not in seen:
                    seen.add(call)
                    yield each, shape, call, held


def kernel(name: str, each: MatrixInstruction, shape: str, held: Lanes, product: str) -> str:
    """The kernel of one instruction: ``product`` makes registers ``d``, of ``a`` and ``b`` that it
    declares and has FILLED."""
    _, n, k = map(int, shape.split("x"))
    width, filled = ENCODED[each.inputs][0], ""
    for own, place, columns in (("a", held.a, k), ("b", held.b, n)):
        if place is not None:
            value = f"{own.upper()}[({place[0]}) * {columns} + {place[1]}]"
            filled += f"\n    for (int e = 0; e < (int)sizeof {own} * 8 / {width}; ++e)"
            filled += f" put<{width}>(&{own}, e, {value});"
    one = SUMS[each.sums]
    return f"""
__global__ void {name}(const uint64_t* A, const uint64_t* B, {one}* D) {{
    const int l = threadIdx.x;
    {product.replace("FILLED", filled)}
    for (int e = 0; e < (int)(sizeof d / sizeof *D); ++e)
        memcpy(D + ({held.sums[0]}) * {n} + {held.sums[1]}, (char*)&d + e * sizeof *D, sizeof *D);
}}
"""


def looked_at(name: str, each: MatrixInstruction, shape: str, threads: int) -> str:
    m, n, k = shape.split("x")
    encode = f"[](int v) -> uint64_t {{ return {ENCODED[each.inputs][1]}; }}"
    return (
        f'    look<{SUMS[each.sums]}>("{each.inputs} {shape}", {m}, {n}, {k}, {threads}, '
        f"{encode}, {name});\n"
    )


def amd(kind: str) -> str:
    types = dict(
        re.findall(r"^(?:MFMA|WMMA|WMMA_INT)\((\w+),.* (\w+, \w+)\)$", LISTED, re.MULTILINE)
    )
    sizes = re.findall(r"^typedef.*$", (SOURCES / "amd.hip").read_text("utf-8"), re.MULTILINE)
    text, calls = "\n".join(sizes), ""
    for number, (each, shape, call, held) in enumerate(instructions(kind)):
        builtin = call.removeprefix(f"__builtin_amdgcn_{kind}_")
        inputs, sums = types[builtin if builtin in types else builtin.replace("fp8", "bf8")].split(
            ", "
        )
        modes = ", 0, 0, 0" if kind == "mfma" else ""
        given = "true, a, true, b, d, false" if "_iu" in call else f"a, b, d{modes}"
        product = f"{inputs} a = {{}}, b = {{}};\n    {sums} d = {{}};FILLED\n"
        text += kernel(f"k{number}", each, shape, held, f"{product}    d = {call}({given});")
        calls += looked_at(f"k{number}", each, shape, 64 if kind == "mfma" else 32)
    return whole("hip", text, calls)


def whole(api: str, text: str, calls: str) -> str:
    header = {"hip": "hip/hip_runtime.h", "cuda": "cuda_runtime.h"}[api]
    return (
        f"#include <{header}>\n#define API(x) {api}##x\n"
        f"{(SOURCES / 'held.h').read_text('utf-8')}{text}\n"
        f"int main(int, char** argv) {{\n    fnuz = atoi(argv[1]);\n{calls}"
        '    puts("done");\n    return faults != 0;\n}\n'
    )


def registers(name: str, count: int, kind: str, at: int) -> tuple[str, str]:
    """The places of so many in a text of assembly, and the constraints of what they stand for."""
    places = ", ".join(f"%{at + i}" for i in range(count))
    return "{" + places + "}", ", ".join(f'"{kind}"({name}[{i}])' for i in range(count))


def mma() -> str:
    text = calls = ""
    for number, (each, shape, call, held) in enumerate(instructions("mma.sync")):
        m, n, k = map(int, shape.split("x"))
        width, kind = (64, "d") if each.inputs == "f64" else (32, "r")
        counts = [size * ENCODED[each.inputs][0] // width // 32 for size in (m * k, k * n)]
        results = m * n // 32
        sum_kind = {"f32": "f", "i32": "r", "f64": "d"}[each.sums]
        d, outputs = registers("d", results, f"+{sum_kind}", 0)
        a, of_a = registers("a", counts[0], kind, results)
        b, of_b = registers("b", counts[1], kind, results + counts[0])
        word = "double" if width == 64 else "uint32_t"
        product = (
            f"{word} a[{counts[0]}] = {{}}, b[{counts[1]}] = {{}};\n"
            f"    {SUMS[each.sums]} d[{results}] = {{}};FILLED\n"
            f'    asm volatile("{call} {d}, {a}, {b}, {d};" : {outputs} : {of_a}, {of_b});'
        )
        text += kernel(f"k{number}", each, shape, held, product)
        calls += looked_at(f"k{number}", each, shape, 32)
    return whole("cuda", text, calls)


def wgmma() -> str:
    """Both factors come from shared memory, in pieces of 8 rows of 16 bytes; 64 columns will do."""
    text = calls = ""
    for number, (each, shape, call, held) in enumerate(instructions("wgmma")):
        m, n, k = map(int, shape.split("x"))
        if n != 64:
            continue
        results, bytes_each = m * n // 128, ENCODED[each.inputs][0] // 8
        d, outputs = registers("d", results, "+r" if each.sums == "i32" else "+f", 0)
        tail = {"f16": ", 1, 1, 0, 0", "bf16": ", 1, 1, 0, 0", "i8": ""}.get(each.inputs, ", 1, 1")
        issue = (
            rf"{{\n.reg .pred keep;\nsetp.ne.b32 keep, %{results + 2}, 0;\n"
            rf"{call} {d}, %{results}, %{results + 1}, keep{tail};\n}}"
        )
        product = f"""__shared__ __align__(1024) unsigned char tiles[{(m + n) * 32}];
    for (int i = l; i < {(m + n) * k}; i += 128) {{
        const int of_b = i >= {m * k}, at = i - of_b * {m * k};
        const int row = of_b * {m} + at / {k}, x = at % {k} * {bytes_each};
        const uint64_t value = of_b ? B[at % {k} * {n} + at / {k}] : A[at];
        unsigned char* piece = tiles + row / 8 * 256 + x / 16 * 128;
        memcpy(piece + row % 8 * 16 + x % 16, &value, {bytes_each});
    }}
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    {SUMS[each.sums]} d[{results}] = {{}};
    const uint64_t kind = (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    const uint64_t of_a = kind | (unsigned)__cvta_generic_to_shared(tiles) >> 4;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{issue}"
                 : {outputs}
                 : "l"(of_a), "l"(of_a + {m * 32 >> 4}), "r"(0));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");"""
        text += kernel(f"k{number}", each, shape, held, product)
        calls += looked_at(f"k{number}", each, shape, 128)
    return whole("cuda", text, calls)


def run(source: str, folder: Path, where: str) -> str:
    one = target.load(where)
    language: Language = "hip" if one.vendor == "amd" else "cuda"
    file = folder / ("lanes.hip" if language == "hip" else "lanes.cu")
    file.write_text(source, encoding="utf-8")
    made = build.build_program(
        file, folder / "lanes", build.CompileOptions(target=one, language=language)
    )
    fnuz = str(int(one.features.fp8 == "fnuz"))
    outcome = program.run(made, target=one, language=language, arguments=[fnuz])
    assert outcome.status == 0, outcome
    return outcome.output


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "where"),
    [
        (lambda: amd("mfma"), "gfx942"),
        (lambda: amd("wmma"), "gfx1201"),
        (mma, "sm_90"),
        (wgmma, "sm_90"),
    ],
    ids=["mfma", "wmma", "mma", "wgmma"],
)
def test_operands_laid_out_as_lanes_hold_them_multiply(
    source: Callable[[], str], where: str, tmp_path: Path
) -> None:
    assert run(source(), tmp_path, where).split() == ["done"]
