"""Kernels in KernelBench's form: a class ModelNew in the place of an operator's own Model."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

from portkern import guard, ops
from portkern.cells.selection import RunStage, SelectedCell, default_target
from portkern.errors import ConfigError
from portkern.evaluator.build import Built
from portkern.evaluator.result import Result
from portkern.project.project import find
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry
from portkern.spec.backend import Build, Missing
from portkern.spec.candidate import Candidate
from portkern.spec.from_torch import sheet as sheets
from portkern.spec.module_form import ModuleForm, constructor_source, defines_class, integers
from portkern.spec.op import Op, Signature, Workload
from portkern.testing import evaluate
from portkern.worker.tracing.trace import trace

pytestmark = pytest.mark.usefixtures("servers_ahead")
DATA = Path(__file__).parent / "data" / "model_new"
HONEST = sorted(path.name for path in (DATA / "honest").glob("*.py"))
TWINS = {
    "1_ScaledTanh.triton.py": ("* 1.5", "* 1.45"),
    "2_RowMeanSquare.cuda.py": ("part[0] / columns", "part[0] / (columns + 1)"),
    "3_MatmulTransposed.cpu.py": ("p < k; ++p", "p < k - 1; ++p"),
    "3_MatmulTransposed.triton.py": ("b + k[:, None] * N", "b + k[:, None] * M"),
    "4_RmsNormAffine.triton.py": ("value * scale * factor", "value * scale"),
    "5_LinearLeaky.cuda.py": ("sum > 0.0f ? sum : sum * slope", "sum"),
    "6_SumAndDifference.hip.py": ("return {plus, minus}", "return {minus, plus}"),
    "6_SumAndDifference.triton.py": ("x - y, mask", "y - x, mask"),
}


@cache
def op_of(problem: str) -> Op:
    """The operator of a problem's file, traced in this process."""
    file = DATA / "problems" / f"{problem}.py"
    source = file.read_text()
    found = trace(source, file.name, "", problem.partition("_")[2].lower()).traced
    assert found is not None
    return sheets.of(found, file.name, source).op(source)


def candidate(source: str, problem: str, backend: str) -> Candidate:
    return catalogue.of_module(
        source, op=op_of(problem).name, backend=registry.load(backend), author="test"
    )


def honest(name: str) -> tuple[str, str, str]:
    problem, backend, _ = name.split(".")
    return (DATA / "honest" / name).read_text(), problem, backend


def results(
    source: str, problem: str, backend: str, folder: Path, *, which: str = "ci"
) -> list[Result]:
    op, toolchain = op_of(problem), registry.load(backend)
    target = default_target(toolchain)
    workloads = [workload for workload in op.workloads[which] if min(workload.dims.values()) > 0]
    made = candidate(source, problem, backend)
    answer = evaluate(made, op, toolchain, target, workloads, folder=folder, sanitize=("races",))
    assert not isinstance(answer, Built), answer.outcome
    return answer


# ---- what is taken


@pytest.mark.full
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_class_passes_at_all_sizes(name: str, tmp_path: Path) -> None:
    for result in results(*honest(name), tmp_path):
        assert result.verdict is Verdict.PASSED, result.detail


@pytest.mark.full
def test_a_class_in_triton_passes_in_the_interpreter(tmp_path: Path) -> None:
    [first, *_] = results(*honest("4_RmsNormAffine.triton.py"), tmp_path)
    assert first.verdict is Verdict.PASSED, first.detail


@pytest.mark.full
@pytest.mark.parametrize("name", HONEST)
def test_its_broken_twin_is_wrong(name: str, tmp_path: Path) -> None:
    source, problem, backend = honest(name)
    right, wrong = TWINS[name]
    assert source.count(right) == 1
    *_, last = results(source.replace(right, wrong), problem, backend, tmp_path)
    assert last.verdict is Verdict.WRONG, last.detail


