"""Turns CUDA and HIP source into C++ that the headers of ``include/`` make a program of.

Only what no header can express is rewritten: launches, ``__shared__``, inline assembly,
``__launch_bounds__`` and a few attributes. All else is copied as it is, and every token stays on
its line. Nothing is preprocessed, so what is not modelled becomes code that does not compile
where it is used; see :mod:`portkern.simt.translate.unmodelled`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.cuda_source.dependent import unsaid
from portkern.cuda_source.launch_syntax import opens
from portkern.cuda_source.lexer import ELSES, IFS, Directive, Kind, SourceCode
from portkern.cuda_source.names import declared_names
from portkern.errors import ConfigError
from portkern.simt.diagnostics import CODES, Diagnostic
from portkern.simt.translate.asm_macros import with_uses_expanded
from portkern.simt.translate.asm_statement import Alternative, Asm, RefusedStatement, literal, parse
from portkern.simt.translate.edit import SourceDraft, pragma_error, quotable
from portkern.simt.translate.hand_over import hand_over
from portkern.simt.translate.includes import is_device_code, normal
from portkern.simt.translate.inline_ptx import translate
from portkern.simt.translate.launches import rewrite_chevrons, rewrite_ggl
from portkern.simt.translate.reconvergence import (
    STATEMENTS,
    WAITS,
    rewrite_function,
    rewrite_statement,
)
from portkern.simt.translate.shared_memory import rewrite_shared
from portkern.simt.translate.shuffle_loops import rewrite_shuffles
from portkern.simt.translate.survey import ASM, Survey, World
from portkern.spec.foreign_text import content
from portkern.toolchain import source_tree
from portkern.toolchain.source_tree import SourceTree

INCLUDE = Path(__file__).parents[1] / "include"
#: Files that include each other deeper than this are a mistake.
DEEPEST_INCLUDE = 50
#: Tokens of a typedef on either side of its vector attribute.
LONGEST_ALIAS = 200


@dataclass(frozen=True)
class Rewritten:
    """``text`` has one line more than the source, the first: ``#line 1``."""

    text: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class RewrittenTree:
    """A program's files, rewritten: compile ``main`` with ``includes`` searched in order."""

    main: Path
    includes: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[Path, ...]  # the files that were read, ``main``'s first


def rewrite(source: str, name: str, *, library: bool = True) -> Rewritten:
    """Rewrite one file, called ``name`` in what compilers say. A library has no main().

    ``found`` are the defects that no ``#if`` can take back; what one can, the compiler reports.
    """
    return _rewrite(source, name, World(), library=library, include=lambda quoted, target: False)


#: Whether the include of this name, in quotes or not, is a file of the user's.
_Include = Callable[[bool, str], bool]


def _rewrite(
    source: str, name: str, world: World, *, library: bool, include: _Include
) -> Rewritten:
    code = SourceCode(with_uses_expanded(source.removeprefix("\ufeff")))
    draft = SourceDraft(code, name, world)
    world.waits |= WAITS.search(code.source) is not None
    survey = Survey(code, world, _WATCHED, lambda d: _include(draft, d, include))
    draft.places = survey.places
    draft.constant = _constant_bodies(draft, survey)
    done = -1
    for i in survey.places:
        if i >= done:
            done = max(done, _construct(draft, i, library))
    for function in survey.functions:
        rewrite_function(draft, function)
    _share(draft, survey)
    _say_kinds(draft)
    return Rewritten(f"#line 1 {literal(name)}\n{draft.render()}", tuple(draft.diagnostics))


def _constant_bodies(draft: SourceDraft, survey: Survey) -> list[range]:
    """The bodies of constexpr functions, which have no variables that do something as they end."""
    code, bodies = draft.code, list[range]()
    for function in survey.functions:
        head = code.outside_directives(function.head, function.body)
        if "constexpr" in set().union(*map(draft.world.stands_for, head)):
            bodies.append(range(function.body, code.partner[function.body]))
    return bodies


# ---- constructs ---------------------------------------------------------------------------

