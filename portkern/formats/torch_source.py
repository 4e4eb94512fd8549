"""A kernel as PyTorch code: a Python module with a function of tensors that returns its outputs,
and its translation unit with bindings where it is C++, CUDA or HIP."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.formats.exported import NoSuchForm
from portkern.formats.inlined import inlined
from portkern.spec import abi
from portkern.spec.candidate import Candidate
from portkern.spec.expression import Expression
from portkern.spec.op import Op, Signature, TensorSpec

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


def python_module(candidate: Candidate, op: Op, dtype: str) -> str:
    """Defines :data:`FUNCTION`, which takes the op's inputs, contiguous, and its scalars by name.
    Raises NoSuchForm."""
    if candidate.style == "module":
        raise NoSuchForm("it is a class ModelNew already")
    if candidate.language == "triton":
        return f"{candidate.source.rstrip()}\n\n\n{_python_function(candidate, op)}"
    if candidate.language not in _NATIVE:
        raise NoSuchForm(f"{candidate.language} kernels have no form in PyTorch code")
    unit = translation_unit(candidate, op, dtype)
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
    if candidate.companions:
        raise NoSuchForm("it is built with files of its own, and is no single text")
    if abi.passes_structures(signature):
        raise NoSuchForm(f"it has more than {abi.MOST_POINTERS} tensors")
    tensors = (*signature.inputs, *signature.outputs)
    types = {**_PLAIN, **native.types}
    used = sorted({tensor.resolve(dtype) for tensor in tensors} & native.headers.keys())
    headers = [native.runtime] * bool(native.runtime) + [native.headers[name] for name in used]
    lines = [f"#include <{header}>" for header in headers]
    stream = native.stream or None
    if candidate.language == "c++":
        lines = [_own_header("cpu", "harness.h")]
    prelude = abi.prelude(
        signature, candidate.entry, dtype, types, include="\n".join(lines), stream=stream
    )
    context = "#include <ATen/cuda/CUDAContext.h>\n" if native.stream else ""
    own = inlined(candidate.source, candidate.backend)
    return (
        f"#include <torch/extension.h>\n{context}#include <vector>\n{prelude}\n{own.rstrip()}\n\n"
        f"{_binding(candidate, op, dtype, types, bool(native.stream))}"
    )


def binding_head(op: Op) -> str:
    """The function of tensors in C++, up to its body."""
    signature = op.signature
    taken = [f"torch::Tensor {tensor.name}_" for tensor in signature.inputs]
    taken += [f"int64_t {axis}" for axis in signature.axes]
    taken += [f"{_CPP_SCALARS[s.dtype]} {s.name}" for s in signature.scalars]
    return f"std::vector<torch::Tensor> {BINDING}({', '.join(taken)})"


def _binding(
    candidate: Candidate, op: Op, dtype: str, types: Mapping[str, str], stream: bool
) -> str:
    signature, lines = op.signature, []
    for tensor in signature.inputs:
        kind = _torch_kind(tensor.resolve(dtype))
        lines.append(
            f"    TORCH_CHECK({tensor.name}_.scalar_type() == {kind} && "
            f'{tensor.name}_.is_contiguous(), "{tensor.name} is to be contiguous and of '
            f'{tensor.resolve(dtype)}");'
        )
    like = f"{signature.inputs[0].name}_.options()"
    for tensor in signature.outputs:
        sizes = ", ".join(map(str, tensor.shape))
        kind = _torch_kind(tensor.resolve(dtype))
        lines.append(f"    auto {tensor.name}_ = torch::empty({{{sizes}}}, {like}.dtype({kind}));")
    pointers = [_pointer(t, "const ", types) for t in signature.inputs]
    pointers += [_pointer(t, "", types) for t in signature.outputs]
    given = [*pointers, *signature.axes]
    given += [f"(float){s.name}" if s.dtype == "float32" else s.name for s in signature.scalars]
    if stream:
        kind = _NATIVE[candidate.language].stream
        given.append(f"reinterpret_cast<{kind}>(at::cuda::getCurrentCUDAStream().stream())")
    called = ",\n        ".join(given)
    outputs = ", ".join(f"{tensor.name}_" for tensor in signature.outputs)
    return (
        f"{binding_head(op)} {{\n" + "\n".join(lines) + "\n"
        f"    const int portkern_code = {candidate.entry}(\n        {called});\n"
        f'    TORCH_CHECK(portkern_code == 0, "{candidate.entry} returned ", portkern_code);\n'
        f"    return {{{outputs}}};\n}}\n"
    )


def _pointer(tensor: TensorSpec, qualifier: str, types: Mapping[str, str]) -> str:
    name = "scalar_t" if tensor.dtype == "cell" else types[tensor.dtype]
    return f"reinterpret_cast<{qualifier}{name}*>({tensor.name}_.data_ptr())"


def _torch_kind(dtype: str) -> str:
    names = {"float16": "kFloat16", "bfloat16": "kBFloat16", "uint8": "kByte", "int8": "kChar"}
    return f"torch::{names.get(dtype, f'k{dtype.capitalize()}')}"


def native_function(op: Op, called: str) -> str:
    """:data:`FUNCTION` in Python, by way of what the translation unit binds. Raises NoSuchForm."""
    signature = op.signature
    given = [tensor.name for tensor in signature.inputs]
    given += [*signature.axes, *(scalar.name for scalar in signature.scalars)]
    several = "" if len(signature.outputs) > 1 else "[0]"
    body = [f"    {axis} = {length}" for axis, length in _lengths(op).items()]
    body.append(f"    return {called}({', '.join(given)}){several}")
    return f"{_head(signature)}\n" + "\n".join(body) + "\n"


def _python_function(candidate: Candidate, op: Op) -> str:
    """Makes outputs for a kernel that is handed them."""
    signature = op.signature
    inputs = [tensor.name for tensor in signature.inputs]
    scalars = [f"{s.name}={s.name}" for s in signature.scalars]
    head = f"import torch\n\nportkern_entry = {candidate.entry}\n\n\n{_head(signature)}\n"
    if candidate.style == "return":
        return f"{head}    return portkern_entry({', '.join([*inputs, *scalars])})\n"
    lengths, body = _lengths(op), []
    used = {axis for tensor in signature.outputs for axis in tensor.shape}
    needed = {name for axis in used for name in _names(lengths.get(str(axis), ""))} | used
    body += [f"    {axis} = {length}" for axis, length in lengths.items() if axis in needed]
    like = inputs[0]
    for tensor in signature.outputs:
        sizes = ", ".join(map(str, tensor.shape)) + "," * (len(tensor.shape) == 1)
        kind = f"{like}.dtype" if tensor.dtype == "cell" else f"torch.{tensor.dtype}"
        if tensor.dtype == "cell":
            kind = f"{_of_cell(signature)}.dtype"
        body.append(
            f"    {tensor.name} = torch.empty(({sizes}), device={like}.device, dtype={kind})"
        )
    outputs = [tensor.name for tensor in signature.outputs]
    body.append(f"    portkern_entry({', '.join([*inputs, *outputs, *scalars])})")
    body.append(f"    return {', '.join(outputs)}")
    return head + "\n".join(body) + "\n"


def _of_cell(signature: Signature) -> str:
    return next((t.name for t in signature.inputs if t.dtype == "cell"), signature.inputs[0].name)


def _head(signature: Signature) -> str:
    taken = [tensor.name for tensor in signature.inputs]
    taken += [f"{s.name}={s.default!r}" for s in signature.scalars]
    return f"def {FUNCTION}({', '.join(taken)}):"


def _lengths(op: Op) -> dict[str, str]:
    """What each axis is as long as, in Python. Raises NoSuchForm."""
    known: dict[str, str] = {}
    for tensor in op.signature.inputs:
        for place, axis in enumerate(tensor.shape):
            if isinstance(axis, str):
                known.setdefault(axis, f"{tensor.name}.shape[{place}]")
    parts: Sequence[tuple[str, Expression]] = getattr(op.derived, "parts", ())
    known |= {axis: said.text for axis, said in parts if axis not in known}
    for axis in op.signature.axes:
        if axis not in known:
            raise NoSuchForm(f"the length of its axis {axis!r} follows by a rule that is no text")
    return known


def _names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _own_header(backend: str, name: str) -> str:
    file = importlib.resources.files(f"portkern.backends.{backend}") / name
    return file.read_text(encoding="utf-8").replace("#pragma once", "")


def _literal(text: str) -> str:
    if '"""' in text or text.endswith(("\\", '"')):
        return repr(text)
    return f'r"""{text}"""'


