"""``portkern doctor``: what this machine can build, emulate and run, and how to get the rest."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder
from portkern.sandbox import session
from portkern.sandbox.jail import LAYERS, Layers
from portkern.spec import registry, target
from portkern.spec.backend import Backend, Missing, Ready, Venue
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root, package_version

if TYPE_CHECKING:
    from rich.console import Console

    from portkern.spec.json_types import JsonObject


@dataclass
class DoctorOptions:
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("doctor", DoctorOptions, overrides)
    found = {name: _examine(registry.load(name)) for name in registry.names()}
    containment = session.layers()
    session.close_servers()
    document = {"machine": _machine(), "containment": containment.to_json(), "backends": found}
    if options.json:
        run_folder.print_json(document)
    else:
        _print(document)
    works = any(t["build"] is True for b in found.values() for t in b["targets"].values())
    return 0 if works else 3


def _machine() -> JsonObject:
    return {
        "portkern": version("portkern"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": host.cpu_name(),
        "torch": package_version("torch"),
        "cache": str(cache_root()),
        "gpus": [f"{gpu.name} ({gpu.arch}, driver {gpu.driver})" for gpu in host.gpus()],
    }


def _examine(backend: Backend) -> dict[str, Any]:
    """Per claimed target: true or the reason why not, for building, emulating and running."""
    claimed = [t for t in map(target.load, target.names()) if backend.supports(t)]
    toolchain: dict[str, str] = {}
    for where in claimed:
        probe = backend.probe(where)
        toolchain |= dict(probe.toolchain) if isinstance(probe, Ready) else {}
    return {"toolchain": toolchain, "targets": {t.name: _abilities(backend, t) for t in claimed}}


def _abilities(backend: Backend, where: Target) -> JsonObject:
    probe, venues = backend.probe(where), backend.venues(where)
    return {
        "build": True if isinstance(probe, Ready) else str(probe),
        "emulate": venues.emulator.name if isinstance(venues.emulator, Venue) else False,
        "emulate_missing": str(venues.emulator) if isinstance(venues.emulator, Missing) else "",
        "run": venues.hardware.name if isinstance(venues.hardware, Venue) else False,
        "run_missing": str(venues.hardware) if isinstance(venues.hardware, Missing) else "",
    }


def _print(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    machine = document["machine"]
    gpus = ", ".join(machine["gpus"]) or "none"
    console.print(
        f"portkern {machine['portkern']} · Python {machine['python']} · torch {machine['torch']} · "
        f"{machine['system']} · {machine['cpu']} · GPUs: {gpus}",
        highlight=False,
    )
    table = Table("backend", "toolchain", "builds for", "emulates", "runs on", title_justify="left")
    reasons: dict[str, list[str]] = {}
    for name, backend in document["backends"].items():
        rows = backend["targets"]
        builds = [t for t, able in rows.items() if able["build"] is True]
        emulates = [t for t, able in rows.items() if able["emulate"]]
        runs = [t for t, able in rows.items() if able["run"]]
        tools = "\n".join(f"{tool} {which}" for tool, which in backend["toolchain"].items())
        table.add_row(name, tools or "—", *(" ".join(x) or "—" for x in (builds, emulates, runs)))
        for where, able in rows.items():
            if able["build"] is not True:
                reasons.setdefault(f"{name} cannot build: {able['build']}", []).append(where)
        elsewhere = [where for where, able in rows.items() if not able["run"]]
        if elsewhere:  # one of the reasons stands for all: they differ by the target's name
            why = rows[elsewhere[0]]["run_missing"]
            reasons[f"{name} cannot run: {why}{', …' * (len(elsewhere) > 1)}"] = elsewhere
    console.print(table)
    _print_containment(console, Layers.from_json(document["containment"]))
    for why, where in reasons.items():
        console.print(f"- {why} [dim]({' '.join(where)})[/dim]", highlight=False)


def _print_containment(console: Console, layers: Layers) -> None:
    console.print(f"kernels are confined by: {layers}", highlight=False)
    for name, why in layers.missing.items():
        console.print(f"- no {name} (keeps out {LAYERS[name]}): {why}", highlight=False)