#: Host functions that take a kernel as a pointer to void: which argument it is.
_KERNEL_ARGUMENT = {
    "cudaLaunchKernel": 0,
    "cudaLaunchCooperativeKernel": 0,
    "cudaLaunchKernelExC": 1,
    "cudaFuncSetAttribute": 0,
    "cudaFuncSetCacheConfig": 0,
    "cudaFuncSetSharedMemConfig": 0,
    "cudaFuncGetAttributes": 1,
    "cudaFuncGetName": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1,
    "cudaOccupancyAvailableDynamicSMemPerBlock": 1,
    "cudaOccupancyMaxActiveClusters": 1,
    "cudaOccupancyMaxPotentialBlockSize": 2,
    "cudaOccupancyMaxPotentialBlockSizeWithFlags": 2,
    "cudaOccupancyMaxPotentialBlockSizeVariableSMem": 2,
    "cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags": 2,
    "cudaOccupancyMaxPotentialClusterSize": 1,
}
_KERNEL_ARGUMENT |= {f"hip{k.removeprefix('cuda')}": n for k, n in _KERNEL_ARGUMENT.items()}
_VECTOR = frozenset(["ext_vector_type", "__ext_vector_type__"])
#: CUDA's, and those of our <portkern/portable.h> and PyTorch's headers, which are not read here.
_BOUNDS = frozenset(
    [
        "__launch_bounds__",
        "PORTABLE_LAUNCH_BOUNDS",
        "C10_LAUNCH_BOUNDS_1",
        "C10_LAUNCH_BOUNDS_2",
    ]
)
_WATCHED = (
    ASM
    | _VECTOR
    | _BOUNDS
    | STATEMENTS
    | set(_KERNEL_ARGUMENT)
    | {
        "<<<",
        "<",
        "<<",
        "__shared__",
        "__constant__",
        "__global__",
        "__noinline__",
        "__cluster_dims__",
        "main",
        "hipLaunchKernelGGL",
        "func",
        "clock",
    }
)


def _construct(draft: SourceDraft, i: int, library: bool) -> int:
    """Rewrite what stands at ``i``, if anything; tokens before the result are dealt with."""
    text = draft.code.text[i]
    words = draft.world.stands_for(text)
    if text in ("<<<", "<<", "<"):
        if opens(draft.code, i):
            rewrite_chevrons(draft, i)
    elif "__shared__" in words:
        return rewrite_shared(draft, i)
    elif "__constant__" in words:
        _constant(draft, i, words)
    elif "__global__" in words:
        if draft.world.objects:
            hand_over(draft, i)
    elif words & ASM:
        return _asm(draft, i)
    elif text in STATEMENTS:
        rewrite_statement(draft, i)
        if text == "for":
            rewrite_shuffles(draft, i)
    elif text in _BOUNDS:
        _launch_bounds(draft, i)
    elif "__launch_bounds__" in words:
        _named_bounds(draft, i)
    elif text == "__noinline__":
        if draft.code.text[i - 1] not in ("(", ","):  # not in __attribute__((__noinline__))
            draft.replace(i, i + 1, "__attribute__((noinline))")
    elif text == "hipLaunchKernelGGL":
        rewrite_ggl(draft, i)
    elif text in _KERNEL_ARGUMENT:
        _typed_kernel(draft, i)
    elif text == "clock":
        _clock(draft, i)
    elif text == "func":
        if draft.code.text[i - 1] in (".", "->") and draft.code.text[i + 1] == "=":
            _without_void_pointer(draft, i + 2, draft.places[i].last)
    elif text in _VECTOR:
        _ext_vector(draft, i)
    elif text == "__cluster_dims__":
        draft.report(i, "SX009", f"{CODES['SX009'].title}: {text}")
    elif text == "main" and library:
        _main(draft, i)
    return i + 1