def bound_run(op: Op) -> str:
    """``run`` for Python, which takes the op's inputs and scalars: it finds out the lengths of axes
    itself. Raises NoSuchForm for lengths that follow from others."""
    signature = op.signature
    taken = [f"torch::Tensor {tensor.name}_" for tensor in signature.inputs]
    taken += [f"{_CPP_SCALARS[s.dtype]} {s.name}" for s in signature.scalars]
    where: dict[str | int, str] = {}
    for tensor in signature.inputs:
        for place, axis in enumerate(tensor.shape):
            where.setdefault(axis, f"{tensor.name}_.size({place})")
    for axis in signature.axes:
        if axis not in where:
            raise NoSuchForm(f"the length of its axis {axis!r} follows from others")
    given = [f"{tensor.name}_.contiguous()" for tensor in signature.inputs]
    given += [where[axis] for axis in signature.axes]
    given += [scalar.name for scalar in signature.scalars]
    several = len(signature.outputs) > 1
    kind, which = ("std::vector<torch::Tensor>", "") if several else ("torch::Tensor", "[0]")
    return (
        f"{kind} run({', '.join(taken)}) {{\n"
        f"    return {BINDING}({', '.join(given)}){which};\n}}\n\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n    m.def("run", &run, "run");\n}\n'
    )
