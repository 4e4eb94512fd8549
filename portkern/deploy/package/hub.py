"""The library as a repository of Hugging Face's ``kernels``: ``hub.write(FOLDER)``.

``get_local_kernel(FOLDER)`` loads it there, and ``kernelize`` takes its layers. As kernels 0.17.2
has it: ``build/torch-BACKEND`` with ``metadata.json``, layers with a ``forward`` alone.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._signature import METADATA, REPOSITORY, SIGNATURE

HERE = Path(__file__).parent

_HEAD = '''"""Layers of the library's operators, as ``kernelize`` takes them."""

import sys

import torch

_library = sys.modules[__package__]


'''
#: The layers by operator: each has that forward and reads what the module has that it replaces.
_LAYERS = {
    "rmsnorm": (
        "RMSNorm",
        "hidden_states",
        "rmsnorm(hidden_states, self.weight, self.variance_epsilon)",
    ),
    "layernorm": ("LayerNorm", "input", "layernorm(input, self.weight, self.bias, self.eps)"),
    "gelu": ("GELU", "input", "gelu(input)"),
    "relu": ("ReLU", "input", "relu(input)"),
}
#: What a layer asks of its module first: that it computes what the operator does.
_BEFORE = {
    "gelu": (
        "        kind = getattr(self, 'approximate', 'none')\n"
        "        if kind != 'none':\n"
        "            return torch.nn.functional.gelu(input, approximate=kind)\n"
    )
}


def write(folder: str | Path) -> Path:
    """Writes the repository, and returns the folder of its one variant: for this torch's backend.
    The library's own files stay as they were signed. Raises FileExistsError where there is one."""
    table: dict[str, Any] = importlib.import_module(__package__).TABLE
    cuda = any(kernel["backend"] == "cuda" for kernel in table["kernels"])
    backend = "cuda" if cuda else "cpu"
    out = Path(folder) / "build" / f"torch-{backend}"
    shutil.copytree(HERE, out, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    if not (out / REPOSITORY[0]).exists():  # else this is a repository already
        for own, there in zip((METADATA, SIGNATURE), REPOSITORY, strict=True):
            if (out / own).exists():
                (out / own).rename(out / there)
    document = _metadata(table, backend, out)
    (out / "metadata.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return out


def layers() -> list[str]:
    """The names of the layers that the repository has."""
    has = [one["name"] for one in importlib.import_module(__package__).TABLE["operators"]]
    return [kind for operator, (kind, _, _) in _LAYERS.items() if operator in has]


def text_of_layers(names: Sequence[str]) -> str:
    """The module ``layers`` of a library with these operators."""
    parts = [
        f"class {kind}(torch.nn.Module):\n    can_torch_compile = True\n    has_backward = True\n\n"
        f"    def forward(self, {given}):\n{_BEFORE.get(name, '')}"
        f"        return _library.{called}\n"
        for name, (kind, given, called) in _LAYERS.items()
        if name in names
    ]
    return _HEAD + "\n\n".join(parts)


def _metadata(table: dict[str, Any], backend: str, out: Path) -> dict[str, Any]:
    files = {
        str(file.relative_to(out)): base64.b64encode(
            hashlib.sha256(file.read_bytes()).digest()
        ).decode()
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }
    return {
        "name": table["name"].replace("_", "-"),
        "id": f"{table['name']}_{table['version'].rpartition('+g')[2]}",  # the module's name there
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": files},
    }
