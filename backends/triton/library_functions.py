"""Compiles ``@triton.jit`` functions of somebody's library, for a target that is not here.

Run as a process of its own, in the jail, for it imports the library:
``python -m portkern.backends.triton.library_functions REQUESTS.json``. It prints a line of JSON
before and after each.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from portkern.spec import target as targets
from portkern.spec.target import Target
from portkern.toolchain.run_tool import import_root

from .binaries import amd_resources

#: The last of a message's lines, which says what is wrong.
_WORDS = 400


def main() -> int:
    os.environ.pop("TRITON_INTERPRET", None)
    return answer_all(Path(sys.argv[1]), _compiled)


#: The library's root, a request, and the processor time it has.
Answer = Callable[[str, Mapping[str, Any], float], dict[str, Any]]


def answer_all(file: Path, answered: Answer) -> int:
    asked = json.loads(file.read_text(encoding="utf-8"))
    os.environ["TRITON_CACHE_DIR"] = str(Path.cwd() / "triton-cache")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for request in asked["requests"]:
        if request["number"] not in asked["wanted"]:
            continue
        _say(asked["mark"], {"begins": request["number"]})
        begin = time.monotonic()
        try:
            answer = answered(asked["root"], request, asked["each_s"])
        # The library's code runs here, and the compiler on what it wrote: anything may be raised.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the process's outermost frame
            answer = {"error": _words(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer |= {"number": request["number"], "seconds": round(time.monotonic() - begin, 3)}
        _say(asked["mark"], answer)
    return 0


def _say(mark: str, answer: Mapping[str, object]) -> None:
    """Prints the answer after a mark: what a library prints is not an answer."""
    sys.stdout.write(f"\n{mark}{json.dumps(answer)}\n")
    sys.stdout.flush()


@contextmanager
def as_on(target: Target) -> Iterator[None]:
    """A library that asks torch or Triton which vendor's GPU there is hears the target's."""
    import torch

    from .library_import import device
    from .standin import driver

    before = torch.version.hip
    torch.version.hip = before or ("6.4" if target.vendor == "amd" else None)
    try:
        with driver(target), device(target):
            yield
    finally:
        torch.version.hip = before


def function_of(root: str, request: Mapping[str, Any]) -> object:
    """The function that is asked for, with its decorators."""
    from .library_import import imported

    file = Path(root) / request["path"]
    own = file.relative_to(_top(Path(root), file)).with_suffix("").parts[0]
    try:
        module = imported(lambda: _module(Path(root), request["path"]), own)
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything
        raise ImportError(f"{_words(error)}{_place(error, root)}") from None
    if (found := getattr(module, request["kernel"], None)) is not None:
        return found
    name, line = request["kernel"], request["line"]
    methods = [vars(one).get(name) for one in vars(module).values() if isinstance(one, type)]
    functions = [getattr(one, "__func__", one) for one in methods if one is not None]
    known = [one for one in functions if plain(one).fn.__code__.co_firstlineno == line]
    if not known:
        raise AttributeError(f"{file.name} has no '{name}' of line {line} when it is imported")
    return known[0]


def plain(function: object) -> Any:
    """The function without the autotuner and heuristics around it."""
    while hasattr(function, "fn") and hasattr(function.fn, "arg_names"):
        function = function.fn
    return function


def _compiled(root: str, request: Mapping[str, Any], each_s: float) -> dict[str, object]:
    import triton
    from triton.compiler import ASTSource

    from .standin import gpu_target

    target = targets.load(request["target"])
    with as_on(target):
        function = plain(function_of(root, request))
        constants = {name: constant_of(value) for name, value in request["constants"].items()}
        types = request["signature"] | dict.fromkeys(constants, "constexpr")
        source = ASTSource(
            function,
            {name: types[name] for name in function.arg_names},
            {(function.arg_names.index(name),): value for name, value in constants.items()},
        )
        # The compiler does not come back to Python: a signal that nobody handles ends the process.
        # Processor time, for the machine may be busy with other work.
        signal.setitimer(signal.ITIMER_PROF, each_s)
        made = triton.compile(source, target=gpu_target(target), options=request["knobs"])
    return {"resources": resources(made, target)}


def resources(made: Any, target: Target) -> dict[str, object]:
    """The resources of a kernel that Triton compiled."""
    threads = made.metadata.num_warps * (target.warp or 64)
    used = amd_resources(made.metadata.name, made.asm["amdgcn"], made.metadata.shared, threads)
    return {
        "vgprs": used.registers,
        "agprs": used.agprs,
        "sgprs": used.sgprs,
        "spills": used.spills,
        "lds_bytes": used.shared_bytes,
        "threads": threads,
        "bytes": len(made.asm["hsaco"]),
    }


def constant_of(value: object) -> object:
    if isinstance(value, dict):
        import triton.language as tl

        names = {one.name: one for one in vars(tl).values() if isinstance(one, tl.dtype)}
        return names[value["dtype"]]
    return value


def _top(root: Path, file: Path) -> Path:
    """The folder that the file is imported from: folders between it and the outermost package may
    be packages without a file of their own."""
    above = [folder for folder in file.parents if folder.is_relative_to(root)]
    packages = [folder for folder in above if (folder / "__init__.py").is_file()]
    return import_root(packages[-1] if packages else file.parent)


def _module(root: Path, path: str) -> ModuleType:
    """The file as a module, as part of its package where it has one."""
    file = root / path
    top = _top(root, file)
    for folder in (str(file.parent), str(top)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    if top != file.parent:
        return importlib.import_module(".".join(file.relative_to(top).with_suffix("").parts))
    name = f"portkern_port_{file.stem}_{zlib.crc32(path.encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _words(error: BaseException) -> str:
    """Triton's errors quote the kernel first; what is wrong stands last, or in their cause."""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 8:
        chain.append(chain[-1].__cause__)
    last = chain[-1]
    lines = [line.strip() for line in str(last).splitlines() if line.strip(" ^")]
    return f"{type(last).__name__}: {lines[-1] if lines else ''}"[:_WORDS]


def _place(error: Exception, root: str) -> str:
    """The last line of the library that an error came by."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
    if not own:
        return ""
    return f" ({Path(own[-1].filename).relative_to(root)}, line {own[-1].lineno})"


if __name__ == "__main__":
    sys.exit(main())
