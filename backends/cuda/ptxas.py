"""Facts about each kernel from ptxas' log, and the declarations in its PTX."""

from __future__ import annotations

import re

from portkern.spec.backend import Resources

_KERNEL = re.compile(r"Compiling entry function '(?P<symbol>[^']+)' for")
_USED = re.compile(r"Used (\d+) registers([^\n]*)")
_SHARED = re.compile(r"(\d+) bytes smem")
_SPILLS = r"Function properties for {}\n[^\n]*?(\d+) bytes spill stores, (\d+) bytes spill loads"
_ENTRY = re.compile(r"\.entry (?P<symbol>[\w$]+)\(.*?\)(?P<directives>[^{]*)\{", re.DOTALL)
_THREADS = re.compile(r"\.(?:max|req)ntid (\d+)(?:, (\d+))?(?:, (\d+))?")
_INTEGER = re.compile(r"L[a-z](n?\d+)E")


def resources(log: str, ptx: str = "", *, linked: bool = True) -> tuple[Resources, ...]:
    """One value per kernel of a ``-Xptxas -v`` log; ``ptx`` adds the declared block size.

    Relocatable code (not ``linked``) has its shared memory laid out later: ptxas says nothing.
    """
    threads = {m["symbol"]: _block(m["directives"]) for m in _ENTRY.finditer(ptx)}
    starts = list(_KERNEL.finditer(log))
    ends = [*(start.start() for start in starts[1:]), len(log)]
    return tuple(
        _kernel(start["symbol"], log[start.end() : end], threads.get(start["symbol"]), linked)
        for start, end in zip(starts, ends, strict=False)  # no kernel leaves one end over
    )


def _kernel(symbol: str, text: str, threads: int | None, linked: bool) -> Resources:
    used = _USED.search(text)
    shared = _SHARED.search(used[2]) if used else None
    none_said = 0 if used and linked else None
    spills = re.search(_SPILLS.format(re.escape(symbol)), text)
    return Resources(
        kernel=readable(symbol),
        registers=int(used[1]) if used else None,
        spills=int(spills[1]) + int(spills[2]) if spills else None,
        shared_bytes=int(shared[1]) if shared else none_said,
        threads=threads,
    )


def _block(directives: str) -> int | None:
    match = _THREADS.search(directives)
    if not match:
        return None
    x, y, z = (int(text or 1) for text in match.groups())
    return x * y * z


def readable(symbol: str) -> str:
    """``_Z6kernelILi4EEvPKf`` as ``kernel<4>``; arguments that are not integers are left out."""
    if not symbol.startswith("_Z"):
        return symbol
    nested = symbol.startswith("_ZN")
    text = symbol.removeprefix("_ZN").lstrip("L") if nested else symbol[2:]
    name = symbol
    while match := re.match(r"L?(\d+)", text):
        start = match.end()
        name, text = text[start : start + int(match[1])], text[start + int(match[1]) :]
        if not nested:  # what follows are types of arguments
            break
    if not text.startswith("I"):
        return name
    values = []
    text = text[1:]
    while match := _INTEGER.match(text):
        values.append(match[1].replace("n", "-"))
        text = text[match.end() :]
    return f"{name}<{', '.join(values)}>" if values else name
