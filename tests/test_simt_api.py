"""The host API of the SIMT executor: CUDA's and HIP's runtime, BLAS, and PyTorch extensions.

A program of ``simt/api`` says itself what it expects; what it is told by findings stands as a code
at the end of the line that each is for.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from portkern.errors import BuildError, ConfigError, LaunchError
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import Mode
from portkern.simt.execute.program import ProgramOutcome
from portkern.simt.torch_extension import bindings as torchlite
from portkern.simt.torch_extension import script
from portkern.simt.torch_extension.bindings import Extension
from portkern.spec import target

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)
HERE = Path(__file__).parent / "simt"
PROGRAMS = sorted(p.name for p in (HERE / "api").iterdir() if p.suffix in (".cu", ".hip"))
MARK = re.compile(r"// (SX\d{3})$")


def run(name: str, folder: Path, mode: Mode = "fast") -> ProgramOutcome:
    hip = name.endswith(".hip")
    where = target.load("mi300x" if hip else "h100")
    built = build.build_program(
        HERE / "api" / name, folder / "program", build.CompileOptions(mode=mode, target=where)
    )
    return program.run(built, target=where, language="hip" if hip else "cuda")


def marked(name: str) -> set[tuple[str, int]]:
    lines = (HERE / "api" / name).read_text(encoding="utf-8").splitlines()
    found = ((MARK.search(line), i) for i, line in enumerate(lines, start=1))
    return {(match[1], i) for match, i in found if match}


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_api_does_what_a_program_expects(name: str, tmp_path: Path) -> None:
    outcome = run(name, tmp_path)
    assert outcome.status == 0, outcome.output
    # Without debugging information some lines are unknown: their codes are looked at.
    assert outcome.codes == {code for code, _ in marked(name)}
    assert {(f.code, f.line) for f in outcome.findings if f.line} <= marked(name)


@pytest.mark.parametrize("name", ["misuse.cu", "launches.cu", "errors.cu"])
def test_a_finding_names_the_line_of_the_call(name: str, tmp_path: Path) -> None:
    outcome = run(name, tmp_path, "check")
    assert outcome.status == 0, outcome.output
    assert {(f.code, f.line) for f in outcome.findings} == marked(name)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel(nullptr, 1, 1, nullptr);",
        "void* p = nullptr; cudaLaunchKernel(p, 1, 1, nullptr);",
        "cudaNoSuchCall();",
        "cudaDeviceGetAttribute(&n, cudaDevAttrMaxTexture1DWidth, 0);",
        "cublasHandle_t h; cublasCgemm(h);",
    ],
)
def test_what_is_not_modelled_does_not_compile(call: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text(f"#include <cublas_v2.h>\nint main() {{ int n; {call} }}\n")
    with pytest.raises(BuildError):
        build.build_program(source, tmp_path / "program")


# ---- extensions of PyTorch


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Extension]:
    """Builds and opens an extension of ``simt/torch``, once."""

    @cache
    def opened(name: str) -> Extension:
        folder = tmp_path_factory.mktemp(name)
        text = (HERE / "torch" / f"{name}.cu").read_text(encoding="utf-8")
        defines = (f"TORCH_EXTENSION_NAME={name}",)
        source = build.ProgramSource(text, f"{name}.cu", "cuda", defines=defines)
        library = build.build_library(source, target.load("h100"), "fast", folder)
        return torchlite.load(library)

    return opened


@pytest.fixture
def bindings(extension: Callable[[str], Extension]) -> Extension:
    return extension("bindings")


@pytest.fixture
def tensors(extension: Callable[[str], Extension]) -> Extension:
    return extension("tensors")


def test_an_extension_is_built_from_a_file_with_its_includes(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/add.cuh").write_text(
        "__global__ void add(float* x, float by) { x[threadIdx.x] += by; }\n"
    )
    source = tmp_path / "add-one.cu"
    source.write_text(
        """#include <torch/extension.h>
        #include "add.cuh"
        void add_to(torch::Tensor x) { add<<<1, x.numel()>>>(x.data_ptr<float>(), BY); }
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add_to", &add_to); }"""
    )
    search, defines = [tmp_path / "kernels"], ["BY=3.0f"]
    out = build.build_extension(
        source, tmp_path / "add.so", build.CompileOptions(search=search, defines=defines)
    )
    opened = torchlite.load(out)
    x = torch.arange(4.0)
    opened.add_to(x)
    assert (opened.name, x.tolist()) == ("add_one", [3, 4, 5, 6])
    with pytest.raises(ConfigError, match="got 'asan'"):
        build.build_extension(source, tmp_path / "add.so", build.CompileOptions(mode="asan"))


