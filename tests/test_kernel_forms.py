"""Kernels in the forms that models were trained on: called in that form, or told what they are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from portkern import ops
from portkern.agent.proposer import reading
from portkern.agent.replies import Unread
from portkern.agent.task import Task
from portkern.cells.selection import SelectedCell
from portkern.evaluator.build import Built
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.kernel_forms import extension_module, of
from portkern.testing import evaluate
from tests.scripted import in_turn, play

JIT = """
import torch
import triton
import triton.language as tl

@triton.jit
def _kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value), mask=at < n)
"""
LAUNCHER = """
def {name}(x):
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        _kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y
"""
CLASS = f"""{JIT}{LAUNCHER.format(name="launch")}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)
"""
BARE = "__global__ void {name}(const float* x, float* y, int n) {{ y[0] = x[0]; }}\n"
EXTENSION = """#include <torch/extension.h>
torch::Tensor relu_forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] < 0 ? 0.0f : from[i];
  return y;
}
"""
BOUND = EXTENSION + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("go", &relu_forward, ""); }\n'
LOADED = f"""
import torch
from torch.utils.cpp_extension import load_inline
own = load_inline(name="own", cpp_sources={EXTENSION!r}, functions=["relu_forward"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return own.relu_forward(x)
"""


@pytest.mark.parametrize(
    ("language", "source", "kind", "name"),
    [
        ("triton", f"{JIT}{LAUNCHER.format(name='relu')}", "returns", "relu"),
        ("triton", f"{JIT}{LAUNCHER.format(name='triton_relu')}", "returns", "triton_relu"),
        ("triton", f"{JIT}def relu(x, y): _kernel[(1,)](x, y, 1, 1)\n", "entry", "relu"),
        ("triton", CLASS, "module", "ModelNew"),
        ("triton", LOADED, "else", "ModelNew"),
        ("triton", JIT, "kernel", "_kernel"),
        ("triton", f"{JIT}def go(a, b): return _kernel[(1,)](a, b, 1, 1)\n", "else", "go"),
        ("triton", f"{JIT}globals()['relu'] = print\n", "entry", "relu"),
        ("triton", "import torch\nclass Model(torch.nn.Module): pass\n", "else", "Model"),
        ("cuda", LOADED, "module", "ModelNew"),
        ("cuda", CLASS, "else", "ModelNew"),
        ("cuda", BARE.format(name="relu_kernel"), "kernel", "relu_kernel"),
        (
            "cuda",
            "__global__ void __launch_bounds__(256) fast(float* x) { x[0] = 1; }\n",
            "kernel",
            "fast",
        ),
        ("cuda", "void launch(float* x) { k<<<1, 1>>>(x); }\n", "else", "launch"),
        ("cuda", '// relu\nextern "C" int relu(const float* x) { return 0; }\n', "entry", "relu"),
        ("cuda", "#define NAME(x) x##lu\nint NAME(re)(float* x) { return 0; }\n", "entry", "relu"),
        ("c++", EXTENSION, "extension", "relu_forward"),
        ("c++", BOUND, "extension", "go"),
        ("c++", "int other(const float* x, float* y) { return 0; }\n", "else", "other"),
        ("opencl", CLASS, "else", "ModelNew"),
        ("numba", CLASS, "else", "ModelNew"),
    ],
)
def test_the_form_of_a_file_is_recognised(language: str, source: str, kind: str, name: str) -> None:
    form = of(source, "relu", language, 1)
    assert (form.kind, form.name) == (kind, name)


def test_every_kernel_of_the_catalogue_has_portkerns_own_form() -> None:
    for name in ops.names():
        signature = ops.load(name).signature
        for backend in map(registry.load, registry.names()):
            for kernel in catalogue.candidates(name, backend):
                misfit = catalogue.misfit(kernel, signature, backend)
                assert not misfit, (kernel.backend, kernel.language)


def _task(backend: str, where: str) -> Task:
    chosen = registry.load(backend)
    language = next(iter(chosen.languages.values()))
    return Task(ops.load("relu"), target.load(where), chosen, language)


@pytest.mark.parametrize(
    ("backend", "where", "source", "found"),
    [
        ("cuda", "sm_90", BARE.format(name="fast"), "the kernel fast and nothing that launches it"),
        ("cuda", "sm_90", CLASS, "a class ModelNew with Triton kernels"),
        ("triton", "sm_90", LOADED, "a class ModelNew with an extension"),
        ("triton", "sm_90", JIT, "the kernel _kernel and nothing that launches it"),
        ("opencl", "opencl_generic", CLASS, "a class ModelNew with Triton kernels"),
        ("cpu", "x86_64", "int other(float* x) { return 0; }", "the function other"),
    ],
)
def test_what_cannot_be_called_is_named_and_so_is_what_was_expected(
    backend: str, where: str, source: str, found: str
) -> None:
    task = _task(backend, where)
    made = task.candidate(source, "m")
    (workload, *_) = task.op.workloads["ci"]
    cell = SelectedCell(task.op, "ci", workload, "float32", task.backend, task.target, made)
    assert cell.ruled_out is not None
    verdict, why = cell.ruled_out
    assert verdict is Verdict.BUILD_FAILED
    assert why.startswith(f"the file holds {found}; expected a function relu in {task.language}")


@pytest.mark.parametrize(
    ("backend", "reply"),
    [
        ("cuda", f"Here:\n```python\n{LOADED}```\n"),
        ("cuda", LOADED),
        ("cpu", f"\ufeffA class.\n```Python\n{LOADED}```\nIt is fast."),
    ],
)
def test_a_class_is_found_in_a_reply_whatever_the_language(backend: str, reply: str) -> None:
    task = _task(backend, {"cuda": "sm_90", "cpu": "x86_64"}[backend])
    code = reading.kernel(reply, task)
    assert not isinstance(code, Unread), code.why
    assert task.candidate(code.source, "m").style == "module"


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "source", "style"),
    [
        ("triton", f"{JIT}{LAUNCHER.format(name='triton_relu')}", "return"),
        ("triton", CLASS, "module"),
        ("cpu", BOUND, "module"),
    ],
)
def test_a_kernel_in_a_form_of_others_is_judged_in_it(
    backend: str, source: str, style: str, tmp_path: Path
) -> None:
    task = _task(backend, {"triton": "sm_90", "cpu": "x86_64"}[backend])
    made = task.candidate(source, "m")
    assert made.style == style
    assert task.candidate(made.source, "m").digest == made.digest  # as it is kept
    (workload, *_) = task.op.workloads["ci"]
    answer = evaluate(made, task.op, task.backend, task.target, [workload], folder=tmp_path)
    assert not isinstance(answer, Built), answer.outcome
    assert answer[0].verdict is Verdict.PASSED, answer[0].detail


@pytest.mark.parametrize("source", [EXTENSION, EXTENSION + "// '''\n", EXTENSION + "\\"])
def test_an_extension_is_kept_as_it_was_written(source: str) -> None:
    names: dict[str, object] = {}
    text = extension_module(source, "relu_forward").split("extension = ")[0]
    exec(text.replace("import torch\nfrom torch.utils.cpp_extension import load_inline", ""), names)
    assert names["SOURCE"] == source


@pytest.mark.parametrize("preset", ["kernelllm", "kevin_infer", "tritonrl", "kernelcoder"])
@pytest.mark.parametrize(
    ("backend", "asked"), [("triton", "module"), ("cuda", "module"), ("opencl", "entry")]
)
def test_a_trained_model_is_asked_in_the_form_that_it_answers_in(
    preset: str, backend: str, asked: str, tmp_path: Path
) -> None:
    where = "opencl_generic" if backend == "opencl" else "sm_90"
    place = (f"backend={backend}", f"target={where}", "budget.attempts=1")
    played = play(tmp_path, in_turn(*["I would tile it."] * 40), f"preset={preset}", *place)
    prompt = played.text(0)
    assert ("class ModelNew(torch.nn.Module)" in prompt) == (asked == "module")
    assert ("How kernels are written here" in prompt) == (asked == "entry")


@pytest.mark.parametrize("text", ["__global__ ", "/* ", '"\\\\'])
def test_the_form_of_a_long_text_is_found_in_no_time(text: str) -> None:
    begun = time.process_time()
    of(text * 40_000, "relu", "cuda", 1)
    assert time.process_time() - begun < 5
