"""Compiles a library's operators for the torch that is here. Copied into each library."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise CannotBuild("no C++ compiler was found: install g++ or set CXX")
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
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            made = Path(scratch) / out.name
            command = [compiler, *flags, *(f"-I{path}" for path in include), f"-I{folder}"]
            command += [str(folder / SOURCE), "-o", str(made), f"-L{root / 'lib'}", *libraries]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                said = errors or done.stderr.splitlines() or [f"exit code {done.returncode}"]
                raise CannotBuild(f"{Path(compiler).name}: {said[0][:300]}")
            made.replace(out)
    except OSError as error:
        raise CannotBuild(
            f"cannot write {out}: {error.strerror}; set TORCH_EXTENSIONS_DIR"
        ) from error
