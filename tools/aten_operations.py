"""Writes the list of PyTorch's operations that the executor leaves to the torch of the process,
from the schemas of the torch that is installed: `python -m tools.aten_operations`.

Those whose first argument is a tensor and that return tensors, lists of them or a bool are in it,
but for what the executor's own headers define.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).resolve().parents[1] / "portkern" / "simt" / "include"
LIST = INCLUDE / "ATen" / "core" / "operations.inc"
_ABOUT = """\
// Operations of PyTorch that the runtime has none of its own for, by their names in aten. Those
// that end in "_" change their tensor; what some return is not one tensor. Written by
// tools/aten_operations.py.
"""
#: Words of C++, and names that are macros or objects of the system's headers.
_NOT_NAMES = frozenset(["and", "or", "not", "xor", "signbit", "stride", "size", "alias", "to"])
#: What other libraries do below an operation is not asked for by its name.
_BELOW = re.compile(
    r"(?:cudnn|miopen|mkldnn|fbgemm|quantized|xnnpack|sparse|to_sparse|lift|fake_quantize|q_per)_"
    r"|\w*(?<!index)_(?:backward|copy|jvp|mkldnn|overrideable|functional)_?$"
)
#: They change what a tensor is and not its elements, which is all that comes back of a copy.
_OF_SHAPE = frozenset(
    """as_strided_ detach_ requires_grad_ resize_ resize_as_ resize_as_sparse_ set_ squeeze_
    swapaxes_ swapdims_ t_ transpose_ unsqueeze_ retains_grad""".split()
)
_DEFINITION = re.compile(r"(?m)^ *(?!return)[\w:<>, ]+[\w>&*] ([a-z]\w*)\(")
#: Views that are copies here: what is written to one does not reach its tensor. No further ones.
_COPIED = frozenset(
    """broadcast_to chunk conj diagonal moveaxis movedim split
    split_with_sizes swapaxes tensor_split unbind unfold""".split()
)
#: The overload that is taken of those that return several types: the one that takes nothing or the
#: fewest dimensions.
_CHOSEN = {"median": "Tensor", "where": "Tensor", "mode": "std::tuple<Tensor, Tensor>"}


def text() -> str:
    """The list for the torch that is installed."""
    own = defined() - _CHOSEN.keys()
    lines = [f"{_line(name, kind)}\n" for name, kind in found().items() if name not in own]
    return _ABOUT + "".join(lines)


def found() -> Mapping[str, str]:
    """The operations by name, with the C++ type of what each returns; those whose overloads return
    several types are left out."""
    import torch

    kinds: dict[str, set[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        is_name = name != schema.name and re.fullmatch(r"[a-z]\w*", name) is not None
        if is_name and name not in _NOT_NAMES | _OF_SHAPE and not _BELOW.match(name):
            kinds.setdefault(name, set()).update(_kinds(schema, name))
    single = {name: next(iter(of)) for name, of in kinds.items() if len(of) == 1} | _CHOSEN
    return {name: single[name] for name in sorted(single) if single[name]}


def _kinds(schema: Any, name: str) -> Iterator[str]:
    """Yields what an overload on a tensor returns, '' for what has no C++ type here; nothing for
    one that writes to tensors it is given, and for one of TorchScript's alone."""
    given = schema.arguments
    if not given or str(given[0].type) != "Tensor" or any(one.is_out for one in given):
        return
    of_view = [one.alias_info for one in schema.returns if one.alias_info is not None]
    if any(not alias.is_write for alias in of_view) and name not in _COPIED:
        yield ""
    types = [str(one.type) for one in schema.returns]
    if types == ["Tensor"]:
        yield "Tensor"
    elif types and set(types) == {"Tensor"}:
        yield f"std::tuple<{', '.join(types)}>"
    else:
        yield {"List[Tensor]": "std::vector<Tensor>", "bool": "bool"}.get(",".join(types), "")


def defined() -> frozenset[str]:
    """The names of functions that the executor's own headers of PyTorch define."""
    files = [INCLUDE / "ATen" / "core" / "Tensor.h", *(INCLUDE / "torch").rglob("*.h")]
    files += [INCLUDE / "ATen" / "TensorIndexing.h", INCLUDE / "c10" / "core" / "Device.h"]
    texts = (file.read_text("utf-8") for file in files if file.is_file())
    return frozenset(name for each in texts for name in _DEFINITION.findall(each))


def _line(name: str, kind: str) -> str:
    return f"SIMT_OPERATION({name})" if kind == "Tensor" else f"SIMT_SEVERAL({name}, {kind})"


if __name__ == "__main__":
    LIST.write_text(text(), encoding="utf-8")
