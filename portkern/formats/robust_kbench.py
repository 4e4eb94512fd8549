"""robust-kbench's tasks: ``func_forward.py`` with ``Model`` and ``get_inputs(**sizes)``, and
``config_forward.json`` with the sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import embedding
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import Malformed, json_value, read_text

_FILE, _CONFIG = "func_forward.py", "config_forward.json"
_TAIL = """

# ---- portkern: the task's sizes; the first is the one that it is timed at
_PORTKERN_CASES = [
{cases}]
_PORTKERN_CONSTRUCTED = {arguments!r}


def get_input_groups():
    return [get_inputs(**case) for case in _PORTKERN_CASES]


def get_init_inputs():
    return _PORTKERN_CONSTRUCTED
"""


def read(path: Path) -> list[Item]:
    """The problems of all tasks below a folder. Raises ConfigError where there is none."""
    files = sorted(path.rglob(_FILE))
    if not files:
        raise ConfigError(f"No {_FILE} below {path}; expected folders with it and {_CONFIG}")
    return [_read(path, file) for file in files]


def _read(root: Path, file: Path) -> Item:
    folder = file.parent
    name = _title(folder)
    group = "_".join(folder.relative_to(root).parts[:-1]).removeprefix("tasks_") or "tasks"
    try:
        text = _text(file)
    except ConfigError as error:
        return UnreadableProblem(name, group, str(file), str(error))
    return Problem(name, group, str(file), text.encode())


def _title(folder: Path) -> str:
    """A task that was made of another's problem has that beside it, under its name."""
    others = [one.stem for one in folder.glob("*.py") if not one.stem.startswith("func_")]
    return others[0] if len(others) == 1 else folder.name


def _text(file: Path) -> str:
    """Raises ConfigError."""
    source = read_text(file)
    tree = embedding.parse(source, _FILE)
    takes = _parameters(tree, "get_inputs")
    if takes is None:
        raise ConfigError("has no function get_inputs; expected it and a class Model")
    model = _class(tree, "Model")
    if model is None:
        raise ConfigError("has no class Model; expected it and a function get_inputs")
    constructs = _parameters(model, "__init__") or []
    config = _config(file.with_name(_CONFIG))
    shared, init = _first(config, "single_shared_configs"), _first(config, "single_init_configs")
    cases = [{**_first(config, "single_input_configs"), **shared}]
    if "multi_shared_configs" not in config or shared in _all(config, "multi_shared_configs"):
        cases += [{**one, **shared} for one in _all(config, "multi_input_configs")]
    known = [{key: one[key] for key in one if key in takes} for one in cases]
    distinct = [one for number, one in enumerate(known) if one not in known[:number]]
    arguments = {key: value for key, value in {**shared, **init}.items() if key in constructs}
    lines = "".join(f"    {case!r},\n" for case in distinct)
    return embedding.on_host(source).rstrip() + _TAIL.format(cases=lines, arguments=arguments)


def _config(file: Path) -> Mapping[str, object]:
    try:
        config = json_value(read_text(file))
    except Malformed as error:
        raise ConfigError(f"has a {_CONFIG} that is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"has a {_CONFIG} that is not a JSON object")
    return config


def _all(config: Mapping[str, object], key: str) -> list[dict[str, object]]:
    several = config.get(key) or [{}]
    if not isinstance(several, list) or not all(isinstance(one, dict) for one in several):
        raise ConfigError(f"has {key} in {_CONFIG} that are not a list of arguments")
    return several


def _first(config: Mapping[str, object], key: str) -> dict[str, object]:
    return _all(config, key)[0]


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    found = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return next(found, None)


def _parameters(tree: ast.Module | ast.ClassDef, name: str) -> Sequence[str] | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
    return None
