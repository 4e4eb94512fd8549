"""Solutions of a FlashInfer-Bench trace set as a project: those in Triton, which are functions of
tensors, with what its traces say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from portkern.errors import ConfigError
from portkern.formats.exported import NoSuchForm, Skipped
from portkern.formats.kernel_project import ForeignKernel, KernelProject
from portkern.spec import flashinfer
from portkern.spec.foreign_text import json_value, read_bytes, read_text
from portkern.spec.from_torch.names import identifier


def project(folder: Path) -> KernelProject:
    """Reads ``solutions`` and ``definitions`` in a folder. Raises ConfigError where there are
    none."""
    files = sorted(folder.glob("solutions/**/*.json"))
    if not files:
        raise ConfigError(f"No solutions/**/*.json in {folder}; expected a trace set")
    definitions = {path.stem: path for path in sorted(folder.glob("definitions/**/*.json"))}
    said = dict(_said(folder))
    kernels: list[ForeignKernel] = []
    skipped: list[Skipped] = []
    for file in files:
        place = str(file.relative_to(folder))
        try:
            kernels.append(_kernel(file, place, definitions, said))
        except NoSuchForm as error:
            skipped.append(Skipped(place, str(error)))
    return KernelProject(kernels, skipped)


def _kernel(
    file: Path,
    place: str,
    definitions: Mapping[str, Path],
    said: Mapping[str, Mapping[str, object]],
) -> ForeignKernel:
    """Raises NoSuchForm."""
    try:
        document: dict[str, Any] = json_value(read_text(file))
        name, spec, sources = document["name"], document["spec"], document["sources"]
        definition = definitions.get(document["definition"])
        path, _, entry = spec["entry_point"].rpartition("::")
        language = str(spec["language"]).lower()
        texts = {source["path"]: str(source["content"]) for source in sources}
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoSuchForm(f"it is not a Solution: {type(error).__name__}: {error}") from error
    if definition is None:
        raise NoSuchForm(f"no Definition {document['definition']!r} is beside it")
    if language != "triton":
        raise NoSuchForm(f"it is in {language}, expected triton; 'portkern run' takes extensions")
    if list(texts) != [path]:
        raise NoSuchForm(f"it has {len(texts)} files, expected {path} alone")
    try:
        op = flashinfer.load(definition)
    except ConfigError as error:
        raise NoSuchForm(str(error)) from error
    return ForeignKernel(
        place,
        op.name,
        definition,
        "triton",
        identifier(str(name)),
        texts[path],
        entry,
        "dps" if spec.get("destination_passing_style", True) else "return",
        said.get(str(name), {}),
    )


def _said(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """The word on each solution: how often each status was given."""
    statuses: dict[str, Counter[str]] = {}
    for file in sorted(folder.glob("traces/**/*.jsonl")):
        for line in read_bytes(file).decode(errors="replace").splitlines():
            try:
                trace = json_value(line)
                solution, status = trace["solution"], trace["evaluation"]["status"]
            except (ValueError, KeyError, TypeError):
                continue  # a workload, or what the reader of traces names
            statuses.setdefault(str(solution), Counter())[str(status)] += 1
    for solution, counts in statuses.items():
        yield solution, {"statuses": dict(counts)}
