"""The tools by the names that assistants call them by."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portkern.agent import guide as guides
from portkern.cells.selection import default_target, load_op, venues
from portkern.cli.assistants import answers, commands
from portkern.errors import BackendUnavailable, ConfigError
from portkern.evaluator import from_torch
from portkern.records.record import Record
from portkern.spec import registry, target
from portkern.spec.op import Op
from portkern.spec.safe_name import SafeName, file_of

#: The most bytes of a source that is sent as text.
MOST_BYTES = 1 << 20
_FOLDER = "mcp"


@dataclass(frozen=True)
class Tools:
    """Files are named by their paths in ``root``, and no other is read. Records go to
    ``root/reports/mcp``."""

    root: Path

    def describe_op(self, op: str) -> dict[str, Any]:
        """Describes what an operator computes: its reference in PyTorch, tensors, scalars,
        dtypes and sizes. op is a name of portkern's own (softmax, rmsnorm, matmul, …) or a
        PyTorch file."""
        known = self._op(op)
        return {
            "op": known.name,
            "reference": known.reference_source.strip(),
            "inputs": [_tensor(one) for one in known.signature.inputs],
            "outputs": [_tensor(one) for one in known.signature.outputs],
            "scalars": [f"{one.name}: {one.dtype}" for one in known.signature.scalars],
            "dtypes": list(known.dtypes),
            "precision": known.precision,
            "workloads": {
                which: [dict(workload.dims) for workload in several][:4]
                for which, several in known.workloads.items()
            },
            "next": "'targets' says where kernels can run here, 'guide' how one is written.",
        }

    def targets(self) -> dict[str, Any]:
        """Which backends can build for which targets here, and whether kernels then run on the
        hardware, in an emulator, or not at all."""
        rows = []
        for name in registry.names():
            backend = registry.load(name)
            for where in map(target.load, target.names("architecture")):
                if backend.supports(where):
                    best = venues(backend, where).best
                    rows.append({"backend": name, "target": where.name, "runs": str(best)})
        return {"places": rows, "next": "'guide' with one of these says how kernels are written."}

    def guide(self, backend: str, target_name: str = "", op: str = "") -> dict[str, Any]:
        """How a kernel is written for a backend and target: rules, hints, and with op the exact
        declaration of the function."""
        known = registry.load(backend)
        where = target.load(target_name) if target_name else _usual(backend)
        language = next(iter(known.languages.values()))
        venue = venues(known, where).best
        ends = getattr(venue, "kind", "build")
        asked = self._op(op) if op else None
        return {
            "target": where.name,
            "language": language,
            "guide": guides.chosen(_guide_of(backend), language=language, ends=ends).strip(),
            "hints": list(where.hints_for(language, without=())),
            "declaration": known.declaration(asked.signature, language) if asked else "",
            "next": "Write the file, then 'check' it.",
        }

    def check(
        self,
        op: str,
        source: str = "",
        file: str = "",
        backend: str = "",
        target_name: str = "",
        workloads: list[str] | None = None,
        dtypes: list[str] | None = None,
    ) -> dict[str, Any]:
        """Whether a kernel is right: built, and run in a jail on fresh inputs against a float64
        reference. Give the file's path, or its text as source together with backend."""
        records = self._checked(
            op, source, file, backend, target_name, workloads, dtypes, timed=False
        )
        return answers.of_records(records)

    def compare_with_baseline(
        self,
        op: str,
        source: str = "",
        file: str = "",
        backend: str = "",
        target_name: str = "",
        workloads: list[str] | None = None,
        dtypes: list[str] | None = None,
    ) -> dict[str, Any]:
        """How fast a right kernel is beside PyTorch, timed in turns: ratios with intervals."""
        records = self._checked(
            op, source, file, backend, target_name, workloads, dtypes, timed=True
        )
        return answers.of_times(records)

    def profile(
        self,
        op: str,
        source: str = "",
        file: str = "",
        backend: str = "",
        target_name: str = "",
        workloads: list[str] | None = None,
    ) -> dict[str, Any]:
        """Shows what a kernel uses and does: registers, shared memory, occupancy, its distance
        from the roofline, and for emulated GPUs the counters of the executor."""
        records = self._checked(
            op,
            source,
            file,
            backend,
            target_name,
            workloads,
            None,
            timed=True,
            sanitize=["counters"],
        )
        return answers.of_profile(records)

    def port_lint(self, path: str, to: str = "gfx942") -> dict[str, Any]:
        """Finds what in CUDA sources would go wrong on another GPU, by line; nothing is built or
        run."""
        document = self._port(path, to, {"lint": "only"})
        return answers.of_port(document, proven=False)

    def port_prove(self, path: str, to: str = "gfx942") -> dict[str, Any]:
        """Translates CUDA sources, builds them for the target, and shows by running original and
        port in emulators whether each kernel computes the same. Takes minutes."""
        return answers.of_port(self._port(path, to, {}), proven=True)

    def history(self, op: str = "", backend: str = "", target_name: str = "") -> dict[str, Any]:
        """How kernels of an operator did in the runs that are kept here, and where times moved."""
        asked = {"op": op, "backend": backend, "target": target_name, "reports": "reports"}
        return answers.of_history(commands.run("history", asked, self.root))

    def path(self, word: str) -> Path:
        """The path of a file in the root. Raises ConfigError."""
        return file_of(self.root, word)

    def _op(self, name: str) -> Op:
        """Raises ConfigError."""
        return load_op(self._operator(name))

    def _operator(self, name: str) -> str:
        """The operator as ``op=`` takes it, its file in the root. Raises ConfigError."""
        file, wanted = from_torch.split(name)
        if not from_torch.is_file(name) and not name.endswith(".json"):
            return name
        place = self.path(str(file))
        return f"{place}:{wanted}" if wanted else str(place)

    def _port(self, path: str, to: str, more: Mapping[str, str]) -> dict[str, Any]:
        place = self.path(path)
        if not place.exists():
            raise ConfigError(f"No {path} in {self.root}; name a file or folder there")
        run = SafeName.like(f"mcp-port-{place.name}")
        return commands.run(
            "port", {"path": str(place), "to": to.split(","), "run": run, **more}, self.root
        )

    def _checked(
        self,
        op: str,
        source: str,
        file: str,
        backend: str,
        target_name: str,
        workloads: list[str] | None,
        dtypes: list[str] | None,
        *,
        timed: bool,
        sanitize: list[str] | None = None,
    ) -> list[Record]:
        if bool(source) == bool(file):
            raise ConfigError("Expected either source, the kernel's text, or file, its path")
        if source and not backend:
            raise ConfigError("Expected backend beside source; 'targets' lists them")
        with tempfile.TemporaryDirectory(prefix="portkern-mcp-") as box:
            place = _written(source, backend, op, Path(box)) if source else self.path(file)
            if not place.is_file():
                raise ConfigError(f"No file {file} in {self.root}")
            options: dict[str, commands.Value] = {
                "op": self._operator(op),
                "source": [str(place)],
                "run": _FOLDER,
                "timed": timed,
                "workloads": workloads or ["ci"],
                "dtypes": dtypes or ["float32"],
            }
            given = {"backend": backend, "target": target_name}
            options |= {name: value for name, value in given.items() if value}
            if sanitize:
                options["sanitize"] = sanitize
            document = commands.run("check", options, self.root)
        return [Record.model_validate(one) for one in document["records"]]


def _written(source: str, backend: str, op: str, box: Path) -> Path:
    if len(source.encode(errors="replace")) > MOST_BYTES:
        raise ConfigError(f"The source has more than {MOST_BYTES >> 10} KiB; expected one kernel")
    suffix = next(iter(registry.load(backend).languages))
    path = box / SafeName.like(f"{Path(op.partition(':')[0]).stem}{suffix}")
    path.write_text(source, encoding="utf-8", errors="replace")
    return path


def _usual(backend: str) -> target.Target:
    try:
        return default_target(registry.load(backend))
    except BackendUnavailable:
        places = map(target.load, target.names())
        return next(where for where in places if registry.load(backend).supports(where))


def _guide_of(backend: str) -> str:
    from importlib.resources import files

    path = files(type(registry.load(backend)).__module__) / "guide.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _tensor(one: Any) -> str:
    return f"{one.name} [{', '.join(map(str, one.shape))}] {one.dtype}"