def _constant(draft: SourceDraft, i: int, words: frozenset[str]) -> None:
    """The header's macro gives a variable a section, which only its definition may name."""
    code, place = draft.code, draft.places[i]
    first = last = i
    while first > code.earliest(i) and code.text[first - 1] not in (";", "{", "}"):
        first -= 1
    while last < place.last and code.text[last] not in (";", "{", "}", "="):
        last += 1
    around = words.union(code.outside_directives(first, last))
    automatic = place.scope.function and "static" not in around
    if automatic or "extern" in around or place.scope.kind == "class":
        draft.replace(i, i + 1, " ".join(sorted(words - {"__constant__"})))


def _main(draft: SourceDraft, i: int) -> None:
    code, place = draft.code, draft.places[i]
    if place.scope.kind != "namespace" or code.text[i + 1] != "(" or code.partner[i + 1] < 0:
        return
    if code.text[code.partner[i + 1] + 1] in ("{", "->", "try", "noexcept"):
        draft.report(i, "SX008", "main() in a library")


def _launch_bounds(draft: SourceDraft, i: int) -> None:
    """Take the limit out of the declaration and make it the first statement of the body."""
    code, last = draft.code, draft.places[i].last
    closing = code.partner[i + 1] if code.text[i + 1] == "(" else -1
    if closing < 0:
        return
    body = _body_after(code, closing + 1, last)
    if body >= last or code.text[body] == "}":
        return  # the header's macro drops it: no body is seen
    draft.replace(i, closing + 1, "")
    if code.text[body] == "{":
        _state_bounds(draft, i, body, code.flat(i + 2, closing))


def _named_bounds(draft: SourceDraft, i: int) -> None:
    """The same of a macro that stands for bounds. It stays, for the header's macro drops them; of
    several definitions it is not known which is in force."""
    code, last = draft.code, draft.places[i].last
    definitions = draft.world.macros.get(code.text[i], [])
    if len(definitions) != 1 or draft.places[i].macro is not None:
        return
    texts = [token.text for token in definitions[0].body]
    body = _body_after(code, i + 1, last)
    if "__launch_bounds__" not in texts or body >= last or code.text[body] != "{":
        return
    first = texts.index("__launch_bounds__") + 2
    depth, end = 1, first
    while end < len(texts) and depth:
        depth += (texts[end] == "(") - (texts[end] == ")")
        end += 1
    _state_bounds(draft, i, body, " ".join(texts[first : end - 1]))


def _body_after(code: SourceCode, i: int, last: int) -> int:
    while i < last and code.text[i] not in ("{", ";", "}"):
        i = max(i, code.partner[i]) + 1
    return i


def _state_bounds(draft: SourceDraft, i: int, body: int, limits: str) -> None:
    code, statement = draft.code, f"::simt::launch_bounds({limits});"
    if draft.places[i].macro is None and code.has_directive(i, body):
        draft.insert_lines_after(body, _chosen(code, i, body, statement))
    else:
        draft.insert_after(body, f" {statement}")


def _chosen(code: SourceCode, i: int, body: int, statement: str) -> list[str]:
    """``statement`` under the conditions that token ``i`` of a head is under, where those begin and
    end in the head of ``body``."""
    head = i
    while head > 0 and code.text[head - 1] not in (";", "{", "}"):
        directive = code.directive(head - 1)
        head = directive.begin if directive is not None else head - 1
    inside = [d for d in code.directives if head <= d.begin < body]
    kept: set[int] = set()
    groups: list[list[int]] = []
    for n, d in enumerate(inside):
        if d.name in IFS:
            groups.append([n])
        elif groups and d.name in ELSES:
            groups[-1].append(n)
        elif groups and d.name == "endif":
            kept.update((*groups.pop(), n))
    lines = [(d.begin, code.flat(d.begin, d.end)) for n, d in enumerate(inside) if n in kept]
    return [text for _, text in sorted([*lines, (i, statement)])]


def _clock(draft: SourceDraft, i: int) -> None:
    """A kernel's clock() ticks as clock64() does; the host's counts its own processor time."""
    text = draft.code.text
    called = text[i + 1 : i + 3] == ["(", ")"] and text[i - 1] not in (".", "->", "::")
    if called and draft.places[i].scope.device:
        draft.replace(i, i + 1, "(clock_t)clock64")


