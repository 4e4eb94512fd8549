"""Tasks of AgentKernelArena made of a port: CUDA programs that an agent is to port to HIP
(``cuda2hip``), each with what the original printed when it ran here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from portkern.errors import ConfigError
from portkern.formats.exported import Export
from portkern.spec.foreign_text import MOST_BYTES, content, json_object, read_text
from portkern.spec.safe_name import SafeName, file_of

FORMAT: Final = "agentkernelarena"
_TYPE, _SUITE = "cuda2hip", "portkern"
_SUMMARY, _PLAN, _EXPECTED, _RUNNER = "summary.json", "plan.sh", "expected", "task_runner.py"
#: The linked files in a port's script, and the program with its arguments.
_LINKED = re.compile(r"linked=\((.*?)\); (program .*)")
_FLAGS = re.compile(r'^build\(\) \{ hipcc -O3 --offload-arch="\$GPU" (.*) "\$@"; \}$', re.MULTILINE)
_INSTRUCTIONS = """\
Port the CUDA program {source} to HIP for AMD GPUs, and make it fast: it has to build with hipcc as
HIP, and to print what the original prints. Waves have 64 lanes on CDNA and 32 on RDNA; the program
must be right at both. Change files below source/ alone, and keep the kernels' names: {kernels}.
"""


@dataclass(frozen=True)
class _Program:
    source: str
    arguments: Sequence[str]
    linked: Sequence[str]


def write(port: Path, export: Export) -> None:
    """A task for each program of the port in ``port`` whose kernels are all proven and whose
    original printed something. Raises ConfigError for a folder of anything else."""
    summary = json_object(port / _SUMMARY)
    root, kernels = summary.get("root"), summary.get("kernels")
    if not isinstance(root, str) or not isinstance(kernels, list) or summary.get("to") != "hip":
        raise ConfigError(f"{port / _SUMMARY} is not of a port to HIP; portkern port writes one")
    plan = read_text(port / _PLAN)
    flags = shlex.split(found[1]) if (found := _FLAGS.search(plan)) else []
    programs = list(_programs(plan))
    for program in programs:
        try:
            _write(program, Path(root), port, flags, kernels, export)
        except ConfigError as error:
            export.skip(program.source, error)
    known = {name for one in programs for name in (one.source, *one.linked)}
    for path in dict.fromkeys(str(kernel.get("path")) for kernel in kernels):
        if path not in known:
            export.skip(path, "it is not a program, so that nothing prints what is right")


def _programs(plan: str) -> Iterator[_Program]:
    for line in plan.splitlines():
        linked = _LINKED.fullmatch(line)
        called = linked[2] if linked else line
        if called.startswith("program "):
            _, source, *arguments = shlex.split(called)
            yield _Program(source, arguments, shlex.split(linked[1]) if linked else ())


def _write(
    program: _Program,
    root: Path,
    port: Path,
    flags: Sequence[str],
    kernels: Sequence[Mapping[str, Any]],
    export: Export,
) -> None:
    """Raises ConfigError where it cannot be a task."""
    own = [one for one in kernels if one.get("path") in (program.source, *program.linked)]
    if not own or not all(one.get("good") is True for one in own):
        raise ConfigError("a kernel of it is not proven, so that its output is not known")
    expected = file_of(port / _EXPECTED, f"{program.source.replace('/', '_')}.txt")
    if not expected.is_file() or not read_text(expected).strip():
        raise ConfigError("it printed nothing here, so that nothing says what is right")
    names = list(dict.fromkeys(str(one.get("kernel")) for one in own))
    folder = f"tasks/{_TYPE}/{_SUITE}/{SafeName.like(program.source.removesuffix('.cu'))}"
    sources = dict(_sources(root, port))
    if program.source not in sources:
        raise ConfigError(f"{root} has it no longer")
    for name, text in sources.items():
        export.write(f"{folder}/source/{name}", text)
    facts = {
        "source": program.source,
        "linked": list(program.linked),
        "arguments": list(program.arguments),
        "flags": [flag for flag in flags if not flag.startswith(("-I/", "/"))],
    }
    export.write_json(f"{folder}/scripts/task.json", facts)
    export.write(f"{folder}/scripts/expected.txt", read_text(expected))
    runner = files("portkern.formats") / "templates" / _RUNNER
    export.write(f"{folder}/scripts/{_RUNNER}", runner.read_text(encoding="utf-8"))
    export.write(f"{folder}/config.yaml", _config(program, names))
    export.items += 1


def _config(program: _Program, kernels: Sequence[str]) -> str:
    command = f"python3 scripts/{_RUNNER}"
    text = _INSTRUCTIONS.format(source=program.source, kernels=", ".join(kernels))
    return yaml.safe_dump(
        {
            "source_file_path": [f"source/{name}" for name in (program.source, *program.linked)],
            "target_kernel_functions": list(kernels),
            "compile_command": [f"{command} compile"],
            "correctness_command": [f"{command} correctness"],
            "performance_command": [f"{command} performance"],
            "task_type": _TYPE,
            "task_result_template": None,
            "prompt": {"source_code": None, "instructions": text, "cheatsheet": None},
        },
        sort_keys=False,
        allow_unicode=True,
    )


def _sources(root: Path, port: Path) -> Iterator[tuple[str, str]]:
    """The originals of all texts that the port's tree has, by their names."""
    tree, left = port / "tree", MOST_BYTES
    for ported in sorted(path for path in tree.rglob("*") if path.is_file()):
        name = ported.relative_to(tree).as_posix()
        original = file_of(root, name)
        if not original.is_file():
            continue  # the port's own, such as a header that says names
        try:
            data = content(original, left)
            text = data.decode("utf-8")
        except OSError as error:
            raise ConfigError(f"{name} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            continue
        left -= len(data)
        yield name, text