@pytest.mark.parametrize("name", HONEST)
def test_the_guard_has_nothing_against_an_honest_class(name: str) -> None:
    assert guard.rejection(guard.inspect(candidate(*honest(name)), guard.GuardPolicy())) == ""


@pytest.mark.full
def test_sizes_that_are_one_number_each_follow_the_workload(tmp_path: Path) -> None:
    """Both sizes of the layer are 256 in the file, so that no axis has the name of a number."""
    answers = results(*honest("5_LinearLeaky.cuda.py"), tmp_path, which="edge")
    assert {answer.verdict for answer in answers} == {Verdict.PASSED}, answers


# ---- parameters


@pytest.mark.full
@pytest.mark.parametrize(
    ("right", "other", "message"),
    [
        ("self.weight", "self.gain", "no parameter or buffer 'weight'"),
        ("torch.randn(features)", "torch.randn(features, 1)", r"weight of ModelNew is \[10, 1\]"),
    ],
)
def test_a_parameter_of_another_name_or_shape_is_said(
    right: str, other: str, message: str, tmp_path: Path
) -> None:
    source, problem, backend = honest("4_RmsNormAffine.triton.py")
    op, toolchain = op_of(problem), registry.load(backend)
    made = candidate(source.replace(right, other), problem, backend)
    answer = evaluate(
        made,
        op,
        toolchain,
        default_target(toolchain),
        [op.workloads["ci"][0]],
        folder=tmp_path,
    )
    said = str(answer.outcome) if isinstance(answer, Built) else answer[0].detail
    assert re.search(message, said), said


# ---- cheats


CALLS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return torch.tanh(x * self.scale) * 1.5


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        {init}

    def forward(self, x):
        {forward}
