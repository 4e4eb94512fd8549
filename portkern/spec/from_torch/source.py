"""Texts that are made of a file's: its operator as a function of tensors, and the file with other
sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from portkern.spec.from_torch.traced import Argument

#: Names are such that no file has them.
_HEAD = """

# ---- its operator as a function of tensors

import copy as _portkern_copy

import torch as _portkern_torch
from torch.utils._pytree import tree_leaves as _portkern_leaves

_PORTKERN_OPERATOR = {operator}

"""

_FUNCTION = """
def run({taken}):
{before}    return _portkern_outputs({called})


def _portkern_outputs(result):
    leaves = _portkern_leaves(result)
    return leaves[0] if len(leaves) == 1 else tuple(leaves)
"""

_MODULE = """
def _portkern_constructed():
    _portkern_torch.manual_seed(0)
    before = _portkern_torch.get_default_dtype()
    _portkern_torch.set_default_dtype(_portkern_torch.float32)
    try:
        own = getattr(_PORTKERN_OPERATOR, "__portkern_operator__", None)
        given = own.arguments if own else globals().get("get_init_inputs", ())
        given = given() if callable(given) else given
        named = given if isinstance(given, dict) else {{}}
        return _PORTKERN_OPERATOR(*(() if named else given), **named)
    finally:
        _portkern_torch.set_default_dtype(before)


def _portkern_is_fixed(model):
    \"\"\"Whether the module has tensors that are not inputs of the operator.\"\"\"
    named = dict((*model.named_parameters(), *model.named_buffers()))
    public = (
        value
        for module in model.modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
    )
    fixed = bool(set(named) - _PORTKERN_STATE)
    return fixed or any(
        isinstance(one, _portkern_torch.Tensor) for one in _portkern_leaves(list(public))
    )


def _portkern_hollow():
    \"\"\"The module without values, of which a large one has gigabytes; None where it has some that
    are not inputs, or its constructor reads them.\"\"\"
    try:
        with _portkern_torch.device("meta"):
            model = _portkern_constructed()
    except Exception:
        return None
    return None if _portkern_is_fixed(model) else model


_PORTKERN_STATE = {{{state}}}
_PORTKERN_MODEL, _PORTKERN_MODELS = _portkern_hollow() or _portkern_constructed(), {{}}
_PORTKERN_FIXED = _portkern_is_fixed(_PORTKERN_MODEL)


def _portkern_model(like, **sizes):
    \"\"\"The module for these numbers of the file; its own tensors are where ``like`` is.\"\"\"
    if like is None or not (_PORTKERN_FIXED or sizes):
        return _PORTKERN_MODEL
    globals().update(sizes)  # each time: its forward may read them as well
    key = (like.device, like.dtype, *sizes.values())
    if key not in _PORTKERN_MODELS:
        model = _portkern_constructed() if sizes else _portkern_copy.deepcopy(_PORTKERN_MODEL)
        kind = like.dtype if like.is_floating_point() else None
        model = model.to(like.device, kind)
        for module in model.modules():
            for name, value in vars(module).items():
                if isinstance(value, _portkern_torch.Tensor):
                    floats = value.is_floating_point() and kind is not None
                    module.__dict__[name] = value.to(like.device, kind if floats else value.dtype)
        _PORTKERN_MODELS[key] = model
    return _PORTKERN_MODELS[key]

"""


def reference_source(
    text: str,
    operator: str,
    *,
    inputs: Sequence[str],
    scalars: Sequence[str],
    state: Mapping[str, str],
    arguments: Sequence[Argument],
    module: bool,
    changes_itself: bool,
    constants: Mapping[str, str],
) -> str:
    """The file and, behind it, ``run``, which takes ``inputs`` and ``scalars`` in order. ``state``:
    where in the module each input that stands for a parameter or a buffer is. ``constants``: the
    numbers of the file that follow the inputs, and how."""
    taken = ", ".join((*inputs, *scalars))
    given = ", ".join(one.name or one.value for one in arguments)
    sizes = ", ".join(f"{name}={where}" for name, where in constants.items())
    head = text.rstrip() + _HEAD.format(operator=operator)
    if not module:
        before = f"    globals().update({sizes})\n" if sizes else ""
        called = f"_PORTKERN_OPERATOR({given})"
        return head + _FUNCTION.format(taken=taken, before=before, called=called)
    like = next((one.name for one in arguments if one.name in inputs), "None")
    model = f"_portkern_model({', '.join(filter(None, (like, sizes)))})"
    model = f"_portkern_copy.deepcopy({model})" if changes_itself else model
    values = ", ".join(f"{path!r}: {name}" for name, path in state.items())
    before = f"    _module = {model}\n    _state = {{{values}}}\n"
    inner = f"_module, _state, ({given}{',' * bool(given)})"
    called = f"_portkern_torch.func.functional_call({inner})"
    paths = ", ".join(map(repr, state.values())) or "*()"
    made = _MODULE.format(state=paths)
    return head + made + _FUNCTION.format(taken=taken, before=before, called=called)


def with_sizes(text: str, lengths: Mapping[str, int]) -> str:
    """The file with other values of its top-level integers of these names."""
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) != 1 or node.value is None:
            continue
        for name, value in reversed(_integers(targets[0], node.value)):
            if name in lengths and value.lineno == value.end_lineno:
                line = lines[value.lineno - 1].encode()
                head, tail = line[: value.col_offset], line[value.end_col_offset :]
                lines[value.lineno - 1] = (head + str(lengths[name]).encode() + tail).decode()
    return "".join(lines)


def _integers(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Names that are given a number, or several in one assignment."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return [(name.id, one) for name, one in pairs if isinstance(name, ast.Name)]
    return []


def replaceable(text: str) -> frozenset[str]:
    """The names whose values :func:`with_sizes` can change."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            found |= {
                name
                for name, value in _integers(node.targets[0], node.value)
                if not isinstance(value, ast.Tuple)
            }
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found.add(node.target.id)
    return frozenset(found)
