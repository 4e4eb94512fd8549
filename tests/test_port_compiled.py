"""Ports whose fate shows where their compiled code runs: what each code does is said beside what
the source does, and an honest twin is accused by neither."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.simt.execute import runtime_library
from portkern.spec import registry, target
from portkern.spec.backend import Missing

CASES = Path(__file__).parent / "data" / "port_compiled"
_FOUND = [runtime_library.find(), registry.load("hip").venues(target.load("gfx942")).object]
BOTH = ("gfx942", "gfx1100")
HANGS, SAME, REFUSED = "hangs at", "does what the original does", "the port's launch is refused"


@dataclass(frozen=True)
class Case:
    """A program with words of its text replaced, and what the code of each target does; a port
    whose code does the same on all is proven."""

    file: str
    does: Mapping[str, str]
    by: Sequence[tuple[str, str]] = field(default=())

    def source(self) -> str:
        text = (CASES / f"{self.file}.cu").read_text(encoding="utf-8")
        for old, new in self.by:
            assert text.count(old) == 1, (old, text.count(old))
            text = text.replace(old, new)
        return text


def all_do(what: str) -> dict[str, str]:
    return dict.fromkeys(BOTH, what)


_LAST = "{ launch_for(x, y, n); }"
#: A program that says what it launches, where nothing else does.
MAIN = (
    _LAST,
    _LAST
    + """
int main() {
  const int n = 9000; static double h[n]; double *x, *y;
  for (int i = 0; i < n; ++i) h[i] = i;
  cudaMalloc(&x, sizeof h); cudaMalloc(&y, sizeof h);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  launch_double(x, y, n);
  cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
}
""",
)

WIDE = {"gfx942": HANGS, "gfx1100": SAME}
PROVEN = all_do(SAME)

CASE = {
    # Each thread waits for the one before it.
    "turnstile": Case("turnstile", all_do(HANGS)),
    "turnstile-of-warps": Case(
        "turnstile",
        WIDE,
        [
            ("while (turn != (int)threadIdx.x) { }", "while (turn < (int)threadIdx.x / 32) { }"),
            (
                "  if ((int)threadIdx.x < n && keep[threadIdx.x]) {",
                "  if (threadIdx.x % 32 == 0) for (int i = threadIdx.x; i < threadIdx.x + 32; ++i)"
                " if (i < n && keep[i]) {",
            ),
            ("out[at] = threadIdx.x;", "out[at] = i;"),
            ("turn = threadIdx.x + 1;", "if (threadIdx.x % 32 == 0) turn = threadIdx.x / 32 + 1;"),
        ],
    ),
    "turnstile-of-one": Case(
        "turnstile",
        PROVEN,
        [
            ("while (turn != (int)threadIdx.x) { }", ""),
            (
                "  if ((int)threadIdx.x < n && keep[threadIdx.x]) {",
                "  if (threadIdx.x == 0) for (int i = 0; i < n; ++i) if (keep[i]) {",
            ),
            ("out[at] = threadIdx.x;", "out[at] = i;"),
            ("  turn = threadIdx.x + 1;\n", ""),
        ],
    ),
    # Each thread waits for its neighbour's sum.
    "chain": Case("chain", all_do(HANGS)),
    "chain-from-the-right": Case(
        "chain",
        all_do(HANGS),
        [("int t = threadIdx.x;", "int t = n - 1 - threadIdx.x;")],
    ),
    "chain-of-blocks": Case(
        "chain",
        PROVEN,
        [("int t = threadIdx.x;", "int t = blockIdx.x;"), ("<<<1, n>>>", "<<<n, 1>>>")],
    ),
    # A slot of a queue is another lane's until that lane gives it back.
    "queue": Case("queue_slots", all_do(HANGS)),
    "queue-of-two": Case("queue_slots", all_do(HANGS), [("capacity = 16;", "capacity = 2;")]),
    "queue-with-room": Case(
        "queue_slots", PROVEN, [("capacity = 16;", "capacity = 128;"), ("s[15]", "s[127]")]
    ),
    # Two leaders of 32 lanes are in one wave of 64.
    "leaders": Case("leader_lock", WIDE),
    "leaders-of-32": Case("leader_lock", {"gfx1100": SAME}),
    "leaders-of-blocks": Case(
        "leader_lock",
        PROVEN,
        [("merge_rows<<<4, 128>>>", "merge_rows<<<16, 32>>>")],
    ),
    "template": Case("template_hides", WIDE),
    "template-of-64": Case(
        "template_hides",
        WIDE,
        [
            (
                "else add_rows<256><<<(count + 7) / 8, 256>>>",
                "else add_rows<64><<<(count + 1) / 2, 64>>>",
            )
        ],
    ),
    "template-of-32": Case(
        "template_hides",
        PROVEN,
        [("else add_rows<256><<<(count + 7) / 8, 256>>>", "else add_rows<32><<<count, 32>>>")],
    ),
    # More LDS than there is, of an instance that only deduction names.
    "deduced": Case("deduced_template", all_do(REFUSED)),
    "deduced-80-KB": Case(
        "deduced_template", all_do(REFUSED), [("items = 128 / sizeof", "items = 80 / sizeof")]
    ),
    "deduced-64-KB": Case(
        "deduced_template", PROVEN, [("items = 128 / sizeof", "items = 64 / sizeof"), MAIN]
    ),
    # What nvcc takes and clang does not.
    "typename": Case("missing_typename", PROVEN),
    "typename-of-a-member": Case(
        "missing_typename",
        PROVEN,
        [("v = Traits::SumT(s).of(v);", "Traits::SumT sum(s); v = sum.of(v);")],
    ),
    "typename-is-there": Case(
        "missing_typename", PROVEN, [("v = Traits::SumT(s)", "v = typename Traits::SumT(s)")]
    ),
}


def ported(case: Case, folder: Path) -> dict[str, Any]:
    file = folder / f"{case.file}.cu"
    file.write_text(case.source(), encoding="utf-8")
    reports = folder / "reports"
    main.run(["port", str(file), f"to={','.join(case.does)}", f"reports={reports}", "run=it"])
    summary = json.loads((reports / "it" / "summary.json").read_text(encoding="utf-8"))
    kernel: dict[str, Any]
    [kernel] = summary["kernels"]
    return kernel


@pytest.mark.full
@pytest.mark.skipif(any(isinstance(one, Missing) for one in _FOUND), reason=str(_FOUND))
@pytest.mark.parametrize("name", CASE)
@pytest.mark.sampled()
def test_what_the_compiled_port_does_is_said_of_each_target(name: str, tmp_path: Path) -> None:
    case = CASE[name]
    kernel = ported(case, tmp_path)
    if set(case.does.values()) == {SAME}:
        assert kernel["outcome"] == "proven in emulation", kernel["why"]
        codes = " and ".join(f"the code compiled for {arch}" for arch in case.does)
        assert f"{codes} does the same" in kernel["why"]
        return
    assert kernel["outcome"] == "wrong", kernel["why"]
    for arch, what in case.does.items():
        [said] = [
            one
            for one in kernel["why"].split("; ")
            if one.startswith(f"the code compiled for {arch}")
        ]
        as_its_source = said.endswith("does so too")
        assert what in (kernel["why"] if as_its_source else said), kernel["why"]
        assert what is not HANGS or f"{case.file}.cu:" in said
