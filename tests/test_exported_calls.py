"""Functions of tensors that exports write: what they take, and what they refuse in words."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.formats import hub_kernels, torch_source
from portkern.formats.call_form import CallForm, cpp_expression
from portkern.formats.exported import Export, NoSuchForm
from portkern.formats.leading_axis import leading_axis
from portkern.spec.candidate import Candidate
from portkern.spec.expression import Expression
from portkern.spec.from_torch.sheet import DerivedAxes
from tests.test_formats_out import kernel, record, shipped

Call = Callable[..., Any]
F = torch.nn.functional
#: Stand in for a Triton kernel, as a CPU runs none.
IN_PYTHON = {
    "rmsnorm": """\
def rmsnorm(x, weight, y, eps):
    assert x.dim() == 2
    y.copy_(x * (x.float().pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight)
""",
    "topk": """\
def topk(x, values, indices, k):
    best = x.topk(k)
    values.copy_(best[0])
    indices.copy_(best[1])
""",
    "embedding": """\
def embedding(table, index, y):
    assert index.dim() == 1
    y.copy_(table[index])
""",
    "maxpool2d": """\
def maxpool2d(x, y, window, stride, padding):
    y.copy_(torch.nn.functional.max_pool2d(x, window, stride, padding))
""",
    "silu_mul": """\
def silu_mul(gate, up, y):
    assert gate.dim() == 1
    y.copy_(torch.nn.functional.silu(gate) * up)
""",
}


def python_form(name: str, *dtypes: str) -> Call:
    candidate = Candidate(name, "triton", "triton", IN_PYTHON[name], name)
    text = torch_source.python_module(candidate, ops.load(name), dtypes or ["float32"])
    space: dict[str, Any] = {}
    exec(text, space)
    made: Call = space[torch_source.FUNCTION]
    return made


def cpp_form(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Call:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
    text = torch_source.python_module(shipped(name, "cpu", "c++"), ops.load(name), ["float32"])
    space: dict[str, Any] = {}
    exec(text.replace('"-O3"', '"-O1"'), space)
    made: Call = space[torch_source.FUNCTION]
    return made


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Call]:
    with pytest.MonkeyPatch.context() as patch:
        yield cpp_form("rmsnorm", patch, tmp_path_factory.mktemp("extensions"))


@pytest.fixture(params=["python", pytest.param("c++", marks=pytest.mark.full)])
def rmsnorm(request: pytest.FixtureRequest) -> Call:
    if request.param == "python":
        return python_form("rmsnorm")
    found: Call = request.getfixturevalue("compiled")
    return found


def right(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 1, 3), (0,), (2, 0, 3)])
def test_leading_dimensions_are_rows(lead: tuple[int, ...], rmsnorm: Call) -> None:
    x, weight = torch.randn(*lead, 64), torch.randn(64)
    got = rmsnorm(x, weight)
    assert got.shape == x.shape
    torch.testing.assert_close(got, right(x, weight))
    torch.testing.assert_close(rmsnorm(x, weight, 0.5), right(x, weight, 0.5))


X, W = torch.ones(4, 64), torch.ones(64)
REFUSED: dict[str, tuple[torch.Tensor, torch.Tensor, str]] = {
    "a weight that is too short": (X, W[:8], r"weight is of sizes .*8.*expected .*64"),
    "a weight that is too long": (X, torch.ones(65), r"weight is of sizes .*65.*expected .*64"),
    "a weight of two dimensions": (X, W[None], r"weight has 2 dimensions, expected 1"),
    "no dimension at all": (torch.tensor(1.0), W, r"x has 0 dimensions, expected 1 or more"),
    "another dtype": (X.half(), W.half(), r"is of .*(Half|float16).* (expected|evaluated)"),
    "two dtypes": (X, W.double(), r"weight is of .*(Double|float64), expected .*(Float|float32)"),
    "strides": (torch.ones(64, 4).t(), W, r"x is not contiguous; call .contiguous\(\)"),
    "one element for all": (torch.ones(1, 1).expand(4, 64), W, r"x is not contiguous"),
    "another device": (X, torch.ones(64, device="meta"), r"weight is on meta, expected cpu"),
    "more than 2**31 elements": (
        torch.empty(2**25 + 1, 64, device="meta"),
        torch.ones(64, device="meta"),
        r"x has \d+ elements; the kernel was not evaluated|x is on meta",
    ),
    "a gradient that would be lost": (
        X.clone().requires_grad_(),
        W,
        r"x requires a gradient, and the kernel has none; call it under torch.no_grad\(\)",
    ),
    "a parameter": (X, torch.nn.Parameter(W), r"weight requires a gradient"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_kernel_cannot_take_is_refused_in_words(case: str, rmsnorm: Call) -> None:
    x, weight, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        rmsnorm(x, weight)


def test_without_gradients_a_parameter_is_taken(rmsnorm: Call) -> None:
    weight = torch.nn.Parameter(W)
    with torch.no_grad():
        assert not rmsnorm(X, weight).requires_grad
    with torch.inference_mode():
        rmsnorm(X, weight)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_forward_gradients_and_transforms_are_refused(rmsnorm: Call) -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="gradient"):
        rmsnorm(forward_ad.make_dual(X, X), W)  # type: ignore[no-untyped-call]
    for transform in (torch.func.grad(lambda x: rmsnorm(x, W).sum()), torch.func.vmap(rmsnorm)):
        given = (X,) if transform.__name__ != "rmsnorm" else (X, torch.ones(4, 64))
        try:
            got = transform(*given)
        except Exception:  # noqa: BLE001 - any word of refusal is one
            continue
        torch.testing.assert_close(got, torch.func.vmap(right)(X, torch.ones(4, 64)))


def test_axes_of_several_tensors_have_to_agree() -> None:
    silu_mul = python_form("silu_mul")
    gate, up = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    torch.testing.assert_close(silu_mul(gate, up), F.silu(gate) * up)
    for wrong in (up[:, :2], up.reshape(3, 2, 5), up.reshape(-1)):
        with pytest.raises(ValueError, match=r"up .* expected"):
            silu_mul(gate, wrong.contiguous())


def test_an_axis_of_indices_may_lead_and_integers_keep_their_dtype() -> None:
    embedding = python_form("embedding", "float32", "float16")
    table, index = torch.randn(7, 5), torch.tensor([[1, 2], [0, 6]])
    assert torch.equal(embedding(table, index), F.embedding(index, table))
    assert embedding(table.half(), index).dtype == torch.float16
    with pytest.raises(TypeError, match=r"index is of torch.int32, expected torch.int64"):
        embedding(table, index.int())
    with pytest.raises(TypeError, match="evaluated in float32, float16"):
        embedding(table.double(), index)


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("rmsnorm", "rows"),
        ("relu", "n"),
        ("matmul", "m"),
        ("attention", "batch"),
        ("embedding", "n"),
        ("transpose", None),  # its rows are columns of the output
        ("scatter_add", None),  # its indices count rows
        ("cross_entropy", None),  # the framework takes the second dimension for classes
        ("sum", None),
        ("conv2d", None),
    ],
)
def test_the_reference_shows_which_axis_may_be_several_dimensions(
    name: str, axis: str | None
) -> None:
    assert leading_axis(ops.load(name)) == axis


def test_an_operator_of_a_file_keeps_its_ranks() -> None:
    assert leading_axis(replace(ops.load("softmax"), description="mine")) is None


def test_lengths_that_follow_are_computed_in_both_languages() -> None:
    said = Expression("(h + 2 * p - 3) // -s + max(h, 2) % 3")
    assert cpp_expression(said) == (
        "(portkern_floor(((h + (int64_t(2) * p)) - int64_t(3)), (-s)) + "
        "(std::max<int64_t>(h, int64_t(2)) - portkern_floor(std::max<int64_t>(h, int64_t(2)), "
        "int64_t(3)) * int64_t(3)))"
    )
    with pytest.raises(NoSuchForm, match="not arithmetic of whole numbers"):
        cpp_expression(Expression("h / 2"))
    topk = ops.load("topk")
    with pytest.raises(NoSuchForm, match="'kept' follows by a rule that is not text"):
        CallForm.of(replace(topk, file="mine.py"))
    derived = DerivedAxes((("kept", Expression("cols // 3 - 1")),))
    told = replace(topk, derived=derived, workloads={})
    candidate = Candidate("topk", "triton", "triton", IN_PYTHON["topk"], "topk")
    space: dict[str, Any] = {}
    exec(torch_source.python_module(candidate, told, ["float32"]), space)
    x = torch.randn(4, 9)
    for got, expected in zip(space["run_kernel"](x, 2), x.topk(2), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="kept would be -1, expected 1 or more"):
        space["run_kernel"](x[:, :2].contiguous(), 1)


#: Arguments that the formula takes, and others whose sizes or indices nobody evaluated.
ODD: dict[str, tuple[list[Any], list[tuple[list[Any], str]]]] = {
    "topk": ([torch.randn(4, 9), 2], [([torch.randn(4, 9), k], "expected k") for k in (0, -1, 10)]),
    "maxpool2d": (
        [torch.randn(2, 3, 8, 8), 3, 2, 1],
        [
            ([torch.randn(2, 3, 8, 8), 3, 0, 1], "expected stride >= 1"),
            ([torch.randn(2, 3, 8, 8), 3, 2, 2], r"expected 2 \* padding <= window"),
            ([torch.randn(2, 3, 1, 1), 3, 9, 0], "oh would be 0|oh would be -"),
        ],
    ),
    "embedding": (
        [torch.randn(7, 5), torch.tensor([0, 6])],
        [
            ([torch.randn(7, 5), torch.tensor([0, i])], "not from 0 to vocab")
            for i in (-1, 7, 1 << 40)
        ],
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_lengths_scalars_and_indices_that_nobody_evaluated_are_refused(name: str) -> None:
    takes_what_the_formula_takes(name, python_form(name))


@pytest.mark.full
def test_compiled_code_refuses_indices_that_lead_out_of_a_tensor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    takes_what_the_formula_takes("embedding", cpp_form("embedding", monkeypatch, tmp_path))


def takes_what_the_formula_takes(name: str, call: Call) -> None:
    good, refused = ODD[name]
    signature = ops.load(name).signature
    tensors, scalars = good[: len(signature.inputs)], good[len(signature.inputs) :]
    named = dict(zip((one.name for one in signature.scalars), scalars, strict=True))
    torch.testing.assert_close(call(*good), ops.load(name).reference(*tensors, **named))
    for given, said in refused:
        with pytest.raises((RuntimeError, ValueError), match=said):
            call(*given)


def test_a_traced_function_knows_its_sizes_and_refuses_what_the_kernel_does() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(torch_source.fake_function(ops.load("rmsnorm"), ["float32"]), space)
    [y] = space["fake"](torch.empty(2, 3, 8, device="meta"), torch.empty(8, device="meta"), 1e-6)
    assert (y.shape, y.device.type) == ((2, 3, 8), "meta")
    with pytest.raises(ValueError, match="weight is of sizes"):
        space["fake"](X, W[:8], 1e-6)


# ---- A hub package, as its consumer's own loader takes it


@pytest.mark.full
def test_a_package_is_loaded_and_traced_by_who_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    hub_kernels.write([kernel(shipped("rmsnorm", "cpu", "c++"))], Export(tmp_path))
    variant = tmp_path / "rmsnorm/build/torch-cpu"
    about = json.loads((variant / "metadata.json").read_text())
    assert (about["name"], about["backend"]) == ("rmsnorm", {"type": "cpu"})
    package = _loaded(tmp_path / "rmsnorm", about["id"])
    x, weight = torch.randn(2, 3, 64), torch.randn(64)
    torch.testing.assert_close(package.rmsnorm(x, weight), right(x, weight))
    torch.testing.assert_close(package.rmsnorm(x.mT, torch.ones(3)), right(x.mT, torch.ones(3)))
    traced: Call = torch.compile(package.rmsnorm, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(traced(x, weight), right(x, weight))
    operator = getattr(torch.ops, about["id"]).run_native.default
    torch.library.opcheck(
        operator, (x, weight, 1e-6), test_utils=["test_schema", "test_faketensor"]
    )
    with pytest.raises(Exception, match="requires a gradient"):
        traced(x.clone().requires_grad_(), weight)
    with pytest.raises(RuntimeError, match=r"weight is of sizes .*expected .*64"):
        operator(x, weight[:8], 1e-6)


def _loaded(folder: Path, name: str) -> Any:
    """The package, loaded by ``kernels`` where that is installed, else imported."""
    try:
        load = importlib.import_module("kernels").get_local_kernel
    except ImportError:
        file = folder / "build/torch-cpu/__init__.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load(folder)


def test_variants_are_packages_of_their_own(tmp_path: Path) -> None:
    plain = shipped("relu", "cpu", "c++")
    fast = replace(plain, source=f"{plain.source}\n// fast\n", variant="fast/../x")
    kernels = [kernel(plain), kernel(fast, record(fast, variant="fast/../x"))]
    export = Export(tmp_path)
    hub_kernels.write(kernels, export)
    assert (export.items, export.skipped) == (2, [])
    assert {path.name for path in tmp_path.iterdir()} == {"relu", "relu-fast-x"}
    assert [one.name.partition("_cpu")[0] for one in kernels] == ["relu", "relu_fast_x"]