def _typed_kernel(draft: SourceDraft, i: int) -> None:
    """Drop a cast of the kernel to a pointer to void, so that its type is known."""
    code = draft.code
    opening = i + 1
    if code.text[opening] == "<":
        opening = code.close_angle(opening, draft.places[i].last) + 1
    if code.text[opening] != "(" or code.partner[opening] < 0:
        return
    arguments = code.split(opening + 1, code.partner[opening])
    at = _KERNEL_ARGUMENT[code.text[i]]
    if at >= len(arguments):
        return
    _without_void_pointer(draft, *arguments[at])


def _without_void_pointer(draft: SourceDraft, first: int, last: int) -> None:
    """A kernel loses its type by a cast to void*."""
    code = draft.code
    if code.text[first] == "(" and _is_void_pointer(code, first + 1, code.partner[first]):
        draft.replace(first, code.partner[first] + 1, "")
    elif code.text[first] in ("reinterpret_cast", "static_cast"):
        closing = code.close_angle(first + 1, last)
        if _is_void_pointer(code, first + 2, closing):
            draft.replace(first, closing + 1, "")


def _is_void_pointer(code: SourceCode, first: int, last: int) -> bool:
    words = [text for text in code.text[first:last] if text != "const"]
    return words == ["void", "*"]


def _ext_vector(draft: SourceDraft, i: int) -> None:
    """clang's vector attribute in a typedef or an alias; g++ has no such attribute."""
    code, last = draft.code, draft.places[i].last
    closing = code.partner[i + 1] if code.text[i + 1] == "(" else -1
    begin = i - 3
    end = code.partner[i - 2] + 1 if i >= 3 else 0
    whole = closing > 0 and end == closing + 3 and code.text[begin] in _ATTRIBUTE
    first, low = i, max(code.earliest(i), i - LONGEST_ALIAS)
    while first > low and code.text[first] not in ("typedef", "using", ";", "{", "}"):
        first -= 1
    semicolon = i
    last = min(last, i + LONGEST_ALIAS)
    while semicolon < last and code.text[semicolon] not in (";", "{", "}"):
        semicolon += 1
    named = _vector_names(code, first, semicolon, range(begin, end)) if whole else None
    if named is None:
        message = "ext_vector_type other than in `typedef T name` or `using name = T`"
        draft.insert_before(first if code.directive(i) is None else i, f" {pragma_error(message)} ")
        return
    element, name = named
    vector = f"::simt::ext_vector<{element}, {code.flat(i + 2, closing)}>"
    typedef = code.text[first] == "typedef"
    text = f"typedef {vector} {name}" if typedef else f"using {name} = {vector}"
    draft.replace(first, semicolon, text)


_ATTRIBUTE = frozenset(["__attribute__", "__attribute"])


def _vector_names(
    code: SourceCode, first: int, last: int, attribute: range
) -> tuple[str, str] | None:
    """The element's type and the alias of `typedef T name` or `using name = T`."""
    rest = [j for j in range(first + 1, last) if j not in attribute]
    if code.text[first] == "using" and len(rest) > 2 and code.text[rest[1]] == "=":
        name, element = rest[0], rest[2:]
    elif code.text[first] == "typedef" and len(rest) > 1:
        name, element = rest[-1], rest[:-1]
    else:
        return None
    odd = any(code.text[j] in ("*", "&", "[", "(", ",", "#") for j in element)
    if odd or code.tokens[name].kind is not Kind.NAME:
        return None
    return " ".join(code.text[j] for j in element), code.text[name]