def test_an_extension_s_name_does_not_stop_its_headers_from_being_precompiled(
    tmp_path: Path,
) -> None:
    box = runtime_library.ready()
    if not box.gcc:
        pytest.skip("only g++ tells which precompiled header it reads")
    source = tmp_path / "nothing.cu"
    source.write_text("")
    headers = box.headers("cuda", "fast", torch=True)
    read = subprocess.run(
        [
            *box.compiler.argv,
            *box.flags("fast"),
            "-DTORCH_EXTENSION_NAME=x",
            *headers,
            "-I",
            str(runtime_library.INCLUDE),
            "-H",
            "-fsyntax-only",
            "-x",
            "c++",
            str(source),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stderr.startswith(f"! {box.folder}"), read.stderr[:200]


def test_operators_are_registered_by_name_beside_bound_functions(
    extension: Callable[[str], Extension],
) -> None:
    operators = extension("operators")
    assert operators.turned(1.0, 2.0) == -2
    registered = operators.registered
    assert registered is not None
    named = registered.functions
    assert {"portkern_demo::row_sums", "portkern_demo::from_host"} <= set(named)
    x = torch.arange(600.0).reshape(2, 300).half() / 64
    assert torch.allclose(named["portkern_demo::row_sums"](x), (x.float() + 0.5).sum(1))
    assert named["portkern_demo::from_host"]().tolist() == [[0, 1], [3, 4]]


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    return got.dtype == want.dtype and got.shape == want.shape and torch.equal(got, want)


def test_an_extension_lists_its_functions(bindings: Extension) -> None:
    assert (bindings.name, bindings.doc) == ("bindings", "an extension of tests")
    assert str(bindings.scale.overloads[0]) == (
        "(x: Tensor, by: float, into: Optional[Tensor]) -> Tensor"
    )
    assert bindings.scale.__doc__ == "x times by"
    assert [o.result for o in bindings.twice.overloads] == ["int", "float"]
    with pytest.raises(AttributeError, match="No function 'missing'"):
        _ = bindings.missing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_kernel_is_dispatched_by_element_type(bindings: Extension, dtype: torch.dtype) -> None:
    x = torch.arange(600, dtype=dtype).reshape(20, 30) / 8
    assert same(bindings.scale(x), x * 2)
    assert same(bindings.scale(by=0.5, x=x), x * 0.5)
    into = torch.empty_like(x)
    assert bindings.scale(x, 4.0, into) is into
    assert same(into, x * 4)


def test_what_a_function_writes_is_in_the_caller_s_tensors(bindings: Extension) -> None:
    x = torch.ones(12)
    bindings.scale_in_place(x[4:8], 3)
    assert x.tolist() == [1] * 4 + [3] * 4 + [1] * 4
    weight = torch.nn.Parameter(torch.ones(3))
    bindings.scale_in_place(weight, 2)
    assert weight.tolist() == [2, 2, 2]


def test_results_come_back_as_python_has_them(bindings: Extension) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert [row.tolist() for row in bindings.split(x)] == [[0, 1, 2], [3, 4, 5]]
    assert bindings.join([x, x]).shape == (4, 3)
    total, count, on_gpu = bindings.facts(x)
    assert (total.item(), count, on_gpu) == (15, 6, True)
    assert bindings.maybe(False) is None
    assert bindings.maybe(wanted=True).tolist() == [1, 1]
    assert bindings.same(x) is x
    tail = bindings.tail(x)  # a view of x stays one
    tail[0, 0] = 7
    assert x[1, 0] == 7
    assert bindings.describe(x, "x:", [4, 5], torch.int8) == "x: [2, 3] Float [4, 5] Char cuda:0"
    assert (bindings.twice(3), bindings.twice(1.5)) == (6, 3.0)


def test_arguments_are_checked_as_pybind11_does(bindings: Extension) -> None:
    with pytest.raises(TypeError, match=r"scale\(Tensor, str\): incompatible arguments"):
        bindings.scale(torch.ones(2), "2")
    with pytest.raises(TypeError, match="incompatible"):
        bindings.scale(torch.ones(2), wrong=1)
    with pytest.raises(TypeError, match="incompatible"):
        bindings.scale_in_place(torch.ones(2))
    with pytest.raises(TypeError, match="too large"):
        bindings.small(300)
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        bindings.scale(torch.ones(4, 4).t())


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("check", RuntimeError, "refused: 3 Half"),
        ("index", IndexError, "no such row"),
        ("argument", ValueError, "a wrong argument"),
        ("dtype", RuntimeError, "expected scalar type Float but found Int"),
        ("shape", RuntimeError, r"shape '\[5\]' is invalid for input of size 6"),
        ("type", NotImplementedError, "\"refuse\" not implemented for 'Int'"),
    ],
)
def test_exceptions_arrive_as_those_of_python(
    bindings: Extension, how: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        bindings.refuse(how)


def test_a_kernel_s_error_is_raised_and_a_fault_stays(bindings: Extension) -> None:
    x = torch.ones(4)
    with pytest.raises(LaunchError, match="launch_too_large left cudaErrorInvalidValue"):
        bindings.launch_too_large(x)
    assert same(bindings.scale(x), x * 2)
    with pytest.raises(LaunchError, match="cudaErrorIllegalAddress"):
        bindings.write_past_the_end(x)
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        bindings.scale(x)
    bindings.reset()
    assert same(bindings.scale(x), x * 2)


def test_views_are_torch_s(tensors: Extension) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    want = [
        x.view(6, 4),
        x.view(2, -1),
        x.transpose(0, 2).reshape(4, 6),
        x.permute(2, 0, 1),
        x[1],
        x.select(-1, 2).t(),
        x.flatten(1),
        x.unsqueeze(-1),
        x[:, :, 1:4:2],
        x.narrow(1, 1, 2),
        x.transpose(1, 2),
        x[0].unsqueeze(0).expand(5, 3, 4),
        x.transpose(0, 1),
        x.double(),
        x,
    ]
    got = tensors.views(x)
    assert len(got) == len(want)
    assert all(same(g, w) for g, w in zip(got, want, strict=True))
    y = x[0]
    assert tensors.strides_of_views(x) == [
        [4, 1],
        [1, 12, 4],
        [12, 4, 2],
        [*x.transpose(0, 1).unsqueeze(0).stride()],
        [*torch.empty_like(y.t()).stride()],
        [3, 1],
        [0, 4, 1],
    ]


def test_tensors_are_made_as_torch_makes_them(tensors: Extension) -> None:
    want = [
        torch.zeros(2, 3),
        torch.ones(3, dtype=torch.int64),
        torch.full((2,), -1.5),
        torch.full((2,), 7),
        torch.arange(5),
        torch.arange(1, 4, 0.5, dtype=torch.float64),
        torch.tensor([1, 2, 3]),
        torch.tensor([0.5, 2], dtype=torch.bfloat16),
        torch.zeros(2, dtype=torch.int8),
        torch.ones(0, 4),
    ]
    got = tensors.made()
    assert [(t.dtype, t.shape) for t in got] == [(t.dtype, t.shape) for t in want]
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


def test_arithmetic_broadcasts_and_promotes_as_torch_does(tensors: Extension) -> None:
    a, b = torch.arange(12.0).reshape(3, 4) - 5, torch.tensor([1.0, -2, 0.5, 3])
    i = a.int()
    want = [
        a + b,
        a - b,
        b * a,
        a / b,
        1 - a,
        a * 0.5,
        -a,
        (a + b) * 2 - 1,
        i + 1,
        i / 2,
        a.half() + b,
    ]
    got = tensors.arithmetic(a, b)
    assert [t.dtype for t in got] == [t.dtype for t in want]
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


def test_reductions_and_sorting_are_torch_s(tensors: Extension) -> None:
    x = torch.tensor([[3.0, 1, 2, 3], [0, -4, 8, 8.5], [5, 5, 5, -1]])
    values, places = x.max(1)
    least, least_at = x.min(0, keepdim=True)
    ordered, order = x.sort(stable=True, dim=1, descending=True)
    want = [
        x.sum(),
        x.sum(0),
        x.sum(-1, keepdim=True),
        x.mean(),
        x.mean(1),
        x.max(),
        x.min(),
        x.amax(0),
        values,
        places,
        least,
        least_at,
        ordered,
        order,
        x.argsort(0),
        x.int().sum(),
        x[:, [2, 0]],
        torch.stack([x, x], 1),
        torch.cat([x, x], 1),
    ]
    got = tensors.reductions(x)
    assert len(got) == len(want)
    assert [i for i, (g, w) in enumerate(zip(got, want, strict=True)) if not same(g, w)] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_packed_accessors_follow_strides(tensors: Extension, dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert same(tensors.row_means(x.t()), x.t().mean(1))


def test_sixteen_bit_types_calculate_and_properties_hold(tensors: Extension) -> None:
    assert tensors.sixteen_bits()
    assert tensors.properties(torch.arange(12.0).reshape(3, 4))


# ---- operators and gradients of C++, and what PyTorch does for them


@pytest.fixture
def operators(extension: Callable[[str], Extension]) -> Any:
    opened = extension("registered")
    script.register(opened)
    return torch.ops.simt_tests


def test_operators_of_c_plus_plus_have_their_own_gradients(operators: Any) -> None:
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    by = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    y, signs = operators.scale(x, by, None)
    assert torch.equal(y, x * 2.5) and torch.equal(signs, (x > 0).long())
    assert y.requires_grad and not signs.requires_grad
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 2.5))
    assert by.grad is not None and torch.allclose(by.grad, x.sum())


