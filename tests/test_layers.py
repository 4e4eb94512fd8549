"""Imports point one way: a package imports from the rows above its own in the table."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Lowest first; packages of one row do not import each other.
LAYERS = [
    "cuda_source errors printable",
    "spec",
    "ops guard records rounding toolchain",
    "regression",
    "isa sandbox simt tuning report formats",
    "worker",
    "evaluator",
    "cells",
    "agent deploy execution project",
    "learn port serve",
    "env experiment",
    "redteam tracking",
    "cli testing",
    "api",
]
DEPTH = {name: depth for depth, row in enumerate(LAYERS) for name in row.split()}
#: What a backend is written against.
CONTRACT = {"errors", "spec", "toolchain", "isa", "simt"}
MOST_MODULES_IN_THE_ROOT = 5
CORE = sorted(
    path for path in (ROOT / "portkern").rglob("*.py") if path.parent != ROOT / "portkern"
) + [ROOT / "portkern" / name for name in ("api.py", "errors.py", "printable.py", "testing.py")]
BACKENDS = [
    path for path in sorted((ROOT / "backends").rglob("*.py")) if "kernels" not in path.parts
]


def room(path: Path) -> str:
    """``portkern/report/html.py`` is part of ``report``."""
    return path.relative_to(ROOT / "portkern").with_suffix("").parts[0]


@cache
def imported(path: Path) -> set[str]:
    """The packages of the core that a file imports, at its top or in a function."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("portkern.")}
    return rooms


def test_every_package_has_a_row() -> None:
    folders = {path.parent.name for path in (ROOT / "portkern").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "portkern").glob("*.py")} - {"__init__"}
    assert folders | modules == set(DEPTH)
    assert len(modules) + 1 <= MOST_MODULES_IN_THE_ROOT


def test_the_core_imports_from_rows_above() -> None:
    upward = {
        f"{path.relative_to(ROOT)} imports {other}"
        for path in CORE
        for other in imported(path)
        if other != room(path) and DEPTH[other] >= DEPTH[room(path)]
    }
    assert not upward


def test_backends_know_the_contract_and_not_its_users() -> None:
    beyond = {f"{path.relative_to(ROOT)}: {imported(path) - CONTRACT}" for path in BACKENDS}
    assert not {line for line in beyond if not line.endswith("set()")}


def test_backends_are_reached_by_name_through_the_registry() -> None:
    direct = {path.relative_to(ROOT) for path in [*CORE, *BACKENDS] if "backends" in imported(path)}
    assert not direct


def test_modules_of_a_package_do_not_import_each_other_in_a_circle() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in CORE}
    edges = {name: _modules(path) & set(modules) for name, path in modules.items()}
    while leaves := {name for name, others in edges.items() if not others & set(edges) - {name}}:
        edges = {name: others for name, others in edges.items() if name not in leaves}
    assert not edges


def _modules(path: Path) -> set[str]:
    """The modules that a file imports when it is imported itself."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


def test_contributing_has_the_line_of_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_/]+)/` \| (.*) \|$", text, re.MULTILINE))
    packages = {
        path.parent.relative_to(ROOT / "portkern").as_posix(): str(
            import_module(".".join(path.parent.relative_to(ROOT).parts)).__doc__
        ).partition("\n")[0]
        for path in (ROOT / "portkern").rglob("*/__init__.py")
    }
    assert rows == packages


def test_a_name_stands_for_one_class() -> None:
    """Nested classes and private ones are called by their owner."""
    homes: dict[str, list[str]] = {}
    for path in [*(ROOT / "portkern").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(homes) > 1000
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
