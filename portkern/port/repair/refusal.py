"""Refusals of edits that change what must stay as it is: kernels and their signatures, launches,
the host's code, and what the preprocessor decides. For such an edit the model is told why, and
it is never tried."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from portkern.cuda_source import syntax
from portkern.cuda_source.comments import without_comments
from portkern.cuda_source.launches import LaunchText
from portkern.cuda_source.syntax import SourceKernel, Syntax
from portkern.cuda_source.tree import TooLong
from portkern.port.repair.functions import functions

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(.*)$", re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")
#: Headers that an edit may add, and pragmas.
_HEADER = re.compile(r"<hip/[\w./]+>")
_PRAGMA = re.compile(r"(?:clang\s+loop\s+)?(?:no)?unroll\b")
#: What a body without any of these does nothing.
_WORK = re.compile(r"=|\(|\+\+|--")


def refusal(before: str, after: str) -> str:
    """Why the edit that made ``after`` is refused; empty when it is not."""
    if _plain(before) == _plain(after):
        return "it changes nothing"
    old, new = syntax.parse(before), syntax.parse(after)
    checks: tuple[Callable[[Syntax, Syntax], str], ...] = (_kernels, _launches, _directives, _host)
    try:
        return next((why for check in checks if (why := check(old, new))), "")
    except TooLong as error:
        return f"it cannot be parsed: {error}"


def _plain(text: str) -> str:
    return "".join(without_comments(text).split())


def _kernels(old: Syntax, new: Syntax) -> str:
    before, after = Counter(k.name for k in old.kernels), Counter(k.name for k in new.kernels)
    if lost := sorted((before - after).keys()):
        return f"it removes the kernel {lost[0]}"
    if added := sorted((after - before).keys()):
        return f"it adds the kernel {added[0]}"
    for kernel, other in zip(_sorted(old), _sorted(new), strict=True):
        if _signature(kernel) != _signature(other):
            return (
                f"it changes the signature of {kernel.name} from {_signature(kernel)} "
                f"to {_signature(other)}"
            )
        body, made = _body(old, kernel), _body(new, other)
        if _WORK.search(body) and not _WORK.search(made):
            return f"it empties the kernel {kernel.name}"
    return ""


def _sorted(source: Syntax) -> Sequence[SourceKernel]:
    """The kernels by name, and those of one name in the order of the file."""
    return sorted(source.kernels, key=lambda kernel: (kernel.name, kernel.line))


def _signature(kernel: SourceKernel) -> str:
    template = ", ".join(f"{_spaced(p.type)} {p.name}" for p in kernel.template)
    parameters = ", ".join(_spaced(p.type) for p in kernel.parameters)
    return f"<{template}>({parameters})" if template else f"({parameters})"


def _spaced(text: str) -> str:
    return re.sub(r"\s*([*&<>,])\s*", r"\1", " ".join(text.split()))


def _body(source: Syntax, kernel: SourceKernel) -> str:
    text = without_comments(source.text[kernel.start : kernel.stop])
    return text.partition("{")[2]


def _launches(old: Syntax, new: Syntax) -> str:
    before, after = map(_launched, (old.launches, new.launches))
    changed = [*(before - after), *(after - before)]
    return f"it changes the launch of {changed[0][0]}" if changed else ""


def _launched(launches: Sequence[LaunchText]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(
            _plain(str(part))
            for part in (
                launch.kernel,
                launch.template_arguments,
                launch.grid,
                launch.block,
                launch.shared,
                launch.stream,
                launch.arguments,
            )
        )
        for launch in launches
    )


def _directives(old: Syntax, new: Syntax) -> str:
    before, after = _listed(old), _listed(new)
    used = _host_words(old)
    for name, rest in sorted({*(after - before), *(before - after)}):
        added = (name, rest) in after - before
        if name == "include" and not (added and _HEADER.match(rest)):
            return f"it {'adds' if added else 'removes'} #include {rest}"
        if name == "define":
            macro = next(iter(_WORD.findall(rest)), "")
            if macro in used:
                return f"it changes the macro {macro}, which the host's code uses"
        elif name == "pragma" and not _PRAGMA.match(rest):
            return f"it changes #pragma {rest}"
        elif name not in ("include", "pragma"):
            return f"it changes a condition of the preprocessor: #{name} {rest}".rstrip()
    return ""


def _listed(source: Syntax) -> Counter[tuple[str, str]]:
    text = without_comments(source.text.replace("\\\n", " "))
    return Counter((m[1], " ".join(m[2].split())) for m in _DIRECTIVE.finditer(text))


def _host_words(source: Syntax) -> set[str]:
    texts = [function.text for function in functions(source) if not function.device]
    return set(_WORD.findall(" ".join(texts)))


def _host(old: Syntax, new: Syntax) -> str:
    """Lines of host functions, and constants beside functions that they use."""
    before, after = old.text.split("\n"), new.text.split("\n")
    host, made = _owners(old), _owners(new)
    used = _host_words(old)
    for i, i_end, j, j_end in _changes(before, after):
        places = [*(host.get(n) for n in range(i, i_end)), *(made.get(n) for n in range(j, j_end))]
        named = next((name for name in places if name and name != _DEVICE_CODE), None)
        if named:
            return f"it changes the host's function {named}"
        beside = [before[n] for n in range(i, i_end) if n not in host]
        beside += [after[n] for n in range(j, j_end) if n not in made]
        shared = next((word for word in map(_declared, beside) if word in used), "")
        if shared:
            return f"it changes {shared}, which the host's code uses"
    return ""


_DEVICE_CODE = "__device__"
_CONSTANT = re.compile(
    r"\s*(?:(?:static|inline|const|constexpr|unsigned|__constant__|__device__|__managed__)\s+)*"
    r"(?:struct|class|enum|using|typedef|[\w:]+)\s+(\w+)\s*[=;\[{(]"
)


def _declared(line: str) -> str:
    match = _CONSTANT.match(without_comments(line))
    return match[1] if match else ""


def _owners(source: Syntax) -> dict[int, str]:
    """Which function a line is of, by its number from 0; a line that a kernel shares is the
    device's."""
    owners: dict[int, str] = {}
    for function in sorted(functions(source), key=lambda f: f.device):
        first = source.text.count("\n", 0, function.start)
        last = first + function.text.count("\n")
        name = _DEVICE_CODE if function.device else function.name or "without a name"
        owners |= dict.fromkeys(range(first, last + 1), name)
    return owners


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Spans of lines that differ. What is equal at both ends is left out first: a file may have
    tens of thousands of lines, and the search takes their square."""
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    tail = next((n for n in range(most - head) if before[-1 - n] != after[-1 - n]), most - head)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            yield head + i, head + i_end, head + j, head + j_end
