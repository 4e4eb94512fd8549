"""``portkern doctor``: what this machine can build, emulate and run, and how to get the rest."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, TypedDict

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.printable import printable
from portkern.sandbox import session
from portkern.sandbox.jail import LAYERS, SHARED_TASKS, Layers
from portkern.spec import registry, target
from portkern.spec.backend import Backend, Missing, Ready, Venue
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root, package_version

if TYPE_CHECKING:
    from rich.console import Console

Able = Literal["build", "emulate", "execute", "run"]
_ABLE: tuple[Able, ...] = ("build", "emulate", "execute", "run")
#: So many targets are named.
FEW = 4
_EXTRAS = re.compile(r"portkern\[([\w,]+)\]")


class MachineFacts(TypedDict):
    portkern: str
    python: str
    system: str
    cpu: str
    torch: str | None
    cache: str
    gpus: list[str]


class Abilities(TypedDict):
    """``build`` is true or the reason why not, ``emulate``, ``execute`` and ``run`` a venue's
    name or false."""

    build: bool | str
    emulate: str | bool
    emulate_missing: str
    execute: str | bool
    execute_missing: str
    run: str | bool
    run_missing: str


class Examined(TypedDict):
    toolchain: dict[str, str]
    terms: dict[str, str]
    targets: dict[str, Abilities]


@dataclass
class DoctorOptions:
    verbose: bool = False
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("doctor", DoctorOptions, overrides)
    names = registry.names()
    with session.servers_of_own(), ThreadPoolExecutor() as pool:
        session.server(()).begin()  # it tries what confines workers while backends look for tools
        backends = dict(zip(names, pool.map(_examine, names), strict=True))
        containment = session.layers()
    machine = _machine()
    if options.json:
        json_output.show(
            {"machine": machine, "containment": containment.to_json(), "backends": backends}
        )
    elif options.verbose:
        _print(machine, containment, backends)
    else:
        print("\n".join(map(printable, summary(machine, containment, backends))))
    return 0 if any(_where(backend, "build") for backend in backends.values()) else 3


def _machine() -> MachineFacts:
    return {
        "portkern": version("portkern"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": host.cpu_name(),
        "torch": package_version("torch"),
        "cache": str(cache_root()),
        "gpus": [f"{gpu.name} ({gpu.arch}, driver {gpu.driver})" for gpu in host.gpus()],
    }


def _examine(name: str) -> Examined:
    """Per claimed target: true or the reason why not, for building, emulating, executing and
    running."""
    backend = registry.load(name)
    claimed = [t for t in map(target.load, target.names()) if backend.supports(t)]
    ready = [probe for probe in map(backend.probe, claimed) if isinstance(probe, Ready)]
    return {
        "toolchain": {tool: which for probe in ready for tool, which in probe.toolchain.items()},
        "terms": {tool: terms for probe in ready for tool, terms in probe.terms.items()},
        "targets": {t.name: _abilities(backend, t) for t in claimed},
    }


def _abilities(backend: Backend, where: Target) -> Abilities:
    probe, venues = backend.probe(where), backend.venues(where)
    return {
        "build": True if isinstance(probe, Ready) else str(probe),
        "emulate": venues.emulator.name if isinstance(venues.emulator, Venue) else False,
        "emulate_missing": str(venues.emulator) if isinstance(venues.emulator, Missing) else "",
        "execute": venues.object.name if isinstance(venues.object, Venue) else False,
        "execute_missing": str(venues.object) if isinstance(venues.object, Missing) else "",
        "run": venues.hardware.name if isinstance(venues.hardware, Venue) else False,
        "run_missing": str(venues.hardware) if isinstance(venues.hardware, Missing) else "",
    }


def summary(
    machine: MachineFacts, containment: Layers, backends: Mapping[str, Examined]
) -> list[str]:
    """The lines that say what works, what is missing, and the command that adds it."""
    runs = {name: _where(backend, "run") for name, backend in backends.items()}
    executes = {name: _where(backend, "execute") for name, backend in backends.items()}
    emulates = {name: _where(backend, "emulate") for name, backend in backends.items()}
    builds = [name for name, b in backends.items() if _where(b, "build")]
    missing = {
        name: _why_not_built(backend) for name, backend in backends.items() if name not in builds
    }
    if not missing:
        untimed = [name for name, where in runs.items() if not where]
        missing = {" ".join(untimed): "no GPU of theirs here, so no times"} if untimed else {}
    return [
        _headline(machine),
        f"times kernels:  {_by_places(runs) or 'none'}",
        f"executes:       {_by_places(executes) or 'none'} (compiled objects, on this CPU)",
        f"emulates:       {_by_places(emulates) or 'none'}",
        f"builds:         {' '.join(builds) or 'none'}; confined by {containment}",
        f"missing:        {'; '.join(f'{n}: {why}' for n, why in missing.items()) or 'nothing'}",
        f"to add:         {_command(backends)}; details: portkern doctor verbose=true",
    ]


def _where(backend: Examined, what: Able) -> tuple[str, ...]:
    """The targets that it can do this for."""
    targets = backend["targets"].items()
    if what == "build":  # a text there is why it cannot
        return tuple(name for name, able in targets if able["build"] is True)
    return tuple(name for name, able in targets if able[what])


def _by_places(able: Mapping[str, tuple[str, ...]]) -> str:
    """Backends with the same targets together; of many targets their number."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, targets in able.items():
        if targets:
            groups.setdefault(targets, []).append(name)
    return "; ".join(
        f"{' '.join(names)} on {' '.join(t) if len(t) <= FEW else f'{len(t)} targets'}"
        for t, names in groups.items()
    )


