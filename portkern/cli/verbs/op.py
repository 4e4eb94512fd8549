"""``portkern op``: what operator a PyTorch file holds, as the sheet beside it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from portkern.cli import json_output
from portkern.cli.config import quoted, resolve
from portkern.errors import ConfigError, no_such
from portkern.evaluator import from_torch
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.spec import registry

_PARAMETERS = ("inputs", "constants")
#: What languages are called in a sentence.
_CALLED = {"c++": "C++", "cuda": "CUDA", "hip": "HIP", "opencl": "OpenCL"}


@dataclass
class OpOptions:
    op: str = MISSING
    fresh: bool = False
    parameters: str = "inputs"
    kernel: str = ""
    out: str = ""
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("op", OpOptions, [_spelled(text) for text in overrides])
    if options.parameters not in _PARAMETERS:
        raise no_such("choice of parameters", options.parameters, _PARAMETERS)
    if not from_torch.is_file(options.op):
        raise ConfigError(f"Got op={options.op}, expected a PyTorch file such as mine.py[:name]")
    file = from_torch.OperatorFile.read(options.op)
    lift = options.parameters == "inputs"
    sheet, path = from_torch.sheet_of(file, fresh=options.fresh, lift=lift)
    op = sheet.op(file.source)
    backend = registry.load(options.kernel or "cpu")
    language = from_torch.PLAIN.get(backend.name, "c++")
    prototype = backend.declaration(op.signature, language)
    kernel = _written_kernel(options, file, op.name) if options.kernel else None
    if options.json:
        said = sheet.model_dump(mode="json")
        json_output.show(
            {"sheet": str(path), "prototype": prototype, "exit_code": 0, **said}
            | ({"kernel": str(kernel)} if kernel else {})
        )
        return 0
    print(printable(sheet.text()), end="")
    head = "\n".join(f"#   {line}" for line in prototype.splitlines())
    called = _CALLED.get(language, language.capitalize())
    print(printable(f"\n# {path}; a kernel in {called} defines\n{head}"))
    if kernel:
        check = f"portkern check op={file.name} backend={backend.name} source={kernel}"
        print(printable(f"# {kernel} is a plain kernel of it; to evaluate it:\n#   {check}"))
    return 0


def _written_kernel(options: OpOptions, file: from_torch.OperatorFile, op: str) -> Path:
    """Named as kernels of a folder are, beside the file. Raises ConfigError."""
    source = from_torch.plain_kernel(file.name, options.kernel)
    backend = registry.load(options.kernel)
    language = from_torch.PLAIN[options.kernel]
    suffix = next(s for s, known in backend.languages.items() if known == language)
    name = f"{op}.{backend.name}{suffix}" if suffix == ".py" else f"{op}{suffix}"
    path = Path(options.out) if options.out else file.path.with_name(name)
    if path.exists() and not options.fresh:
        raise ConfigError(f"{path} is there already; out=FILE writes elsewhere, fresh=true over it")
    atomic_write.write(path, source)
    return path


def _spelled(text: str) -> str:
    """``FILE.py`` alone is the operator; Hydra wants quotes around a colon."""
    name, _, value = text.rpartition("=") if text.startswith("op=") else ("op", "", text)
    if name == "op" and "=" not in value:
        return f"op={quoted(value)}"
    return text
