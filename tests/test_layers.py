"""Imports point one way: a module imports from layers below its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: Lowest first; a package stands for all of its modules, and modules of one line do not import
#: each other. A new module gets its place here, or this file fails; an unused name does no harm.
LAYERS = [
    "portkern errors",
    "toolchain op candidate target device state trace mlflow_plugin lines whole",
    "abi occupancy flashinfer inputs ops host arena jail variations fences rest",
    "backend record",
    "compilers",
    "simt",
    "native",
    "registry catalogue cache answers timing guard sandbox telemetry memory tuned",
    "check",
    "worker cells claims health tuning",
    "forkserver building proof race",
    "runners",
    "evaluate",
    "recording",
    "matrix report",
    "agent tracking",
    "tracing",
    "experiment",
    "config testing",
    "verbs",
    "cli",
]
DEPTH = {name: depth for depth, line in enumerate(LAYERS) for name in line.split()}
#: What a backend is written against: everything up to this line.
CONTRACT = DEPTH["native"]
CORE = sorted((ROOT / "portkern").rglob("*.py"))
BACKENDS = [p for p in sorted((ROOT / "backends").rglob("*.py")) if "kernels" not in p.parts]


def module_of(path: Path) -> str:
    """``portkern/report/html.py`` is part of ``report``."""
    parts = path.relative_to(ROOT / "portkern").with_suffix("").parts
    return "portkern" if parts[0] == "__init__" else parts[0]


def imported(path: Path) -> set[str]:
    """The modules and packages of the core that a file imports, at its top or in a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("portkern.")}
    return found


def label(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


@pytest.mark.parametrize("path", CORE, ids=label)
def test_every_module_has_a_layer(path: Path) -> None:
    assert module_of(path) in DEPTH, "add it to LAYERS"


@pytest.mark.parametrize("path", CORE, ids=label)
def test_the_core_imports_downwards(path: Path) -> None:
    module = module_of(path)
    allowed = {name for name, depth in DEPTH.items() if depth < DEPTH.get(module, 0)} | {module}
    assert not imported(path) - allowed, f"{module} may not import these"


@pytest.mark.parametrize("path", BACKENDS, ids=label)
def test_backends_import_the_contract_and_below(path: Path) -> None:
    allowed = {name for name, depth in DEPTH.items() if depth <= CONTRACT}
    assert not imported(path) - allowed, "a backend knows the contract, not its users"


@pytest.mark.parametrize("path", [*CORE, *BACKENDS], ids=label)
def test_siblings_in_backends_are_imported_relatively(path: Path) -> None:
    assert "backends" not in imported(path), "only the registry reaches backends, by name"