def _why_not_built(backend: Examined) -> str:
    reasons = (able["build"] for able in backend["targets"].values() if able["build"] is not True)
    return str(next(reasons, "no target")).partition(";")[0]


def _command(backends: Mapping[str, Examined]) -> str:
    """One for all that pip installs."""
    reasons = " ".join(
        str(reason)
        for backend in backends.values()
        for able in backend["targets"].values()
        for reason in (able["build"], able["emulate_missing"])
    )
    extras = sorted({extra for text in _EXTRAS.findall(reasons) for extra in text.split(",")})
    return f"pip install 'portkern[{','.join(extras)}]'" if extras else "nothing that pip has"


def _headline(machine: MachineFacts) -> str:
    gpus = ", ".join(machine["gpus"]) or "none"
    return (
        f"portkern {machine['portkern']} · Python {machine['python']} · torch {machine['torch']} · "
        f"{machine['system']} · {machine['cpu']} · GPUs: {gpus}"
    )


def _print(machine: MachineFacts, containment: Layers, backends: Mapping[str, Examined]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    console.print(_headline(machine), highlight=False, markup=False)
    table = Table(
        "backend",
        "toolchain",
        "builds for",
        "emulates",
        "executes",
        "runs on",
        title_justify="left",
    )
    reasons: dict[str, list[str]] = {}
    for name, backend in backends.items():
        rows = backend["targets"]
        tools = "\n".join(f"{tool} {which}" for tool, which in backend["toolchain"].items())
        able_for = [" ".join(_where(backend, what)) for what in _ABLE]
        table.add_row(*(Text(printable(cell) or "—") for cell in (name, tools, *able_for)))
        for where, able in rows.items():
            if able["build"] is not True:
                reasons.setdefault(f"{name} cannot build: {able['build']}", []).append(where)
        elsewhere = [where for where, able in rows.items() if not able["run"]]
        if elsewhere:  # one of the reasons stands for all: they differ by the target's name
            why = rows[elsewhere[0]]["run_missing"]
            reasons[f"{name} cannot run: {why}{', …' * (len(elsewhere) > 1)}"] = elsewhere
        for tool, terms in backend["terms"].items():
            reasons[f"{tool} is not free software: {terms}"] = [name]
    console.print(table)
    _print_containment(console, containment)
    for why, targets in reasons.items():
        console.print(Text.assemble(f"- {printable(why)} ", (f"({' '.join(targets)})", "dim")))


def _print_containment(console: Console, layers: Layers) -> None:
    from rich.text import Text

    console.print(Text(f"kernels are confined by: {layers}"))
    for name, why in layers.missing.items():
        console.print(Text(f"- no {name} (keeps out {LAYERS[name]}): {printable(why)}"))
    if not layers.counts_alone:
        console.print(
            Text(
                f"- {SHARED_TASKS}: a limit on tasks allows as many more as others end meanwhile; "
                "needs a cgroup, or Linux 5.14 with user namespaces"
            )
        )
