"""TritonBench-T's rows: ``name``, ``torch_code``, ``example`` and ``file``, a Python file in the
folder beside them that has the operator and, below a line of ``#``, tests. What it takes is in the
first call of it in the tests, or in the example where there is no such file."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import embedding, rows
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import python_tree, read_text
from portkern.spec.from_torch.names import operator_name
from portkern.spec.safe_name import file_of

#: The length of a line of ``#`` between an operator and its tests; theirs are some longer.
_RULE = 80
#: Words of one entered line that may be Python.
_MOST_WORDS = 1_000
_TEXT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.special

import portkern as _portkern

{head}

def get_inputs():
{body}
    return [{given}]


@_portkern.operator(inputs=get_inputs)
def {name}({taken}):
    return {called}({passed})
"""


def read(path: Path) -> list[Item]:
    """Raises ConfigError where there is no row."""
    items = [_of_row(row, path.with_suffix("")) for row in rows.of(path)]
    if not items:
        raise ConfigError(f"No row in {path}; expected name, torch_code and example")
    return items


def _of_row(row: rows.TableRow, folder: Path) -> Item:
    name = str(row.values.get("name") or Path(row.place).name)
    try:
        if row.problem:
            raise ConfigError(row.problem)
        name = row.field("name", str)
        beside = file_of(folder, str(row.values.get("file") or f"{name}.py"))
        if beside.is_file():
            text = _of_file(name, read_text(beside))
        else:
            text = _of_texts(name, row.field("torch_code", str), row.field("example", str))
    except ConfigError as error:
        return UnreadableProblem(name, "", row.place, str(error))
    return Problem(name, "", row.place, text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class _Example:
    """``head``: what defines; ``before``: what makes the inputs of ``call``."""

    head: list[ast.stmt]
    before: list[ast.stmt]
    call: ast.Call


def _of_file(name: str, text: str) -> str:
    """Raises ConfigError."""
    embedding.parse(text, "its file")
    code, _, tests = embedding.on_host(text).partition("#" * _RULE)
    found: _Example | None = None
    for node in embedding.parse(tests.lstrip("#"), "the tests of its file").body:
        if isinstance(node, ast.FunctionDef) and found is None:
            found = _example(node.body, name)
    if found is None:
        raise ConfigError(f"has no call of {name} in the tests of its file")
    head = embedding.parse(code, "its file").body
    return _written(replace(found, head=[*head, *found.head]))


def _of_texts(name: str, code: str, example: str) -> str:
    """Raises ConfigError."""
    plain = _plain(example)
    embedding.parse(plain, "its example")
    found = _example(python_tree(embedding.on_host(plain)).body, name)
    if found is None:
        raise ConfigError(f"has no call of {name} in its example, so nothing says what it takes")
    called = ast.unparse(found.call.func)
    base = called.rpartition(".")[2]
    if "." in called or base in _defined(found.head) or _imported(found.head, base):
        return _written(found)
    return _written(replace(found, head=[*found.head, *_definition(code, base)]))


def _written(found: _Example) -> str:
    """Raises ConfigError."""
    head = "\n\n".join(map(ast.unparse, found.head))
    called = ast.unparse(found.call.func)
    base = called.rpartition(".")[2]
    defined = _defined(found.head)
    arguments = [*found.call.args, *(one.value for one in found.call.keywords)]
    if any(isinstance(one, ast.Starred) for one in arguments) or any(
        one.arg is None for one in found.call.keywords
    ):
        raise ConfigError(f"calls {called} with a list of arguments, expected each by itself")
    taken = [f"x{number}" for number in range(len(arguments))]
    places = len(found.call.args)
    keywords = [one.arg for one in found.call.keywords]
    passed = taken[:places] + [
        f"{key}={given}" for key, given in zip(keywords, taken[places:], strict=True)
    ]
    body = "\n".join(map(ast.unparse, found.before)) or "pass"
    own = operator_name(base)
    return _TEXT.format(
        head=head,
        body="\n".join(f"    {line}" for line in body.split("\n")),
        given=", ".join(map(ast.unparse, arguments)),
        name=f"{own}_op" if own in (base, *defined) else own,
        taken=", ".join(taken),
        called=called,
        passed=", ".join(passed),
    )


def _plain(example: str) -> str:
    """The example without a fence and without an interpreter's prompts and answers."""
    fenced = re.search(r"```(?:python)?\s*\n(.*?)```", example, re.DOTALL)
    text = fenced[1] if fenced else example
    if ">>>" not in text:
        return text
    first, *asked = re.split(r">>> ?", text)  # of which several may stand in one line
    return "\n".join(map(_entered, [first, *asked]))


def _entered(text: str) -> str:
    """The part of ``text`` that was entered, without the answer to it: as much as is Python."""
    lines = text.split("\n")
    more = [line.partition("...")[2] for line in lines[1:] if line.lstrip().startswith("...")]
    words = "\n".join([lines[0], *(line.removeprefix(" ") for line in more)]).rstrip().split(" ")
    for count in range(min(len(words), _MOST_WORDS), 0, -1):
        entered = " ".join(words[:count])
        try:
            python_tree(entered)
        except SyntaxError:
            continue
        return entered
    return ""


def _example(body: list[ast.stmt], name: str) -> _Example | None:
    """The first call of ``name`` at the top level; None where there is none."""
    base = name.rpartition(".")[2]
    head: list[ast.stmt] = []
    before: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            head.append(node)
            continue
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
        fitting = [one for one in calls if _called(one) == base]
        if fitting:
            return _Example(head, before, fitting[0])
        if not _prints(node):
            before.append(node)
    return None


def _defined(head: list[ast.stmt]) -> list[str]:
    return [node.name for node in head if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _prints(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and _called(call) == "print"


def _imported(head: list[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and name in [one.asname or one.name for one in node.names]
        for node in head
    )


def _definition(code: str, name: str) -> list[ast.stmt]:
    """The row's own code, which defines the function. Raises ConfigError."""
    if name not in embedding.functions(embedding.parse(code, "its torch_code")):
        raise ConfigError(
            f"has no file beside it and defines no function {name} in its example or its "
            "torch_code, expected one of these"
        )
    return python_tree(embedding.on_host(code)).body
