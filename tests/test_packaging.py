"""An installation holds what the repository holds, and nothing is pinned twice."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

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
    from portkern.spec import registry

    guides = (ROOT / "backends").glob("*/guide.md")  # backends/gpu is what two of them share
    folders = {guide.parent.name for guide in guides}
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
    (litellm,) = (one for one in EXTRAS["llm"] if one.startswith("litellm"))
    assert "!=1.82.7" in litellm
    assert "!=1.82.8" in litellm
    assert pins("base.txt")["litellm"] not in ("1.82.7", "1.82.8")


# tools/setup.py, which has no other test than to run it


def load_setup() -> Any:
    spec = spec_from_file_location("portkern_setup", ROOT / "tools" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETUP = load_setup()


def test_uv_is_told_what_pip_is_configured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_FIND_LINKS", "UV_INDEX", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.invalid/simple")
    pip = {
        "find-links": ["/a", "/b"],
        "extra-index-url": ["https://x.invalid", "https://y.invalid"],
        "index-url": ["https://z.invalid"],
        "timeout": ["9"],
    }
    assert SETUP.uv_settings(pip) == {
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX": "https://x.invalid https://y.invalid",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize(
    ("requires", "constraints", "extras"),
    [
        (["filelock"], "cpu.txt", {"triton", "hip"}),
        (["triton==3.7.1; platform_system == 'Linux'"], "base.txt", {"triton", "hip"}),
        (["triton-rocm==3.7.1"], "base.txt", {"clang"}),
        (["pytorch-triton-xpu==3.5.0"], "base.txt", {"clang"}),
    ],
    ids=["cpu", "cuda", "rocm", "xpu"],
)
def test_what_is_installed_depends_on_the_torch_that_is_there(
    requires: list[str],
    constraints: str,
    extras: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    torch = SETUP.Torch("2.13.0+x", requires)
    monkeypatch.setattr(SETUP, "VENV", tmp_path)
    text = SETUP.write_constraints(torch).read_text()
    assert f"{constraints}\ntorch==2.13.0+x\n" in text
    assert {"triton", "hip", "clang"} & set(SETUP.wanted_extras(torch)) == extras
    assert {"cuda", "tracking", "dev"} <= set(SETUP.wanted_extras(torch))
