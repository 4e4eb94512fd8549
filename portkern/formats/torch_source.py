"""A kernel as PyTorch code: a Python module with a function of tensors that returns its outputs,
and its translation unit with bindings where it is C++, CUDA or HIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.formats.call_form import CHECKED, LEAD, LENGTHS, CallForm
from portkern.formats.exported import NoSuchForm
from portkern.formats.inlined import inlined
from portkern.spec import abi, own_headers
from portkern.spec.candidate import Candidate
from portkern.spec.op import CELL, Op, Signature, TensorSpec

#: The function of tensors that the text defines.
FUNCTION = "run_kernel"
#: … and the C++ function behind it.
BINDING = "run_native"
_PLAIN = {
    "float64": "double",
    "float32": "float",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
_CPP_SCALARS = {"float32": "double", "int64": "int64_t", "bool": "bool"}


@dataclass(frozen=True)
class _Native:
    """``types`` are the names of half precisions and ``headers`` bring them; ``stream`` is the type
    of the entry's last argument."""

    types: Mapping[str, str]
    headers: Mapping[str, str]
    runtime: str = ""
    stream: str = ""


_NATIVE = {
    "cuda": _Native(
        {"float16": "__half", "bfloat16": "__nv_bfloat16"},
        {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"},
        "cuda_runtime.h",
        "cudaStream_t",
    ),
    "hip": _Native(
        {"float16": "__half", "bfloat16": "__hip_bfloat16"},
        {"float16": "hip/hip_fp16.h", "bfloat16": "hip/hip_bf16.h"},
        "hip/hip_runtime.h",
        "hipStream_t",
    ),
    "c++": _Native({"float16": "half_t", "bfloat16": "bf16_t"}, {}),
}


def python_module(candidate: Candidate, op: Op, dtypes: Sequence[str]) -> str:
    """Defines :data:`FUNCTION`, which takes the op's inputs, contiguous, and its scalars by name,
    and raises for inputs that the kernel cannot take. ``dtypes`` are those that it was evaluated
    in; native code is of the first. Raises NoSuchForm."""
    if candidate.style == "module":
        raise NoSuchForm("it is a class ModelNew already")
    if candidate.language == "triton":
        return f"{candidate.source.rstrip()}\n\n\n{_python_function(candidate, op, dtypes)}"
    if candidate.language not in _NATIVE:
        raise NoSuchForm(f"{candidate.language} kernels have no form in PyTorch code")
    unit = translation_unit(candidate, op, dtypes[0])
    given = "cpp_sources=[SOURCE]"
    if candidate.language != "c++":
        given = f'cpp_sources={binding_head(op)!r} + ";",\n    cuda_sources=[SOURCE]'
    flags = ',\n    extra_cflags=["-O3", "-fopenmp"]' if candidate.language == "c++" else ""
    return (
        "import torch\nfrom torch.utils.cpp_extension import load_inline\n\n"
        f"SOURCE = {_literal(unit)}\n\n"
        f'extension = load_inline(\n    name="{candidate.entry}_{candidate.digest[:8]}",\n'
        f'    {given},\n    functions=["{BINDING}"]{flags},\n)\n\n\n'
        f"{native_function(op, f'extension.{BINDING}')}"
    )


def translation_unit(candidate: Candidate, op: Op, dtype: str) -> str:
    """The kernel behind its declarations, and a function of tensors. Raises NoSuchForm."""
    signature, native = op.signature, _NATIVE[candidate.language]
    form = CallForm.of(op)
    context, guard = "", []
    if native.stream:
        context = "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n"
        device = f"{form.first}_.device()"
        guard = [
            f'TORCH_CHECK({form.first}_.is_cuda(), "{form.first} is on ", {device}, "; the kernel '
            'is for a GPU");',
            f"const c10::cuda::OptionalCUDAGuard portkern_guard({device});",
        ]
    else:
        guard = [
            f'TORCH_CHECK({form.first}_.is_cpu(), "{form.first} is on ", {form.first}_.device(), '
            '"; the kernel is for the CPU");'
        ]
    return (
        f"#include <torch/extension.h>\n{context}#include <algorithm>\n#include <vector>\n"
        f"{kernel_text(candidate, signature, dtype)}\n\n"
        f"{form.cpp_functions}\n{_binding(candidate, form, dtype, guard)}"
    )


def kernel_text(candidate: Candidate, signature: Signature, dtype: str) -> str:
    """The kernel behind its declarations, with all headers that are not the toolchain's in the
    place of their includes. Raises NoSuchForm."""
    native = _NATIVE[candidate.language]
    if abi.passes_structures(signature):
        raise NoSuchForm(f"it has more than {abi.MOST_POINTERS} tensors")
    tensors = (*signature.inputs, *signature.outputs)
    used = sorted({tensor.resolve(dtype) for tensor in tensors} & native.headers.keys())
    headers = [native.runtime] * bool(native.runtime) + [native.headers[name] for name in used]
    lines = [f"#include <{header}>" for header in headers]
    if candidate.language == "c++":
        harness = candidate.headers.get("harness.h") or own_headers.harness("c++")
        lines = [harness.replace("#pragma once", "")]
    prelude = abi.prelude(
        signature,
        candidate.entry,
        dtype,
        types_of(candidate.language),
        include="\n".join(lines),
        stream=native.stream or None,
    )
    return f"{prelude}\n{inlined(candidate).rstrip()}\n"


def types_of(language: str) -> Mapping[str, str]:
    """The name of each dtype in a native language."""
    return {**_PLAIN, **_NATIVE[language].types}


def binding_head(op: Op) -> str:
    """The function of tensors in C++, up to its body."""
    return f"std::vector<torch::Tensor> {BINDING}({', '.join(_cpp_parameters(op.signature))})"


def _cpp_parameters(signature: Signature) -> list[str]:
    taken = [f"torch::Tensor {tensor.name}_" for tensor in signature.inputs]
    return taken + [f"{_CPP_SCALARS[s.dtype]} {s.name}" for s in signature.scalars]


def schema(op: Op) -> str:
    """The schema of the function of tensors, as torch's operators have one."""
    kinds = {"float32": "float", "int64": "int", "bool": "bool"}
    taken = [f"Tensor {tensor.name}" for tensor in op.signature.inputs]
    taken += [f"{kinds[scalar.dtype]} {scalar.name}" for scalar in op.signature.scalars]
    return f"{BINDING}({', '.join(taken)}) -> Tensor[]"


def _binding(candidate: Candidate, form: CallForm, dtype: str, guard: Sequence[str]) -> str:
    signature, types = form.signature, types_of(candidate.language)
    kinds = {t.name: torch_kind(t.resolve(dtype)) for t in signature.inputs}
    lines = [*guard, *form.cpp(kinds)]
    for tensor in signature.outputs:
        kind = torch_kind(tensor.resolve(dtype))
        lines.append(
            f"auto {tensor.name}_ = torch::empty({form.cpp_sizes(tensor)}, "
            f"{form.first}_.options().dtype({kind}));"
        )
    outputs = ", ".join(f"{tensor.name}_" for tensor in signature.outputs)
    empty = " && ".join(f"{tensor.name}_.numel() == 0" for tensor in signature.outputs)
    pointers = [_pointer(t, "const ", types) for t in signature.inputs]
    pointers += [_pointer(t, "", types) for t in signature.outputs]
    given = [*pointers, *signature.axes]
    given += [f"(float){s.name}" if s.dtype == "float32" else s.name for s in signature.scalars]
    if stream := _NATIVE[candidate.language].stream:
        given.append(f"reinterpret_cast<{stream}>(at::cuda::getCurrentCUDAStream().stream())")
    called = ",\n        ".join(given)
    lines += [
        f"if ({empty}) return {{{outputs}}};",
        f"const int portkern_code = {candidate.entry}(\n        {called});",
        f'TORCH_CHECK(portkern_code == 0, "{candidate.entry} returned ", portkern_code);',
        f"return {{{outputs}}};",
    ]
    head = f"std::vector<torch::Tensor> {BINDING}({', '.join(_cpp_parameters(signature))})"
    return f"{head} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _pointer(tensor: TensorSpec, qualifier: str, types: Mapping[str, str]) -> str:
    name = "scalar_t" if tensor.dtype == "cell" else types[tensor.dtype]
    return f"reinterpret_cast<{qualifier}{name}*>({tensor.name}_.data_ptr())"


def torch_kind(dtype: str) -> str:
    """The dtype as torch's C++ calls it."""
    names = {"float16": "kFloat16", "bfloat16": "kBFloat16", "uint8": "kByte", "int8": "kChar"}
    return f"torch::{names.get(dtype, f'k{dtype.capitalize()}')}"


def native_function(op: Op, called: str) -> str:
    """:data:`FUNCTION` in Python, by way of what the translation unit binds."""
    signature = op.signature
    given = [tensor.name for tensor in signature.inputs]
    given += [scalar.name for scalar in signature.scalars]
    several = "" if len(signature.outputs) > 1 else "[0]"
    return f"{_head(signature)}\n    return {called}({', '.join(given)}){several}\n"


def fake_function(op: Op, dtypes: Sequence[str]) -> str:
    """``fake`` in Python: empty outputs of the right sizes for inputs that the kernel takes, which
    raises for others, and the functions that it needs. Raises NoSuchForm."""
    form, signature = CallForm.of(op), op.signature
    inputs = [tensor.name for tensor in signature.inputs]
    given = ", ".join([*inputs, *(scalar.name for scalar in signature.scalars)])
    outputs = ", ".join(_empty(form, tensor, flat=False) for tensor in signature.outputs)
    return (
        f"{form.python(dtypes)}\n\ndef fake({given}):\n"
        f"    {', '.join([LEAD, *signature.axes])} = {LENGTHS}({given})\n"
        f"    {CHECKED}({', '.join(inputs)})\n    return [{outputs}]\n"
    )


def _python_function(candidate: Candidate, op: Op, dtypes: Sequence[str]) -> str:
    """Makes outputs for a kernel that is handed them, and gives it what has leading dimensions with
    one for all of them."""
    form, signature = CallForm.of(op), op.signature
    inputs = [tensor.name for tensor in signature.inputs]
    scalars = [f"{s.name}={s.name}" for s in signature.scalars]
    outputs = [tensor.name for tensor in signature.outputs]
    given = ", ".join([*inputs, *(scalar.name for scalar in signature.scalars)])
    body = [
        f"{', '.join([LEAD, *signature.axes])} = {LENGTHS}({given})",
        f"{CHECKED}({', '.join(inputs)})",
        *form.python_indices(),
    ]
    flat = [
        f"{t.name}.view({form.python_sizes(t, flat=True)})" if form.leads(t) else t.name
        for t in signature.inputs
    ]
    made = [f"{t.name} = {_empty(form, t, flat=True)}" for t in signature.outputs]
    deep = [
        f"{t.name}.view({form.python_sizes(t)})" if form.leads(t) else t.name
        for t in signature.outputs
    ]
    if candidate.style == "return":
        body.append(f"{', '.join(outputs)} = portkern_entry({', '.join([*flat, *scalars])})")
    else:
        empty = " and ".join(f"{name}.numel() == 0" for name in outputs)
        body += [*made, f"if not ({empty}):"]
        body.append(f"    portkern_entry({', '.join([*flat, *outputs, *scalars])})")
    body.append(f"return {', '.join(deep)}")
    return (
        f"import torch\n\nportkern_entry = {candidate.entry}\n\n\n{form.python(dtypes)}\n\n"
        f"{_head(signature)}\n" + "\n".join(f"    {line}" for line in body) + "\n"
    )


def _empty(form: CallForm, tensor: TensorSpec, *, flat: bool) -> str:
    """An output in Python."""
    kind = f"torch.{tensor.dtype}"
    if tensor.dtype == CELL:
        of_cell = next((t.name for t in form.signature.inputs if t.dtype == CELL), form.first)
        kind = f"{of_cell}.dtype"
    sizes = form.python_sizes(tensor, flat=flat)
    return f"torch.empty({sizes}, device={form.first}.device, dtype={kind})"


def _head(signature: Signature) -> str:
    taken = [tensor.name for tensor in signature.inputs]
    taken += [f"{s.name}={s.default!r}" for s in signature.scalars]
    return f"def {FUNCTION}({', '.join(taken)}):"


def _literal(text: str) -> str:
    if '"""' in text or text.endswith(("\\", '"')):
        return repr(text)
    return f'r"""{text}"""'


def bound_run(op: Op) -> str:
    """``run`` for Python, which takes the op's inputs, of any strides, and scalars."""
    signature = op.signature
    given = [f"{tensor.name}_.contiguous()" for tensor in signature.inputs]
    given += [scalar.name for scalar in signature.scalars]
    several = len(signature.outputs) > 1
    kind, which = ("std::vector<torch::Tensor>", "") if several else ("torch::Tensor", "[0]")
    return (
        f"{kind} run({', '.join(_cpp_parameters(signature))}) {{\n"
        f"    return {BINDING}({', '.join(given)}){which};\n}}\n\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n    m.def("run", &run, "run");\n}\n'
    )
