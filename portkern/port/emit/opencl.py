"""A kernel as OpenCL C, with a Python function that launches it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.emit.context import EmitContext, Item, expanded
from portkern.port.emit.emitted import Emitted, EmittedInstance, instances, refused, without_prints
from portkern.port.emit.limits import RefusedEmission
from portkern.port.emit.opencl_function import CannotEmit, Functions, is_integer
from portkern.port.emit.opencl_names import macros, respelled
from portkern.port.proof.texts import SourceTexts


def emit(
    kernel: SourceKernel, texts: SourceTexts, context: EmitContext, given: Sequence[Sequence[str]]
) -> Emitted | RefusedEmission:
    """``given`` are arguments of its template, each list of which makes a function."""
    text = texts.own.text[kernel.start : kernel.stop]
    items = context.needed(text)
    problem = refused(kernel, text, items)
    if problem is not None:
        return problem
    wanted = instances(kernel, given)
    if not wanted:
        return RefusedEmission("a template that nothing here launches", kernel.line)
    text, left_out = without_prints(text)
    functions = Functions(items, texts.aliases)
    try:
        kernels = [functions.kernel(kernel, expanded(text, items), instance) for instance in wanted]
    except CannotEmit as error:
        return RefusedEmission(error.reason, error.line)
    whole = _file(kernel, items, functions, kernels, texts)
    return Emitted(kernel, whole, wanted, left_out)


def _file(
    kernel: SourceKernel,
    items: Sequence[Item],
    functions: Functions,
    kernels: Sequence[str],
    texts: SourceTexts,
) -> str:
    context = [_item(item, texts) for item in items if item.kind != "function"]
    code = "\n\n".join([*functions.atomics.values(), *functions.helpers.values(), *kernels])
    before = "\n".join(filter(None, context))
    doubles = re.search(r"\bdouble\b", code + before) is not None
    return "\n".join(
        [
            f"// {kernel.name} of {texts.source.path.name}, line {kernel.line}, in OpenCL C.",
            *(["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if doubles else []),
            *macros(code + before),
            *([before] if before else []),
            "",
            code,
        ]
    )


def _item(item: Item, texts: SourceTexts) -> str:
    if item.kind == "macro":
        return respelled(item.text)
    name = next(iter(item.names), "")
    if item.kind == "type":
        alias = re.match(r"using\s+(\w+)\s*=\s*(.*);", item.text, re.DOTALL)
        if alias:
            return respelled(f"typedef {alias[2]} {alias[1]};")
        if re.match(r"(struct|enum|union)\b", item.text) and "{" in item.text:
            word = item.text.split()[0]
            body = item.text[item.text.index("{") : item.text.rindex("}") + 1]
            if word == "enum" and "enum class" not in item.text:
                return respelled(item.text)
            return respelled(f"typedef {word} {body} {name};")
        return respelled(item.text)
    declared = re.sub(r"\b(static|constexpr|const|__constant__|__device__)\b\s*", "", item.text)
    head, mark, value = declared.partition("=")
    if mark and "[" not in head and is_integer(head.rsplit(None, 1)[0].strip()):
        return respelled(f"enum {{ {name} = {value.rstrip(' ;')} }};")
    return respelled(f"__constant {declared}")


def launcher(emitted: Emitted) -> str:
    """The Python module beside the ``.cl`` that launches any of its instances."""
    name = emitted.kernel.name
    functions = "\n\n".join(_launcher(emitted, instance) for instance in emitted.instances)
    return f'''"""Launches {name} of {name}.cl: buffers are pyopencl.Buffer."""

from pathlib import Path

import numpy
import pyopencl

SOURCE = Path(__file__).with_suffix(".cl").read_text(encoding="utf-8")
_PROGRAMS = {{}}


def _kernel(queue, name):
    if queue.context not in _PROGRAMS:
        _PROGRAMS[queue.context] = pyopencl.Program(queue.context, SOURCE).build()
    return pyopencl.Kernel(_PROGRAMS[queue.context], name)


{functions}'''


_NUMPY = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "uint": "uint32",
    "char": "int8",
    "uchar": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "long": "int64",
    "ulong": "uint64",
    "bool": "uint8",
    "size_t": "uint64",
}


def _launcher(emitted: Emitted, instance: EmittedInstance) -> str:
    kernel = emitted.kernel
    bound = dict(zip((p.name for p in kernel.template), instance.template, strict=False))
    names = [parameter.name for parameter in kernel.parameters]
    given = []
    for parameter in kernel.parameters:
        type_ = respelled(re.sub(r"\bconst\b", "", parameter.type)).strip()
        numpy_type = _NUMPY.get(respelled(bound.get(type_, type_)))
        by_value = numpy_type and "*" not in parameter.type and "[" not in parameter.type
        given.append(f"numpy.{numpy_type}({parameter.name})" if by_value else parameter.name)
    if re.search(r"__local [^;{]*\*\s*\w+\)\s*\{", _head(emitted.text, instance.name)):
        given.append("pyopencl.LocalMemory(max(shared, 1))")
    return f'''def {instance.name}(queue, {", ".join([*names, "*", "grid", "block", "shared=0"])}):
    size = tuple(blocks * threads for blocks, threads in zip(grid, block))
    kernel = _kernel(queue, "{instance.name}")
    return kernel(queue, size, tuple(block), {", ".join(given)})
'''


def _head(text: str, name: str) -> str:
    match = re.search(rf"__kernel void {name}\(.*?\{{", text, re.DOTALL)
    return match[0] if match else ""
