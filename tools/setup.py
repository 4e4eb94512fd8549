"""Puts a working portkern into .venv (`make setup`). Standard library only; never runs twice for
nothing: a stamp keeps the hash of what it installed from.

INSTALLER=uv or INSTALLER=pip chooses; otherwise uv, and pip where uv cannot be had or fails.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "portkern-setup"
CONSTRAINTS = ROOT / "constraints"

#: pip's option -> uv's variable and what separates its values. uv does not read pip's files.
_UV_VARIABLES = {
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "no-index": ("UV_NO_INDEX", ""),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
}


class Installer(NamedTuple):
    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]

    def run(self, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        """Install; ``quiet`` keeps what the installer says for the caller."""
        pipe = subprocess.PIPE if quiet else None
        return subprocess.run(
            [*self.argv, *arguments],
            cwd=ROOT,
            env={**os.environ, **self.env},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )


class Torch(NamedTuple):
    version: str
    requires: list[str]

    @property
    def triton(self) -> str | None:
        """The distribution through which this build brings a triton of its own."""
        for requirement in self.requires:
            name = re.match(r"[A-Za-z0-9._-]+", requirement)
            if name and "triton" in name[0]:
                return name[0]
        return None


def main() -> int:
    stamp = fingerprint()
    if PYTHON.exists() and STAMP.exists():
        installed, _, missing = STAMP.read_text().partition("\n")
        if installed == stamp:
            if missing:
                say(f"without [{missing}] since last time; rm {STAMP.relative_to(ROOT)} to retry")
            return 0
    started = time.monotonic()
    accelerator = find_accelerator()
    shared_torch = make_venv(accelerator)
    installers = find_installers(pip_only=shared_torch)
    torch = ensure_torch(installers, accelerator)
    constraints = write_constraints(torch)
    left_out = install(installers, wanted_extras(torch), constraints)
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        say("no g++ or clang++ on PATH: kernels that need a host compiler will be unavailable")
    STAMP.write_text(f"{stamp}\n{','.join(left_out)}")
    say(f"ready in {time.monotonic() - started:.0f} s: .venv/bin/portkern (torch {torch.version})")
    return 0


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)  # noqa: T201


def fail(text: str) -> SystemExit:
    say(text)
    return SystemExit(3)


def fingerprint() -> str:
    digest = hashlib.sha256(str(ROOT).encode())  # a venv that was moved no longer works
    for path in [ROOT / "pyproject.toml", Path(__file__), *sorted(CONSTRAINTS.glob("*.txt"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def find_accelerator() -> str | None:
    if Path("/dev/kfd").exists():
        return "AMD"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=60)
    return "NVIDIA" if "GPU 0" in listed.stdout else None


def make_venv(accelerator: str | None) -> bool:
    """Create .venv unless it works already; True if it sees a torch outside of it.

    GPU images carry a torch built for their driver: it is used rather than fetched again.
    """
    config = VENV / "pyvenv.cfg"
    if works(PYTHON):
        return "include-system-site-packages = true" in config.read_text()
    shared = accelerator is not None and importlib.util.find_spec("torch") is not None
    say(f"creating .venv with Python {sys.version.split()[0]}")
    venv.create(VENV, clear=VENV.exists(), with_pip=True, system_site_packages=shared)
    return shared


def works(python: Path) -> bool:
    if not python.exists():
        return False
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def find_installers(*, pip_only: bool) -> list[Installer]:
    """The installers in the order to try them. uv does not see packages outside of the venv, pip
    does."""
    # Both would otherwise leave every first import to compile its files again.
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    pip = Installer("pip", (str(PYTHON), "-m", "pip", "install", "-q"), env)
    asked = os.environ.get("INSTALLER", "")
    if asked not in ("", "uv", "pip"):
        raise fail(f"INSTALLER={asked}, expected uv or pip")
    if asked == "pip" or pip_only:
        return [pip]
    uv = find_uv(pip)
    if uv is None:
        if asked == "uv":
            raise fail("INSTALLER=uv, but there is no uv and pip cannot install it")
        return [pip]
    command = (*uv, "pip", "install", "--python", str(PYTHON), "--compile-bytecode")
    return [Installer("uv", command, env | uv_settings(pip_settings())), pip]


def find_uv(pip: Installer) -> tuple[str, ...] | None:
    """uv from PATH or the venv, or fetched into it: 25 MB that save minutes."""
    on_path = shutil.which("uv")
    if on_path:
        return (on_path,)
    own = (str(PYTHON), "-m", "uv")
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    fetched = pip.run("-c", str(CONSTRAINTS / "base.txt"), "uv", quiet=True)
    return own if fetched.returncode == 0 else None


def pip_settings() -> dict[str, list[str]]:
    """The options that pip is configured with; a variable outranks a file."""
    listed = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found: dict[str, tuple[int, list[str]]] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        rank = (
            ("global", "install", ":env:").index(section)
            if section in ("global", "install", ":env:")
            else -1
        )
        if rank >= found.get(option, (0, []))[0]:
            found[option] = rank, str(ast.literal_eval(value)).split()
    return {option: values for option, (_, values) in found.items()}


def uv_settings(pip: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """pip's settings as uv's variables; those that the user has set already stay."""
    settings = {
        variable: separator.join(pip[option]) if separator else pip[option][0]
        for option, (variable, separator) in _UV_VARIABLES.items()
        if pip.get(option)
    }
    # pip takes the best version of all its indexes; uv, unless told, of the first that has any.
    settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in settings.items() if name not in os.environ}


def ensure_torch(installers: Sequence[Installer], accelerator: str | None) -> Torch:
    """The torch of the venv, whatever build it is; one is installed only where there is none."""
    torch = installed_torch()
    if torch:
        return torch
    if accelerator == "AMD":
        say(
            "AMD GPU found, and no torch in .venv: the default index has no ROCm build. To run on "
            "this GPU, install ROCm's torch into .venv and call `make setup` again"
        )
    pin = [] if accelerator else ["-c", str(CONSTRAINTS / "torch.txt")]
    say(f"installing torch with {installers[0].name}")
    for installer in installers:
        installer.run("-c", str(CONSTRAINTS / "base.txt"), *pin, "torch>=2.6")
        torch = installed_torch()
        if torch:
            return torch
    raise fail("torch could not be installed: the messages above say why")


def installed_torch() -> Torch | None:
    script = (
        "import json; from importlib.metadata import distribution as d; t = d('torch');"
        "print(json.dumps([t.version, t.requires or []]))"
    )
    asked = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    return Torch(*json.loads(asked.stdout)) if asked.returncode == 0 else None


def write_constraints(torch: Torch) -> Path:
    """The versions to install beside this torch, which itself stays as it is."""
    path = VENV / "constraints.txt"
    name = "base.txt" if torch.triton else "cpu.txt"
    path.write_text(f"-c {CONSTRAINTS / name}\ntorch=={torch.version}\n")
    return path


def wanted_extras(torch: Torch) -> list[str]:
    """The parts of ``[all]``, ``tpu`` and ``dev``.

    libtpu is 137 MB to fetch and its terms are Google Cloud's: who installs portkern asks for it by
    name, and whoever tests it has it, as what only a compiler says is tested with one.
    ROCm's and XPU's torch bring triton under another name; PyPI's would overwrite its files.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (everything,) = project["optional-dependencies"]["all"]
    extras = everything.removeprefix("portkern[").removesuffix("]").split(",")
    if torch.triton not in (None, "triton"):
        extras = [{"hip": "clang"}.get(extra, extra) for extra in extras if extra != "triton"]
    return [*extras, "tpu", "dev"]


def install(installers: Sequence[Installer], extras: list[str], constraints: Path) -> list[str]:
    """All at once; where that fails, one extra after the other. Returns the extras left out."""

    def editable(wanted: list[str]) -> list[str]:
        return ["-c", str(constraints), "-e", f".[{','.join(wanted)}]" if wanted else "."]

    for installer in installers:
        say(f"installing portkern[{','.join(extras)}] with {installer.name}")
        if installer.run(*editable(extras)).returncode == 0:
            return []
    say("the whole set does not install here; trying one extra after the other")
    working = next((i for i in installers if i.run(*editable([])).returncode == 0), None)
    if working is None:
        raise fail("portkern itself could not be installed: the messages above say why")
    left_out = []
    for extra in extras:
        tried = working.run(*editable([extra]), quiet=True)
        if tried.returncode != 0:
            left_out.append(extra)
            reason = " ".join(tried.stderr.split())[-300:]
            say(f"without [{extra}]: {reason}")
    return left_out


if __name__ == "__main__":
    sys.exit(main())
