"""Solutions of a FlashInfer-Bench trace set, or of SOL-ExecBench's problems, as a project: those in
Triton, which are functions of tensors, with what the set's traces say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from portkern.errors import ConfigError
from portkern.formats.exported import NoSuchForm, SkippedExport
from portkern.formats.kernel_project import ForeignKernel, KernelProject
from portkern.spec import flashinfer
from portkern.spec.foreign_text import json_value, read_bytes, read_text
from portkern.spec.from_torch.names import identifier


def project(folder: Path, ops: Path) -> KernelProject:
    """Reads ``solutions`` and ``definitions`` in a folder, else its problems with solutions beside
    them, whose operators are in ``ops`` where they were imported. Raises ConfigError where there
    are none."""
    files = sorted(folder.glob("solutions/**/*.json"))
    definitions = {path.stem: path for path in sorted(folder.glob("definitions/**/*.json"))}
    if not files:
        files = sorted(folder.glob("**/solution*.json"))
        definitions = dict(_of_problems(folder, ops))
    if not files:
        raise ConfigError(
            f"No solutions/**/*.json in {folder}, and no problem with solution*.json; expected a "
            "trace set, or folders with definition.json and solutions"
        )
    said = dict(_said(folder))
    kernels: list[ForeignKernel] = []
    skipped: list[SkippedExport] = []
    for file in files:
        place = str(file.relative_to(folder))
        try:
            kernels.append(_kernel(file, place, definitions, said))
        except NoSuchForm as error:
            skipped.append(SkippedExport(place, str(error)))
    return KernelProject(kernels, skipped)


def _of_problems(folder: Path, ops: Path) -> Iterator[tuple[str, Path]]:
    """Definitions by the names that they have themselves: as they were imported, else as they
    are."""
    imported = {path.stem: path for path in sorted(ops.glob("**/*.json"))}
    for path in sorted(folder.glob("**/definition.json")):
        try:
            name = json_value(read_text(path))["name"]
        except (ConfigError, ValueError, KeyError, TypeError):
            continue  # its solutions say that there is none
        if isinstance(name, str):
            yield name, imported.get(identifier(name), path)


def _language(spec: Mapping[str, Any]) -> str:
    """The one language of a solution, or all that it names."""
    several = spec.get("languages")
    if isinstance(several, list):
        return " and ".join(str(one).lower() for one in several)
    return str(spec["language"]).lower()


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
        language = _language(spec)
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
