"""What is installed is what the repository holds, and nothing is pinned twice."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}
TOP = [ROOT / name for name in ("portkern", *FOLDERS)]
EXTRAS = PROJECT["project"]["optional-dependencies"]


def package_of(folder: Path) -> str:
    top, *rest = folder.relative_to(ROOT).parts
    return ".".join([FOLDERS.get(top, top), *rest])


def shipped(top: Path) -> list[Path]:
    """The files that git keeps below a package's folder."""
    ignored = ("__pycache__", "local")
    return [p for p in top.rglob("*") if p.is_file() and not set(ignored) & set(p.parts)]


def test_every_package_is_listed() -> None:
    found = {package_of(init.parent) for top in TOP for init in top.rglob("__init__.py")}
    assert found == set(SETUPTOOLS["packages"])


def test_every_file_belongs_to_a_package_or_its_data() -> None:
    patterns = SETUPTOOLS["package-data"]["*"]
    packages = {init.parent for top in TOP for init in top.rglob("__init__.py")}
    left_out = []
    for path in (file for top in TOP for file in shipped(top)):
        if path.parent in packages and path.suffix == ".py":
            continue
        home = next(folder for folder in path.parents if folder in packages)
        inside = path.relative_to(home).as_posix()
        # fnmatch's * also crosses folders, setuptools' does not: ** is the one that may.
        if not any(
            fnmatch(inside, pattern.replace("**/", "*"))
            and (inside.count("/") == pattern.count("/") or "**" in pattern)
            for pattern in patterns
        ):
            left_out.append(path.relative_to(ROOT).as_posix())
    assert not left_out, "no pattern of [tool.setuptools.package-data] matches these"


def test_every_backend_can_be_named() -> None:
    from portkern import registry

    folders = {init.parent.name for init in (ROOT / "backends").glob("*/__init__.py")}
    assert folders == set(registry.BUILTIN)


def test_the_extra_all_has_every_backends_extra() -> None:
    (everything,) = EXTRAS["all"]
    named = set(everything.removeprefix("portkern[").removesuffix("]").split(","))
    assert named <= set(EXTRAS)
    assert {"triton", "numba", "pallas", "opencl", "hip", "cuda", "tracking"} <= named


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "constraints" / name).read_text()
    return {
        re.sub(r"[-_.]+", "-", package).lower(): version
        for package, version in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)
    }


def test_constraints_are_exact_and_leave_torchs_own_pins_to_torch() -> None:
    base, cpu = pins("base.txt"), pins("cpu.txt")
    lines = [
        line
        for file in (ROOT / "constraints").glob("*.txt")
        for line in file.read_text().splitlines()
        if line and not line.startswith(("#", "-c"))
    ]
    assert len(lines) == len(base) + len(cpu) + len(pins("torch.txt"))
    assert not set(base) & set(cpu)
    # A CUDA build of torch pins these itself, to other versions.
    assert not [name for name in base if re.match(r"torch$|triton|nvidia-", name)]


def test_the_poisoned_litellm_is_excluded_and_not_pinned() -> None:
    (litellm,) = EXTRAS["llm"]
    assert "!=1.82.7" in litellm
    assert "!=1.82.8" in litellm
    assert pins("base.txt")["litellm"] not in ("1.82.7", "1.82.8")