def _share(draft: SourceDraft, survey: Survey) -> None:
    """Give device functions references to the __shared__ variables of the file they name."""
    code, shared = draft.code, draft.world.shared
    if not shared:
        return
    naming = _macros_by_token(draft.world)
    using = {name: _reached(name, naming) for name in shared}
    for function in survey.functions:
        closing = code.partner[function.body]
        if closing < 0:
            continue
        head = code.outside_directives(function.head, function.body)
        inside = set(code.text[function.body : closing])
        locals_ = [
            local
            for name, local in shared.items()
            if draft.declared.get(name, -1) < function.body  # in another file: before
            and name not in head
            and using[name] & inside
        ]
        if locals_:  # in a scope of their own, for the body may declare the same names
            draft.insert_after(function.body, f" {' '.join(locals_)} {{")
            draft.insert_before(closing, "} ")


def _say_kinds(draft: SourceDraft) -> None:
    """Say of dependent names that they are types or templates, which nvcc finds out by itself."""
    draft.world.declared |= declared_names(draft.code)
    for word, first, _ in unsaid(draft.code, draft.world.declared):
        draft.insert_before(first, f"{word} ")


def _macros_by_token(world: World) -> dict[str, set[str]]:
    """The macros by the tokens that their replacements have."""
    by_token: dict[str, set[str]] = {}
    for name, macros in world.macros.items():
        for token in (token for macro in macros for token in macro.body):
            by_token.setdefault(token.text, set()).add(name)
    return by_token


def _reached(name: str, naming: dict[str, set[str]]) -> set[str]:
    """``name`` and the macros that come to it, directly or through each other."""
    reached, fresh = {name}, [name]
    while fresh:
        more = naming.get(fresh.pop(), set()) - reached
        reached |= more
        fresh += more
    return reached


# ---- inline assembly ----------------------------------------------------------------------


def _asm(draft: SourceDraft, i: int) -> int:
    """The statement becomes one of C++; where to go on."""
    code, place = draft.code, draft.places[i]
    opening, goto = i + 1, False
    while code.text[opening] in ("volatile", "__volatile__", "inline", "__inline__", "goto"):
        goto = goto or code.text[opening] == "goto"
        opening += 1
    closing = code.partner[opening] if code.text[opening] == "(" else -1
    if closing < 0 or not place.scope.function:
        return i + 1
    parsed = RefusedStatement("asm goto") if goto else parse(code, i, opening)
    params = (place.macro.params if place.macro else None) or frozenset()
    choices = (
        parsed
        if isinstance(parsed, RefusedStatement)
        else parsed.alternatives(draft.world.macros, params)
    )
    # Of a function that nothing marks as a device's: it may be the host's own assembly.
    hosted = place.macro is None and not place.scope.device
    text = _statement(draft, i, choices, hosted)
    if text is not None:
        draft.replace(i, closing + 1, text)
    return closing + 1


def _statement(
    draft: SourceDraft, i: int, choices: list[Alternative] | RefusedStatement, hosted: bool
) -> str | None:
    """A statement less its semicolon; None: the assembly stays."""
    if isinstance(choices, RefusedStatement):
        if hosted:
            return None
        return draft.stub(i, "SX001", f"inline assembly that is not modelled: {choices.reason}")
    if len(choices) == 1 and not choices[0].test:
        return _translated(draft, i, choices[0].asm, hosted)
    parts = []
    for choice in choices:
        text = _translated(draft, i, choice.asm, hosted)
        if text is None:
            return None
        parts.append(f"if constexpr ({choice.test}) {{ {text}; }} else ")
    reason = "a macro of its template has a value that is not seen in the source"
    stub = draft.stub(i, "SX001", f"inline assembly that is not modelled: {reason}")
    return f"do {{ {''.join(parts)}{{ {stub}; }} }} while (0)"


def _translated(draft: SourceDraft, i: int, asm: Asm, hosted: bool) -> str | None:
    if not asm.template.strip(" \t\r\n;"):
        return _barrier(asm)
    result = translate(asm)
    if isinstance(result, Diagnostic):
        return None if hosted and _is_hosts(asm) else draft.stub(i, result.code, result.message)
    text = " ".join(result.split("\n")).strip()
    block = text if text.startswith("{") and text.endswith("}") else f"{{ {text.rstrip(';')}; }}"
    return f"do {block} while (0)"