"""


def cheat(forward: str, init: str = "self.layers = []") -> str:
    return CALLS.replace("{init}", init).replace(
        "{forward}", textwrap.indent(textwrap.dedent(forward).strip(), " " * 8).strip()
    )


@pytest.mark.parametrize(
    "source",
    [
        cheat("return copied(self.inner(x))", "self.inner = Model(scale)"),
        cheat("return copied(F.hardtanh(x))"),
        cheat("return copied(nn.Tanh()(x * self.scale) * 1.5)"),
        cheat("return copied(self.act(x * self.scale))", "self.act = nn.Tanh()"),
        cheat("return copied(self.act.forward(x))", "self.act = nn.Tanh()"),
        cheat("return copied(self.all[0](x))", "self.all = nn.ModuleList([nn.Tanh()])"),
        cheat("return copied((x * self.scale).tanh())"),
        cheat("torch.tanh = copied\nreturn copied(x)"),
        cheat("return x * self.scale").replace("@triton.jit", ""),
    ],
)
def test_a_class_that_lets_others_do_the_work_is_rejected(source: str) -> None:
    assert guard.rejection(
        guard.inspect(candidate(source, "1_ScaledTanh", "triton"), guard.GuardPolicy())
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        (  # by a way that the guard cannot follow
            cheat(
                "for layer in self.children():\n    x = layer(x * self.scale)\nreturn copied(x)",
                "self.one = nn.Tanh()",
            ),
            {Verdict.REJECTED, Verdict.WRONG},
        ),
        (
            cheat(
                """
                if self.kept is None or self.kept.shape != x.shape:
                    self.kept = copied(x)
                return self.kept
                """,
                "self.kept = None",
            ),
            {Verdict.WRONG},
        ),
        (
            cheat("setattr(torch, 'ta' + 'nh', copied)\nreturn copied(x)"),
            {Verdict.WRONG, Verdict.SUSPICIOUS, Verdict.REJECTED},
        ),
    ],
)
def test_what_gets_past_the_guard_does_not_pass(
    source: str, verdicts: set[Verdict], tmp_path: Path
) -> None:
    [first, *_] = results(source, "1_ScaledTanh", "triton", tmp_path)
    assert first.verdict in verdicts, first


@pytest.mark.full
def test_a_layer_that_does_all_the_work_behind_a_copy_is_rejected(tmp_path: Path) -> None:
    source = cheat(
        "for layer in self.children():\n    x = layer(x)\nreturn copied(x)",
        "self.one = nn.MaxPool1d(1)",
    )
    # Its answer would be right for an operator that is one; here it is who did it that counts.
    source = source.replace("return copied(x)", "return copied((x * self.scale * 0 + right(x)))")
    source = source.replace(
        "class Model(",
        "def right(x):\n    return getattr(x * 0.75, 'ta' + 'nh')() * 1.5\n\n\nclass Model(",
    )
    [first, *_] = results(source, "1_ScaledTanh", "triton", tmp_path)
    assert first.verdict is Verdict.REJECTED, first


@pytest.mark.parametrize(
    ("found", "put", "rule"),
    [
        ("return y;\n}", "return torch::softmax(y, 0);\n}", "G301"),
        ("#include <cuda_runtime.h>", "#include <cublas_v2.h>\nauto f = cublasSgemm;", "G302"),
        ('"-O3"', '"--use_fast_math"', "G401"),
        ("return y;\n}", 'system("true");\n    return y;\n}', "G102"),
    ],
)
def test_the_guard_reads_the_sources_of_an_extension(found: str, put: str, rule: str) -> None:
    source, problem, backend = honest("2_RowMeanSquare.cuda.py")
    assert found in source
    made = candidate(source.replace(found, put), problem, backend)
    hits = guard.inspect(made, guard.GuardPolicy())
    assert rule in {hit.rule.id for hit in hits if hit.severity == "reject"}


def test_torch_ops_are_accepted_where_they_are_allowed() -> None:
    made = candidate(cheat("return copied(F.hardtanh(x))"), "1_ScaledTanh", "triton")
    assert guard.rejection(guard.inspect(made, guard.GuardPolicy("allow"))) == ""


# ---- the form


def test_a_file_is_recognised_by_the_class_that_it_defines(tmp_path: Path) -> None:
    file = tmp_path / "anything.py"
    file.write_text("import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n")
    made = catalogue.from_file(file, op="relu", backend=registry.load("cuda"))
    assert (made.style, made.entry, made.language) == ("module", "ModelNew", "torch-cuda")
    assert not defines_class("# class ModelNew")
    assert not defines_class("x = 'class ModelNew' +")


def test_a_folders_class_is_a_kernel_of_the_backend_that_its_place_or_text_names(
    tmp_path: Path,
) -> None:
    source = "import torch\nimport triton\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    for name in ("relu.py", "cuda/relu.py", "pallas/relu.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    project = find("none", str(tmp_path))
    assert project is not None
    assert project.kernels is not None
    made = {k.candidate.backend: k.candidate.style for k in project.kernels.kernels}
    assert made == {"triton": "module", "cuda": "module"}
    assert "pallas reads no '.py' files" in str(project.kernels.problems[0])


def test_a_backend_without_torch_says_who_takes_such_a_class(tmp_path: Path) -> None:
    file = tmp_path / "anything.py"
    file.write_text("class ModelNew:\n    pass\n")
    with pytest.raises(ConfigError, match="ModelNew for pallas, expected one for triton, cuda"):
        catalogue.from_file(file, op="relu", backend=registry.load("pallas"))


def test_the_constructors_arguments_come_without_the_operators_code() -> None:
    text = "import torch\nwidth = 4\ndepth = width * 2\nother = 5\n" + textwrap.dedent(
        """
        class Model(torch.nn.Module):
            def forward(self, x):
                return x.tanh()

        def get_init_inputs():
            return [depth, helper()]

        def helper():
            return width
        """
    )
    made = constructor_source(text, "Model")
    assert "tanh" not in made
    assert "other" not in made
    namespace: dict[str, object] = {}
    exec(made, namespace)
    assert namespace["get_init_inputs"]() == [8, 4]  # type: ignore[operator]
    assert (
        constructor_source("class Model: ...\ndef get_init_inputs():\n    return Model", "Model")
        == ""
    )


def test_numbers_of_the_file_follow_the_sizes() -> None:
    assert integers("a, b = 3, 4\nc: int = 5\nd = 'x'\ne = True\nf = 1.5\n") == {
        "a": 3,
        "b": 4,
        "c": 5,
    }
    form = ModuleForm(numbers={"a": 3, "b": 3}, lengths={"x_0": 3}, state={"w": "fc.weight"})
    assert [*form.choices({"x_0": 7})] == [{}, {"a": 7}, {"b": 7}]
    assert form.fixed({"x_0": 7}, {"w": ("x_0",)}) == ""
    literal = ModuleForm(numbers={}, lengths={"x_0": 3}, state={"w": "fc.weight"})
    assert literal.fixed({"x_0": 7}, {"w": ("x_0",)}) == "x_0"
    assert literal.fixed({"x_0": 3}, {"w": ("x_0",)}) == ""


def test_a_size_that_no_constructor_can_be_told_is_unsupported() -> None:
    problem = "5_LinearLeaky"
    text = (DATA / "problems" / f"{problem}.py").read_text()
    text = text.replace("return [in_features, out_features, slope]", "return [256, 256, slope]")
    text = text.replace("in_features = 256\nout_features = 256\n", "").replace(
        "batch_size, in_features)", "batch_size, 256)"
    )
    found = trace(text, "x.py", "", "linear").traced
    assert found is not None
    op = sheets.of(found, "x.py", text).op(text)
    backend = registry.load("triton")
    made = catalogue.of_module("class ModelNew: ...", op=op.name, backend=backend, author="test")
    cell = SelectedCell(
        op,
        "ci",
        op.workloads["ci"][0],
        "float32",
        backend,
        default_target(backend),
        made,
        RunStage(),
    )
    assert cell.ruled_out is not None
    verdict, reason = cell.ruled_out
    assert verdict is Verdict.UNSUPPORTED
    assert "no number of its file is 256" in reason


def test_warp_operations_of_hip_in_an_extension_want_hardware() -> None:
    source, problem, backend = honest("6_SumAndDifference.hip.py")
    op, hip = op_of(problem), registry.load(backend)
    workload = op.workloads["ci"][0]
    for text, able in ((source, True), (source.replace("a[i] + b[i]", "__shfl(a[i], 0)"), False)):
        made = candidate(text, problem, backend)
        where = default_target(hip)
        request = Build(made, op.signature, "float32", where, workload.dims, {}, emulated=True)
        assert isinstance(hip.builds(request), Missing) is not able


def test_the_form_of_a_module_travels_with_the_signature() -> None:
    signature = op_of("5_LinearLeaky").signature
    assert signature.module is not None
    assert Signature.from_json(signature.to_json()) == signature
    assert set(signature.module.state.values()) == {"linear.weight", "linear.bias"}


@pytest.mark.full
def test_an_operator_that_is_not_a_module_takes_a_class_without_parameters(tmp_path: Path) -> None:
    source = cheat("return copied(x)").replace("def __init__(self, scale):", "def __init__(self):")
    source = source.replace("        self.scale = scale\n        self.layers = []\n", "")
    source = source.replace(
        "tl.load(x + at, mask=at < n)",
        "tl.where(tl.load(x + at, mask=at < n) < 0, 0.0, tl.load(x + at, mask=at < n))",
    )
    op, backend = ops.load("relu"), registry.load("triton")
    made = catalogue.of_module(source, op="relu", backend=backend, author="test")
    answer = evaluate(
        made, op, backend, default_target(backend), [Workload("w", {"n": 1000})], folder=tmp_path
    )
    assert not isinstance(answer, Built)
    assert answer[0].verdict is Verdict.PASSED, answer[0].detail
