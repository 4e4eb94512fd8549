"""GPU MODE's problems: folders with ``task.yml`` and ``reference.py``, which has ``generate_input``
and ``ref_kernel``. The sizes are the task's tests and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import embedding
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import Malformed, read_text, yaml_value
from portkern.spec.from_torch.names import operator_name
from portkern.spec.safe_name import file_of

_REFERENCE = "ref_kernel"
#: What a submission is put into, and what runs it.
_NOT_OURS = ("@SUBMISSION@", "eval.py")
_TAIL = """

# ---- portkern: the task's sizes, and its reference as a function of tensors
_PORTKERN_CASES = [
{cases}]


_PORTKERN_FORMS = {{}}


def _portkern_form(leaves):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_structure

    for case in _PORTKERN_CASES:
        if leaves in _PORTKERN_FORMS:
            break
        with FakeTensorMode():  # which needs no memory
            form = tree_structure(generate_input(**case))
        _PORTKERN_FORMS.setdefault(form.num_leaves, form)
    return _PORTKERN_FORMS[leaves]


def _portkern_cases():
    from torch.utils._pytree import tree_flatten

    several = []
    for case in _PORTKERN_CASES:
        leaves, form = tree_flatten(generate_input(**case))
        _PORTKERN_FORMS.setdefault(len(leaves), form)
        several.append(leaves)
    return several


import portkern as _portkern


@_portkern.operator(cases=_portkern_cases)
def {name}(*data):
    from torch.utils._pytree import tree_unflatten

    return {reference}(tree_unflatten(list(data), _portkern_form(len(data))))
"""


def read(path: Path) -> list[Item]:
    """Reads all ``task.yml`` below a folder, or one. Raises ConfigError where there is none."""
    files = [path] if path.is_file() else sorted(path.rglob("task.yml"))
    if not files:
        raise ConfigError(
            f"No task.yml below {path}; expected folders with task.yml and reference.py"
        )
    return [_read(file, path if path.is_dir() else path.parent) for file in files]


def _read(file: Path, root: Path) -> Item:
    folder = file.parent
    try:
        text = _text(file, root)
    except ConfigError as error:
        return UnreadableProblem(folder.name, folder.parent.name, str(file), str(error))
    return Problem(folder.name, folder.parent.name, str(file), text.encode())


def _text(file: Path, root: Path) -> str:
    """Raises ConfigError."""
    task = _task(file)
    modules = _modules(file, root, task)
    reference = modules.pop("reference", None)
    if reference is None:
        raise ConfigError("names no reference.py among its files")
    tree = embedding.parse(reference, "reference.py")
    known = embedding.functions(tree)
    for name in ("generate_input", _REFERENCE):
        if name not in known:
            have = ", ".join(known) or "none"
            raise ConfigError(f"reference.py has no function {name}; its functions are {have}")
    cases = _cases(task)
    body = embedding.with_modules(embedding.on_host(reference), modules)
    lines = "".join(f"    {case!r},\n" for case in cases)
    name = operator_name(file.parent.name)
    name = f"{name}_op" if name in known else name
    return body.rstrip() + _TAIL.format(cases=lines, name=name, reference=_REFERENCE)


def _task(file: Path) -> Mapping[str, object]:
    try:
        task = yaml_value(read_text(file))
    except Malformed as error:
        raise ConfigError(f"is not YAML: {error}") from error
    if not isinstance(task, dict):
        raise ConfigError(f"is a {type(task).__name__}, expected keys such as files and tests")
    return task


def _modules(file: Path, root: Path, task: Mapping[str, object]) -> dict[str, str]:
    """Texts of the task's Python files, without devices, by the names they are imported by: those
    that others import come first, which the task does not say."""
    found: dict[str, str] = {}
    named = task.get("files")
    for one in named if isinstance(named, list) else []:
        name, source = (one.get("name"), one.get("source")) if isinstance(one, dict) else (0, 0)
        if not isinstance(name, str) or not isinstance(source, str):
            raise ConfigError(f"has {one!r} in files, expected name and source")
        if source in _NOT_OURS or Path(source).name in _NOT_OURS or not name.endswith(".py"):
            continue
        text = read_text(file_of(file.parent, source, root=root))
        embedding.parse(text, source)
        module = name.removesuffix(".py")
        found[module] = text if module == "reference" else embedding.on_host(text)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "utils", item[0] != "task")))


def _cases(task: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The cases, each once. Raises ConfigError where there is none."""
    cases: list[Mapping[str, object]] = []
    for key in ("tests", "benchmarks"):
        given = task.get(key) or []
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise ConfigError(f"has {key} that are not a list of arguments of generate_input")
        cases += [one for one in given if one not in cases]
    if not cases:
        raise ConfigError("has no tests and no benchmarks, so nothing says its sizes")
    return cases
