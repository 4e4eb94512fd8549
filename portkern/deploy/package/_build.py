"""Compiles a library's operators for the torch that is here, and kernels that came as texts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE, HEADERS = "operators.cpp", ("library.h", "plans.h")
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-w")


class CannotBuild(Exception):
    """Says why in one line, and what to do."""


def compiled_name(torch_version: str, *, cuda: bool) -> str:
    """The file of the operators for a version of torch; its patch level does not matter."""
    major, minor = torch_version.split("+")[0].split(".")[:2]
    return f"operators-torch{major}.{minor}-{'cuda' if cuda else 'cpu'}.so"


def build(folder: Path, out: Path) -> None:
    """Builds the sources in ``folder`` into the file ``out``. Raises CannotBuild."""
    import torch
    from torch.utils import cpp_extension

    compiler = _compiler()
    cuda = torch.version.cuda is not None
    home = cpp_extension.CUDA_HOME
    if cuda and not home:
        raise CannotBuild("no CUDA toolkit was found: set CUDA_HOME")
    root = Path(torch.__file__).parent
    include = [root / "include", root / "include/torch/csrc/api/include"]
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch"]
    flags = [*_FLAGS]
    if cuda:
        include.append(Path(str(home)) / "include")
        flags.append("-DPORTKERN_CUDA")
        libraries += ["-lc10_cuda", "-ltorch_cuda", "-ldl"]
    command = [compiler, *flags, *(f"-I{path}" for path in include), f"-I{folder}"]
    _run([*command, str(folder / SOURCE), f"-L{root / 'lib'}", *libraries], out)


def kernel(source: Path, compiler: str, flags: Sequence[str], folder: Path) -> Path:
    """The library of a kernel's text, which is kept in ``folder``. Raises CannotBuild."""
    found = _nvcc() if compiler == "nvcc" else _compiler()
    out = folder / f"{source.stem}.so"
    if not out.is_file():
        _run([found, *flags, str(source)], out)
    return out


def _compiler() -> str:
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not found:
        raise CannotBuild("no C++ compiler was found: install g++ or set CXX")
    return found


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc") or (shutil.which("nvcc", path=f"{home}/bin") if home else None)
    if not found:
        raise CannotBuild("no CUDA compiler was found: put nvcc on PATH or set CUDA_HOME")
    return found


def _run(command: Sequence[str], out: Path) -> None:
    """Raises CannotBuild."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            made = Path(scratch) / out.name
            said = [*command, "-o", str(made)]
            done = subprocess.run(said, capture_output=True, text=True, check=False)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                told = errors or done.stderr.splitlines() or [f"exit code {done.returncode}"]
                raise CannotBuild(f"{Path(command[0]).name}: {told[0][:300]}")
            made.replace(out)
    except OSError as error:
        raise CannotBuild(
            f"cannot write {out} or start {command[0]}: {error.strerror}; "
            "TORCH_EXTENSIONS_DIR names another folder"
        ) from error