def test_gradients_of_views_pass_the_check_of_pytorch(operators: Any) -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    by = torch.tensor(-0.5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda t: operators.scale(t.t(), by, None)[0], (x,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit itself
def test_torchscript_knows_the_operators(operators: Any) -> None:
    def scaled(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = torch.ops.simt_tests.scale(x, by, None)[0]
        return scaled

    x, by = torch.randn(7), torch.tensor(3.0)
    assert torch.equal(torch.jit.script(scaled)(x, by), x * 3)


def test_operations_that_the_runtime_lacks_are_pytorchs(operators: Any) -> None:
    x = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -9.0], [0.5, 0.5, 0.5]])
    padded = torch.nn.functional.pad(x.cumsum(0).masked_fill_(x < 0, 0), (0, 1))
    expected = padded[:2] + padded.topk(2)[0].sum(0).mean()
    assert torch.allclose(operators.around(x=x), expected)
    drawn = torch.where(x > 0, torch.ones(3, 3), x.mode(-1, True)[0]) + torch.cdist(x, x).median()
    assert torch.allclose(operators.drawn(x), drawn)


def test_what_pytorch_refuses_is_an_error_of_the_extension(operators: Any) -> None:
    with pytest.raises(RuntimeError, match="size 3"):
        operators.unknown(torch.ones(2, 2))
    assert torch.equal(operators.unknown(torch.ones(1, 3)), torch.zeros(1, 3))
