"""AgentKernelArena's tasks whose reference is a module of PyTorch: folders with ``config.yaml``
that names the module's file (``torch2hip``, ``torch2flydsl``, ``hip2hip`` of GPU MODE's)."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import embedding
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import Malformed, read_text, yaml_value
from portkern.spec.safe_name import file_of

CONFIG, MODULE = "config.yaml", "model.py"
#: The option of a task's check that names the module's file.
_OPTION = "--py_modu_file"
_NEEDED = ("get_inputs", "get_init_inputs")
_TAIL = """

# ---- portkern: the task's groups of inputs, and its class with the arguments of the task
_portkern_inputs, _portkern_settings = get_inputs, get_init_inputs


class Model({name}):
    def __init__(self):
        given = _portkern_settings()
        pair = len(given) == 2 and isinstance(given[1], dict)
        positional, named = given if pair else (given, {{}})
        super().__init__(*positional, **named)


def get_input_groups():
    given = list(_portkern_inputs())
    return [list(one) for one in given] if isinstance(given[0], (list, tuple)) else [given]


def get_inputs():
    return get_input_groups()[0]


def get_init_inputs():
    return []
"""


def read(path: Path) -> list[Item]:
    """The tasks below a folder, such as a checkout or its ``tasks``. Raises ConfigError where
    there is none."""
    root = path / "tasks" if (path / "tasks").is_dir() else path
    files = sorted(root.rglob(CONFIG))
    if not files:
        raise ConfigError(f"No {CONFIG} below {root}; expected tasks/TYPE/…/NAME/{CONFIG}")
    return [_read(file, root) for file in files]


def _read(file: Path, root: Path) -> Item:
    folder = file.parent
    group = "_".join(folder.parent.relative_to(root).parts)
    try:
        task = _task(file)
        text = _problem(folder, task)
    except ConfigError as error:
        return UnreadableProblem(folder.name, group, str(file), str(error))
    return Problem(folder.name, group, str(file), text.encode())


def _task(file: Path) -> Mapping[str, object]:
    try:
        task = yaml_value(read_text(file))
    except Malformed as error:
        raise ConfigError(f"is not YAML: {error}") from error
    if not isinstance(task, dict):
        raise ConfigError(f"is a {type(task).__name__}, expected keys such as task_type")
    return task


def _problem(folder: Path, task: Mapping[str, object]) -> str:
    """Raises ConfigError for a task whose reference is anything else."""
    named = next(_modules(folder, task), "")
    if not named:
        kind = str(task.get("task_type"))[:40]
        raise ConfigError(
            f"is of the type {kind}, whose reference is the code of its own runner or repository; "
            f"expected one whose check has {_OPTION}, or that has a {MODULE}"
        )
    text = read_text(file_of(folder, named))
    tree = embedding.parse(text, named)
    missing = [name for name in _NEEDED if name not in embedding.functions(tree)]
    if missing:
        raise ConfigError(f"{named} has no function {missing[0]}, which says its sizes")
    return embedding.on_host(text).rstrip() + _TAIL.format(name=_class(tree, folder.name, named))


def _modules(folder: Path, task: Mapping[str, object]) -> Iterator[str]:
    """Names of the file with the reference, as far as the task says it."""
    commands = task.get("correctness_command")
    for command in commands if isinstance(commands, list) else [commands]:
        try:
            words = shlex.split(command) if isinstance(command, str) else []
        except ValueError as error:
            raise ConfigError(f"has a command that is none: {error}") from error
        if _OPTION in words[:-1]:
            yield words[words.index(_OPTION) + 1]
    if (folder / MODULE).is_file():
        yield MODULE


def _class(tree: ast.Module, task: str, named: str) -> str:
    """The module's class: Model, the one of the task's name, or the last with a ``forward``."""
    found = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, ast.FunctionDef) and one.name == "forward" for one in node.body)
    ]
    if not found:
        raise ConfigError(f"{named} has no class with a function forward")
    own = [name for name in found if name == "Model" or task.endswith(f"_{name}") or name == task]
    return (own or found)[-1]
