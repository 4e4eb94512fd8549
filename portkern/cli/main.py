"""The console script: a verb, then Hydra overrides. Verbs are imported when they are used."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import PortkernError, StorageError, no_such

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

VERBS = {
    "doctor": "what this machine can build, emulate and run, and how to get the rest",
    "check": "evaluate one kernel file: op=softmax backend=cpu source=FILE",
    "matrix": "correctness and speedup over ops × targets: ops=core targets=all workloads=ci",
    "generate": "write a kernel, by models or from the catalogue: op=softmax target=x86_64",
    "experiment": "compare ways of writing kernels: name=search op=matmul target=x86_64",
    "tune": "find the best settings of kernels here: ops=softmax backends=cpu workloads=typical",
    "run": "a CUDA or HIP program in the SIMT executor: FILE.cu target=gfx942 sanitize=all",
    "report": "write a run's report again from its records: report RUN",
}
HELP_FLAGS = ("-h", "--help", "help")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Exit codes: 0 done and good, 1 a verdict is bad, 2 usage error, 3 nothing could run."""
    if not argv or argv[0] in HELP_FLAGS:
        print(_help())
        return 0 if argv else 2
    if argv[0] == "--version":
        from importlib.metadata import version

        print(version("portkern"))
        return 0
    try:
        return _dispatch(argv[0], argv[1:])
    except PortkernError as error:
        print(f"portkern: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123 - the interpreter flushes it
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        full = StorageError.of(error, Path(error.filename or "a file"))
        print(f"portkern: error: {full}", file=sys.stderr)
        return full.exit_code
    except KeyboardInterrupt:
        print(
            "portkern: interrupted; what was recorded is kept, run again to go on", file=sys.stderr
        )
        return 130


def _dispatch(verb: str, rest: list[str]) -> int:
    if verb not in VERBS:
        raise no_such("verb", verb, VERBS)
    own = rest[: rest.index("--")] if "--" in rest else rest  # what follows is a program's
    if set(own) & set(HELP_FLAGS):
        print(_verb_help(verb))
        return 0
    module = importlib.import_module(f"portkern.cli.verbs.{verb}")
    return int(module.main(rest))


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {text}" for name, text in VERBS.items())
    return (
        f"usage: portkern VERB [key=value ...]\n\n{verbs}\n\n"
        "Every verb takes --help and json=true. Exit codes: 0 done and good, 1 a verdict is bad,\n"
        "2 usage error, 3 nothing could run."
    )


def _verb_help(verb: str) -> str:
    """The verb's own configuration file, which documents each key beside its default, after the
    groups that it chooses from, if any, with their choices."""
    from importlib.resources import files

    conf = files("portkern.conf")
    text = (conf / f"{verb}.yaml").read_text(encoding="utf-8")
    defaults, _, body = text.partition("\n\n")
    groups = [
        f"{_choices(folder)}\n{name}: {default}\n"
        for name, _, default in (line.strip(" -").partition(": ") for line in defaults.split("\n"))
        if default and (folder := conf / name).is_dir()
    ]
    return f"portkern {verb}: {VERBS[verb]}\n\n{''.join(groups)}{body.strip()}"


def _choices(folder: Traversable) -> str:
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir())
    return textwrap.fill(", ".join(names), 98, initial_indent="# ", subsequent_indent="# ")
