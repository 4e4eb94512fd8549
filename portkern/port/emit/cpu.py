"""A kernel as C++ with OpenMP: blocks in parallel, the threads of a block one after the other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from portkern.cuda_source.syntax import Parameter, SourceKernel
from portkern.port.emit.context import EmitContext, Item
from portkern.port.emit.emitted import Emitted, EmittedInstance, instances, refused, without_prints
from portkern.port.emit.limits import RefusedEmission
from portkern.port.emit.phases import BARRIER, Cut, cut, has_barrier, shared_array
from portkern.port.emit.rewriting import Rewriting, walk
from portkern.port.proof.texts import SourceTexts

if TYPE_CHECKING:
    from tree_sitter import Node

HEADER = "portkern_cpu.h"
_SPACES = re.compile(
    r"\b(__device__|__host__|__forceinline__|__noinline__|__constant__|__global__|inline|static)"
    r"\b[ \t]*"
)
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)\s*")
_RESTRICT = re.compile(r"\b(__restrict__|__restrict|restrict)\b")


def template(name: str = HEADER) -> str:
    return (resources.files(__package__) / "templates" / name).read_text("utf-8")


def emit(
    kernel: SourceKernel, texts: SourceTexts, context: EmitContext, given: Sequence[Sequence[str]]
) -> Emitted | RefusedEmission:
    """``given`` are arguments of its template, each list of which makes a function."""
    text = texts.own.text[kernel.start : kernel.stop]
    items = context.needed(text)
    problem = refused(kernel, text, items)
    if problem is not None:
        return problem
    barrier = next((i for i in items if i.kind != "type" and BARRIER in i.text), None)
    if barrier is not None:
        return RefusedEmission(
            f"a barrier in '{next(iter(barrier.names))}', not in the kernel", barrier.line
        )
    text, left_out = without_prints(text)
    wanted = instances(kernel, given)
    if not wanted:
        return RefusedEmission("a template that nothing here launches", kernel.line)
    source = Rewriting(text)
    body = next(walk(source.root, "compound_statement"), None)
    if body is None:
        return RefusedEmission("the grammar does not read it", kernel.line)
    changed = _changed(kernel, source)
    if has_barrier(body):
        declarations = [_RESTRICT.sub("", _parameter(p.type, p.name)) for p in changed]
        phases = cut(source, body, declarations)
        if isinstance(phases, RefusedEmission):
            return RefusedEmission(phases.reason, kernel.line + phases.line)
        code = _phased(phases)
    else:
        code = _plain(source, body, changed)
    own = {parameter.name for parameter in changed}
    parameters = ", ".join(
        _parameter(p.type, f"given_{p.name}" if p.name in own else p.name)
        for p in kernel.parameters
    )
    text = _file(kernel, items, wanted, code, parameters, texts)
    return Emitted(kernel, text, wanted, left_out)


def _changed(kernel: SourceKernel, source: Rewriting) -> list[Parameter]:
    """Parameters that a thread assigns to: each thread has its own."""
    assigned = {
        source.text(node.child_by_field_name("left") or node.child_by_field_name("argument"))
        for node in walk(source.root, "assignment_expression", "update_expression")
    }
    return [parameter for parameter in kernel.parameters if parameter.name in assigned]


def host_text(text: str) -> str:
    """A declaration for the device as one for the host."""
    plain = _RESTRICT.sub("__restrict__", _SPACES.sub("", _BOUNDS.sub("", text)))
    return re.sub(r"^[ \t]*#pragma unroll.*\n", "", plain, flags=re.MULTILINE)


def _item(item: Item) -> str:
    text = host_text(item.text)
    if item.kind == "function":
        template, _, rest = text.partition("\n") if text.startswith("template") else ("", "", text)
        if template and ">" not in template:
            return text
        return f"{template}\nstatic inline {rest.lstrip()}" if rest else text
    return f"static {text}" if item.kind == "constant" else text


def _plain(source: Rewriting, body: Node, changed: Sequence[Parameter]) -> str:
    """Shared arrays of a kernel without barriers belong to the block all the same."""
    shared = []
    for declaration in walk(body, "declaration"):
        text = source.text(declaration)
        if "__shared__" in text.split("=")[0]:
            shared.append(shared_array(text))
            source.replace(declaration, "")
    text = source.now(body)
    own = [f"auto {parameter.name} = given_{parameter.name};" for parameter in changed]
    inner = "\n".join([*own, textwrap.dedent(host_text(text[1:-1]).strip("\n"))])
    head = "each_thread(blockDim, [&](const uint3 threadIdx) {"
    return "\n".join([*shared, head, textwrap.indent(inner, "    "), "});"])


def _phased(phases: Cut) -> str:
    fields = "".join(f"    {declaration};\n" for declaration in phases.fields.values())
    thread = f"struct Thread {{\n    uint3 threadIdx;\n    bool returned;\n{fields}}};"
    lines = [*phases.block, thread, "Block<Thread> threads(blockDim);", *phases.lines]
    return host_text("\n".join(lines))


def _file(
    kernel: SourceKernel,
    items: Sequence[Item],
    wanted: Sequence[EmittedInstance],
    code: str,
    parameters: str,
    texts: SourceTexts,
) -> str:
    template = ", ".join(f"{p.type} {p.name}" for p in kernel.template)
    dynamic = "dynamic_shared" in code
    shared = "std::vector<double> dynamic_shared((shared + 7) / 8);\n" if dynamic else ""
    block = textwrap.indent(f"const uint3 blockIdx{{bx, by, bz}};\n{shared}{code}", " " * 16)
    head = f"template <{template}>\n" if template else ""
    context = "\n\n".join(_item(item) for item in items if item.text)
    return "\n".join(
        [
            f"// {kernel.name} of {texts.source.path.name}, line {kernel.line}, for CPUs.",
            "// Build: g++ -O3 -fopenmp -shared -fPIC -std=c++17",
            f'#include "{HEADER}"\n',
            *([context + "\n"] if context else []),
            f"{head}static void run_{kernel.name}({parameters}, const dim3 gridDim, "
            "const dim3 blockDim, const size_t shared) {",
            "    (void)shared;",
            "    #pragma omp parallel for collapse(3) schedule(static)",
            "    for (unsigned bz = 0; bz < gridDim.z; ++bz)",
            "        for (unsigned by = 0; by < gridDim.y; ++by)",
            "            for (unsigned bx = 0; bx < gridDim.x; ++bx) {",
            block,
            "            }",
            "}\n",
            *(_function(kernel, instance) for instance in wanted),
        ]
    )


def _parameter(type_: str, name: str) -> str:
    plain = _RESTRICT.sub("__restrict__", type_)
    if plain.rstrip().endswith("]"):
        head, _, tail = plain.partition("[")
        return f"{head.strip()} {name}[{tail}"
    return f"{plain} {name}"


def _function(kernel: SourceKernel, instance: EmittedInstance) -> str:
    bound = dict(zip((p.name for p in kernel.template), instance.template, strict=False))

    def filled(type_: str) -> str:
        return re.sub(r"\w+", lambda word: bound.get(word[0], word[0]), type_)

    parameters = ", ".join(_parameter(filled(p.type), p.name) for p in kernel.parameters)
    given = ", ".join([*(p.name for p in kernel.parameters), "grid", "block", "shared"])
    template = f"<{', '.join(instance.template)}>" if instance.template else ""
    return (
        f'extern "C" void {instance.name}({parameters}, dim3 grid, dim3 block, size_t shared) {{\n'
        f"    run_{kernel.name}{template}({given});\n}}\n"
    )
