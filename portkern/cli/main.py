"""The console script: a verb, then Hydra overrides. Verbs are imported when they are used."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.cli import streams
from portkern.errors import ConfigError, PortkernError, StorageError, no_such
from portkern.printable import printable
from portkern.toolchain.run_tool import cache_root, refuse_foreign

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

VERBS = {
    "doctor": "what this machine can build, emulate and run, and how to get the rest",
    "check": "evaluate kernel files: FILE.cpp op=softmax target=x86_64",
    "op": "an operator from PyTorch code, and what kernels of it are evaluated by: FILE.py[:NAME]",
    "matrix": "correctness and speedup over ops × targets: ops=core targets=all workloads=ci",
    "execute": "run a plan that matrix plan=FILE wrote, on a machine without a network: FILE",
    "generate": "write a kernel, by models or from the catalogue: op=softmax target=x86_64",
    "compare": "models on portability: models=[openai/a,ollama/b] ops=core backends=all n=10",
    "experiment": "compare ways of writing kernels: name=search op=matmul target=x86_64",
    "init": "a project file for a folder of kernels: init [DIR]",
    "tune": "find the best settings of kernels here: ops=softmax backends=cpu workloads=typical",
    "node": "this machine as a node of a Ray cluster that matrices run on: address=HOST:PORT",
    "port": "a CUDA library to AMD (or back), with proof and no GPU: port PATH to=gfx942",
    "run": "a CUDA or HIP program in the SIMT executor: FILE.cu target=gfx942 sanitize=all",
    "serve": "one warm evaluator for all commands of this machine: serve, serve status, serve stop",
    "redteam": "how often kernels that cheat are paid, and honest ones refused: redteam DIR",
    "mcp": "tools for coding assistants (MCP), over stdio or http=true",
    "report": "write a run's report again from its records: report RUN",
    "diff": "what regressed from one run to another, told from noise: diff RUN_A RUN_B",
    "history": "cells over many runs, and where their times step: op=softmax backend=cpu",
    "baseline": "runs that are held for good or bad: baseline promote RUN REASON",
    "bisect": "since which commit a kernel fails or is slower: good=REV op=softmax …",
    "export": "a run's records or kernels in other formats: export csv RUN, or library",
    "import": "operators of other benchmarks (kernelbench DIR), or what a plan gave (records FILE)",
}
#: Whatever their options are, if these can be read, a kernel is run in a worker that has torch.
RUN_KERNELS = {
    "check",
    "compare",
    "execute",
    "generate",
    "import",
    "op",
    "redteam",
    "serve",
    "tune",
}
#: An operator that is a file, which is traced; a kernel's source is not.
_OPERATOR_FILE = re.compile(r"(ops?=.*|[^=]+)\.py(:|\]|,|$)")
HELP_FLAGS = ("-h", "--help", "help")
#: Objects that are made before garbage is looked for. Modules are hundreds of thousands, and stay:
#: with Python's own 700 a tenth of the time of ``import torch`` goes into looking at them.
GARBAGE_AFTER = 50_000


#: What an exit code means; a larger one is what most scripts take for worse.
EXIT_CODES = {
    0: "done and good",
    1: "a verdict is bad",
    2: "usage error",
    3: "nothing could run",
    4: "a defect of portkern itself, whose traceback is kept",
    130: "interrupted",
}
#: The place is not one that can be used, whatever portkern does: a full or read-only disk, a file
#: where a folder is expected, a missing right, a name too long, no more handles.
_PLACES = {
    getattr(errno, name)
    for name in (
        "ENOSPC EDQUOT EROFS EACCES EPERM ENOTDIR EISDIR EEXIST ENAMETOOLONG ELOOP EIO EFBIG "
        "EMFILE ENFILE"
    ).split()
}

#: Characters of an error's line: what was got may be a name of ten thousand.
_MOST_SHOWN = 2_000


def main() -> None:
    streams.prepare()
    words = sys.argv[1:]
    try:
        code = _by_server(words)
    except KeyboardInterrupt:
        code = interrupted()
    sys.exit(whole(words) if code is None else code)


def whole(words: Sequence[str]) -> int:
    """The exit code of a command that this process is there for."""
    _keep_bytecode()
    gc.set_threshold(GARBAGE_AFTER)
    code = run(words)
    if "duckdb" not in sys.modules:  # which calls what is left a leak, on stderr
        gc.freeze()  # it ends with the process: to look at torch's once more takes 0.5 s
    unwritten = streams.finish()
    if unwritten:
        print(f"portkern: error: {unwritten}", file=sys.stderr)
    return code or (StorageError.exit_code if unwritten else 0)


def _by_server(words: Sequence[str]) -> int | None:
    """The exit code of a check that ran where all of it is imported already; else None."""
    if words[:1] != ["check"] or "serve=never" in words or set(words) & set(HELP_FLAGS):
        return None
    from portkern.cli import warm

    return warm.code_of(words)


def _keep_bytecode() -> None:
    """Where none of torch's bytecode lies beside it and none will be written there, as in an image
    that is read-only, all of it is kept in our cache: to compile torch anew takes each process
    5 s."""
    spec = find_spec("torch")
    if sys.pycache_prefix or spec is None or spec.origin is None:
        return
    beside = Path(cache_from_source(spec.origin))
    if beside.exists() or not (
        sys.dont_write_bytecode or not os.access(beside.parent.parent, os.W_OK)
    ):
        return
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache_root() / "bytecode")
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def run(argv: Sequence[str]) -> int:
    """One of :data:`EXIT_CODES`."""
    try:
        return _answer(argv)
    except PortkernError as error:
        return _fail(error)
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:  # noqa: BLE001 - the outermost frame: nobody foresaw it
        if isinstance(error, OSError) and error.errno in _PLACES:
            return _fail(_unusable(error))
        from portkern.cuda_source.tree import TooLong

        if isinstance(error, TooLong):
            return _fail(ConfigError(str(error)))
        from portkern.cli import crash

        print(printable(crash.tell(error, argv)), file=sys.stderr)
        return 4


def interrupted() -> int:
    """The exit code of a command that Ctrl-C has ended, which is said."""
    print("portkern: interrupted; what was recorded is kept, run again to go on", file=sys.stderr)
    return 130


def _unusable(error: OSError) -> StorageError:
    place = Path(error.filename or "a file")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError.of(error, place)
    return StorageError(f"Cannot use {place}: {error.strerror}; choose another place")


def _fail(error: PortkernError) -> int:
    lines = [line[:_MOST_SHOWN] for line in printable(str(error)).splitlines()]
    print("\n".join(["portkern: error: " + "".join(lines[:1]), *lines[1:]]), file=sys.stderr)
    return error.exit_code


def _answer(argv: Sequence[str]) -> int:
    if not argv or argv[0] in HELP_FLAGS:
        print(_help())
        return 0 if argv else 2
    if argv[0] == "--version":
        from importlib.metadata import version

        print(version("portkern"))
        return 0
    return _dispatch(argv[0], argv[1:])


def _dispatch(verb: str, rest: Sequence[str]) -> int:
    if verb not in VERBS:
        raise no_such("verb", verb, VERBS)
    own = rest[: rest.index("--")] if "--" in rest else rest  # what follows is a program's
    if set(own) & set(HELP_FLAGS):
        print(_verb_help(verb))
        return 0
    with refuse_foreign(), _workers_ahead(verb, own):
        module = importlib.import_module(f"portkern.cli.verbs.{verb}")
        return int(module.main(rest))


@contextmanager
def _workers_ahead(verb: str, words: Sequence[str]) -> Iterator[None]:
    """Processes that workers are forked from import what they need while the verb is read."""
    preloads = list(_preloads(verb, words))
    if not preloads:
        yield
        return
    from portkern.sandbox import session

    with session.servers_of_own():  # those that the verb begins as well
        for preload in preloads:
            session.server(preload).begin()
        yield


def _preloads(verb: str, words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """torch, and where an operator is a file what traces it; nothing for what builds a source that
    is not Python; the executor's compiler of ``run``."""
    if verb == "run":
        from portkern.sandbox.session import COMPILING

        yield COMPILING
    if verb not in RUN_KERNELS or find_spec("torch") is None:
        return
    if verb == "check" and (cache_root() / "serve" / "address.json").exists():
        return  # a server has done this, or the command will when it is asked and gives no answer
    yield ("torch",)
    if verb == "check" and not any(".py" in word for word in words):
        yield ()
    if any(_OPERATOR_FILE.match(word) for word in words):
        from portkern.worker.tracing import PRELOAD

        yield PRELOAD


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {text}" for name, text in VERBS.items())
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    footer = f"Every verb takes --help and json=true. Exit codes: {codes}."
    return f"usage: portkern VERB [key=value ...]\n\n{verbs}\n\n{textwrap.fill(footer, 98)}"


def _verb_help(verb: str) -> str:
    """The verb's own configuration file, which documents each key beside its default, after the
    groups that it chooses from, if any, with their choices."""
    from importlib.resources import files

    from portkern.cli.ranges import RANGES

    conf = files("portkern.conf")
    text = (conf / f"{verb}.yaml").read_text(encoding="utf-8")
    defaults, _, body = text.partition("\n\n")
    groups = [
        f"{_choices(folder)}\n{name}: {default}\n"
        for name, _, default in (line.strip(" -").partition(": ") for line in defaults.split("\n"))
        if default and (folder := conf / name).is_dir()
    ]
    keys = {line.partition(":")[0] for line in body.splitlines()}
    ranges = [
        f"{name} {allowed}" for name, allowed in RANGES.items() if name.partition(".")[0] in keys
    ]
    numbers = textwrap.indent(textwrap.fill("Valid: " + "; ".join(ranges), 96), "# ")
    stated = f"\n\n{numbers}" if ranges else ""
    return f"portkern {verb}: {VERBS[verb]}\n\n{''.join(groups)}{body.strip()}{stated}"


def _choices(folder: Traversable) -> str:
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir())
    return textwrap.fill(", ".join(names), 98, initial_indent="# ", subsequent_indent="# ")