#: What PTX has: a type and its width, a constant, or the number of another operand.
_PTX_CONSTRAINT = re.compile(r"[=+&]*(?:[hrlqfdbniC]|\d+)$")


def _is_hosts(asm: Asm) -> bool:
    """Whether assembly that is not understood looks like the host's: PTX has types on its
    instructions, after a dot, and none of the host's registers among its constraints."""
    ptx = all(_PTX_CONSTRAINT.match(o.constraint) for o in (*asm.outputs, *asm.inputs))
    return not ptx or "." not in asm.template


def _barrier(asm: Asm) -> str:
    """A barrier that does nothing on the machine, but across which the compiler must not look.

    A register constraint of PTX may not exist on the host; any lvalue can be in memory.
    """
    outputs = ", ".join(f'"+m"({operand.expression})' for operand in asm.outputs)
    return f'__asm__ volatile("" : {outputs} : : "memory")'


# ---- includes -----------------------------------------------------------------------------

#: Headers of vendors' libraries; what has a file of ours is modelled. First match decides.
_LIBRARIES = [
    (re.compile(pattern), code)
    for pattern, code in (
        (r"(cute|cutlass|cutlass_\w+)/|cutlass\.h$", "SX004"),
        (r"cuda/ptx$|cuda_awbarrier\w*\.h$|cudaTypedefs\.h$", "SX002"),
        (r"(cuda_)?(texture|surface)_\w+\.h$|hip/hip_texture_types\.h$", "SX003"),
        (
            r"(cub|thrust|cuda|nv|crt|torch|ATen|c10|caffe2|cooperative_groups|nvtx3|nvshmem\w*|cudnn_frontend|raft|rmm"
            r"|cuco|cuvs|hip|hipcub|rocprim|rocthrust|rocwmma|ck|ck_tile|composable_kernel"
            r"|roc(blas|fft|rand|sparse|solver|tracer)|hip(blas|blaslt|fft|rand|sparse|solver"
            r"|tensor)|miopen|rccl)/",
            "SX005",
        ),
        (
            r"(cuda(_runtime(_api)?|_fp(16|8|6|4)|_bf16|_pipeline\w*|_profiler_api|_occupancy"
            r"|_device_runtime_api|Profiler|GL|EGL)?|cublas(_v2|Lt|Xt|_api)?|cudnn\w*|cufft\w*"
            r"|curand\w*|cusparse\w*|cusolver\w*|cutensor\w*|nccl|nvml|nvrtc|nvJitLink"
            r"|nvToolsExt\w*|nvjpeg|npp\w*|mma|sm_\d+_\w+|cooperative_groups|cooperative_groups_\w+"
            r"|device_(functions|launch_parameters|atomic_functions|types|double_functions)"
            r"|math_(constants|functions)|vector_(types|functions)|host_(config|defines)"
            r"|driver_(types|functions)|library_types|builtin_types|channel_descriptor"
            r"|rocblas|hipblas|hipcub|rccl)\.(h|hpp|cuh)$",
            "SX005",
        ),
    )
]


def _include(draft: SourceDraft, d: Directive, is_file: _Include) -> None:
    """Follow an include that is the user's; one of an unmodelled library becomes an #error."""
    code = draft.code
    named = code.tokens[d.begin + 2 : d.end]
    if not named:
        return
    if named[0].kind is Kind.STRING:
        quoted, target, last = True, named[0].text.strip('"'), d.begin + 3
    elif named[0].text == "<" and ">" in (texts := [t.text for t in named]):
        length = texts.index(">")
        quoted, target = False, "".join(t.gap + t.text for t in named[1:length])
        last = d.begin + 3 + length
    else:  # a macro
        return
    if is_file(quoted, target) or (INCLUDE / target).is_file():
        return
    sx = next((sx for pattern, sx in _LIBRARIES if pattern.match(target)), None)
    if sx is not None:
        message = quotable(f"{sx} {CODES[sx].title}: <{target}>")
        draft.replace(d.begin + 1, last, f'error "{message}"')


