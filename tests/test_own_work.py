"""The author of a kernel's work: where models are compared, portkern's own headers do none of
it."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern import guard
from portkern.agent.attempt import Status
from portkern.agent.proposer import donor
from portkern.agent.task import Task
from portkern.cli.verbs import check, generate
from portkern.cli.verbs import compare as verb
from portkern.cli.verbs import experiment as experiment_verb
from portkern.experiment.compare.comparison import compare as compared
from portkern.experiment.compare.sample import Sample
from portkern.ops import load
from portkern.records.jsonl import LineFile
from portkern.spec import own_headers, registry, target
from portkern.spec.candidate import Candidate
from tests.llm_server import Server

OWN = guard.GuardPolicy(library="forbid")
#: The file has one line of its own: portkern's header is the kernel.
LAZY = """#include <portkern/elementwise.h>
struct Relu {
    static constexpr int INPUTS = 1;
    __device__ static scalar_t of(scalar_t a) { return float(a) < 0.0f ? scalar_t(0.0f) : a; }
};
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {
    return each<Relu, 131072, 256, 4>(x, x, y, n, stream);
}
"""
#: What the guide to OpenCL tells of products, as a model would write it down.
AS_TOLD = '''
from portkern.backends.opencl.include.cpu_product import multiply_cpu
from portkern.backends.opencl.include.product import multiply

SOURCE = """
#ifdef PORTKERN_CPU
#include <portkern/cpu_tile.h>
#include <portkern/cpu_product.h>
#else
#include <portkern/operands.h>
#include <portkern/thin_product.h>
#include <portkern/tile.h>
#include <portkern/product.h>
#endif
"""


def matmul(queue, program, a, b, c, *, m, n, k):
    if m and n:
        chosen = multiply_cpu if program.cpu else multiply
        chosen(queue, program, a, b, a, c, batch=1, m=m, n=n, k=k)
'''


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("hip", LAZY),
        ("cuda", '#include "portkern/rows.h"\n'),
        ("cuda", "#  include \\\n  <portkern/rows.h>\n"),
        ("cuda", "#include_next <portkern/rows.h>\n"),
        ("cuda", "#import <portkern/rows.h>\n"),
        ("cuda", "#include <./portkern//rows.h>\n"),
        ("cuda", "#define P portkern\n#define H <P/rows.h>\n#include H\n"),
        ("cuda", "#define H(x) <portkern/x>\n#include H(rows.h)\n"),
        ("c++", "%:include <portkern/rows.h>\n"),
        (
            "numba",
            "from portkern.backends.cpu.include.rows import fill\ndef relu(x, y): fill(y, 0)",
        ),
        ("opencl", AS_TOLD),
        ("opencl", 'SOURCE = "#inc" + "lude <portkern/tile.h>\\n"\ndef relu(queue): pass'),
    ],
)
def test_a_kernel_that_takes_portkerns_headers_is_refused_and_does_not_cheat(
    language: str, source: str
) -> None:
    kernel = Candidate("relu", "cpu", language, source, "relu")
    hits = [hit for hit in guard.inspect(kernel, OWN) if hit.rule.id == "G408"]
    assert hits and "library=allow" in guard.rejection(hits)
    assert not hits[0].rule.cheat
    allowed = guard.inspect(kernel, guard.GuardPolicy())
    assert not [hit for hit in allowed if hit.rule.id == "G408"]


@pytest.mark.parametrize(
    "source",
    [
        "#include <vector>\n#include <cuda_fp16.h>\n",
        '// #include <portkern/rows.h>\nconst char* said = "#include <portkern/rows.h>";\n',
        "int portkern = 0;\n",
    ],
)
def test_other_headers_comments_and_names_are_anybodys(source: str) -> None:
    assert not guard.inspect(Candidate("relu", "cpu", "c++", source, "relu"), OWN)


def _task(backend: str, where: str, library: guard.Library, language: str = "") -> Task:
    chosen = registry.load(backend)
    language = language or next(iter(chosen.languages.values()))
    return Task(load("relu"), target.load(where), chosen, language, library=library)


@pytest.mark.parametrize(
    ("backend", "where", "language"),
    [
        ("cuda", "sm_90", ""),
        ("hip", "gfx942", ""),
        ("opencl", "opencl_generic", ""),
        ("cpu", "x86_64", "c++"),
        ("cpu", "x86_64", "numba"),
    ],
)
def test_guides_name_no_header_to_whom_it_is_not_offered(
    backend: str, where: str, language: str
) -> None:
    told = _task(backend, where, "forbid", language).guide
    assert "portkern/" not in told and "portkern.backends" not in told
    if language != "c++":  # whose harness stands before every kernel
        offered = _task(backend, where, "allow", language).guide
        assert "portkern/" in offered or "portkern.backends" in offered
        assert "<!--" not in offered


def test_a_donor_is_shown_whole_to_whom_its_headers_are_not_offered() -> None:
    lazy = Candidate("relu", "hip", "hip", LAZY, "relu")
    shown = donor.whole(lazy).source
    assert not own_headers.taken(shown) and "struct Relu" in shown and "each" in shown
    plain = Candidate("relu", "hip", "hip", "int relu;", "relu")
    assert donor.whole(plain) is plain


@pytest.mark.parametrize(("given", "library"), [([], "forbid"), (["library=allow"], "allow")])
def test_experiments_ask_models_for_their_own_work(given: list[str], library: str) -> None:
    about = ["name=baseline", "ops=relu", "backend=cpu", *given]
    asked = experiment_verb.read([*about, "models.coder.model=openai/x"])
    assert {plan.task.library for plan in asked.plans} == {library}


def test_who_writes_for_oneself_may_take_the_headers() -> None:
    assert generate.plan_of(generate.read(["op=relu", "backend=cpu"])).task.library == "allow"


@pytest.mark.full
def test_what_the_guide_tells_of_products_is_right(tmp_path: Path) -> None:
    source = tmp_path / "matmul.py"
    source.write_text(AS_TOLD)
    about = ["op=matmul", "backend=opencl", f"source={source}", "workloads=[ci]", "budget_s=0"]
    assert check.main([*about, f"reports={tmp_path}"]) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "status"), [([], "rejected"), (["library=allow"], "passed")], ids=["own", "allowed"]
)
def test_a_sweep_says_whose_work_a_sample_is(
    given: list[str], status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server(lambda body, number: f"```hip\n{LAZY}```") as server:
        model = f"models={{m: {{model: openai/m, api_base: '{server.url}'}}}}"
        about = [
            "ops=relu",
            "backends=hip",
            "targets=gfx942",
            "n=1",
            "heldout=false",
            "sanitize=none",
            *given,
        ]
        asked = [*about, "track=false", "run=it", f"reports={tmp_path}"]
        assert verb.main([model, *asked]) == 0
    assert ("elementwise.h" in server.requests[0].prompt) == bool(given)
    (row,) = LineFile(tmp_path / "it" / "samples.jsonl", Sample.from_json).read()[0]
    assert (str(row.status), row.cheat) == (status, "")
    assert row.headers == ("portkern/elementwise.h",)
    page = (tmp_path / "it" / "compare.md").read_text()
    assert ("leave work to portkern's own headers" in page) == bool(given)
    assert ("library=allow" in page) == bool(given)


def test_refused_samples_leave_no_work_to_headers() -> None:
    row = Sample(
        model="m", op="relu", backend="hip", target="gfx942", index=0, status=Status.REJECTED,
        headers=("portkern/rows.h",),
    )  # fmt: skip
    assert not any("headers" in note for note in compared([row]).notes)
