"""Compiles a library's operators for the torch that is here, and kernels that came as texts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SOURCE, HEADERS = "operators.cpp", ("library.h", "plans.h")
#: A compiler that takes longer is ended: whoever imports the library waits for it.
TIMEOUT_S = 600.0
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
            status, said = _ended([*command, "-o", str(made)])
            if status:
                errors = [line for line in said.splitlines() if "error" in line]
                told = errors or said.splitlines() or [f"exit code {status}"]
                raise CannotBuild(f"{Path(command[0]).name}: {told[0][:300]}")
            made.replace(out)
    except OSError as error:
        raise CannotBuild(
            f"cannot write {out} or start {command[0]}: {error.strerror}; "
            "TORCH_EXTENSIONS_DIR names another folder"
        ) from error


def _ended(command: Sequence[str]) -> tuple[int, str]:
    """The status of a compiler and what it said. Raises OSError, and CannotBuild where it takes too
    long: it is ended then, with the processes that it started."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            name = Path(command[0]).name
            raise CannotBuild(f"{name} was ended, as it took over {TIMEOUT_S:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said