def rewrite_tree(
    path: Path,
    out: Path,
    *,
    search: Sequence[Path] = (),
    library: bool = False,
    project: SourceTree | None = None,
    objects: bool = False,
) -> RewrittenTree:
    """Rewrite ``path`` and each file that it includes, directly or not, into ``out``. Those of
    a ``project`` are called in messages as they are there. With ``objects``, kernels hand their
    launches over to who executes their compiled code.

    An include is looked for beside its includer and in ``search``. Every file keeps its place
    relative to the others, so that includes resolve as they did.
    """
    main = normal(path)
    plan = _Plan(tuple(map(normal, search)), project.root if project else None)
    plan.world.objects = objects
    plan.visit(main, project.path if project else str(path), library=library, depth=0)
    root = Path(os.path.commonpath([main.parent, *(f.parent for f in plan.texts), *plan.folders]))
    for folder in plan.folders:
        (out / folder.relative_to(root)).mkdir(parents=True, exist_ok=True)
    for file, text in plan.texts.items():
        copy = out / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text.encode("utf-8", "surrogateescape"))
    used = tuple(out / folder.relative_to(root) for folder in plan.used)
    return RewrittenTree(
        out / main.relative_to(root), used, tuple(plan.diagnostics), tuple(plan.texts)
    )


@dataclass
class _Plan:
    """Files to write by where they come from, found by following includes."""

    search: tuple[Path, ...]
    root: Path | None = None  # of a project
    texts: dict[Path, str] = field(default_factory=dict)
    folders: dict[Path, None] = field(default_factory=dict)  # must exist for a path with ".."
    used: dict[Path, None] = field(default_factory=dict)  # of ``search``
    diagnostics: list[Diagnostic] = field(default_factory=list)
    world: World = field(default_factory=World)
    device_code: dict[Path, bool] = field(default_factory=dict)  # of headers in angle brackets

    def visit(self, file: Path, name: str, *, library: bool, depth: int) -> None:
        if depth > DEEPEST_INCLUDE:
            raise ConfigError(f"Includes nest more than {DEEPEST_INCLUDE} deep at {name}")
        try:
            source = content(file).decode("utf-8", "surrogateescape")
        except OSError as error:
            raise ConfigError(f"Cannot read {name}: {error.strerror}") from error
        self.texts[file] = ""  # on its way: an include of itself ends here

        def include(quoted: bool, target: str) -> bool:
            return self._follow(file, name, quoted, target, depth)

        done = _rewrite(source, name, self.world, library=library, include=include)
        self.texts[file] = done.text
        self.diagnostics += done.diagnostics

    def _follow(self, includer: Path, name: str, quoted: bool, target: str, depth: int) -> bool:
        beside = [(includer.parent, str(Path(name).parent))] if quoted else []
        searched = [(folder, self._shown(folder)) for folder in self.search]
        for folder, shown in [*beside, *searched]:
            file = normal(folder / target)
            if not file.is_file() or not (quoted or self._is_device_code(file)):
                continue
            if folder in self.search:
                self.used[folder] = None
            self._note_folders(folder, target)
            if file not in self.texts:
                called = os.path.normpath(Path(shown) / target)
                called = source_tree.named(called) or called
                self.visit(file, called, library=False, depth=depth + 1)
            return True
        return False

    def _shown(self, folder: Path) -> str:
        """Empty of a folder that is not the project's, whose files are called as included."""
        if not self.root:
            return str(folder)
        return os.path.relpath(folder, self.root) if folder.is_relative_to(self.root) else ""

    def _note_folders(self, folder: Path, target: str) -> None:
        """`sub/../x.h` needs sub to exist, though nothing may be in it."""
        self.folders[folder] = None
        for part in Path(target).parts[:-1]:
            folder = folder / part
            self.folders[normal(folder)] = None

    def _is_device_code(self, file: Path) -> bool:
        """Whether a header included in angle brackets must be rewritten; a library's need not."""
        if file not in self.device_code:
            self.device_code[file] = is_device_code(file, self.search)
        return self.device_code[file]
