"""The runs of a folder, the newest first, and what was said of each when it was started."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from portkern.errors import ConfigError, RecordError, ToolError
from portkern.records import atomic_write, packed
from portkern.records.jsonl import JsonLine, JsonPart
from portkern.spec import foreign_text
from portkern.toolchain.git import run_git

RECORDS = "records.jsonl"
#: The facts' file in a run's folder.
FACTS = "run.json"
TAG = "tag:"
#: How remarks on a run's cells begin, which another comparison does not change …
WARNING, GAP, PROBLEM = "warning: ", "gap: ", "problem: "
OF_CELLS = (WARNING, GAP, PROBLEM)
#: … and those by which the command fails that made the run.
FAILING = (GAP, PROBLEM)
_TIME = re.compile(rb'"time":\s*"([^"\\]{1,40})"')
_NAME = re.compile(r"[^\s:=,]+")
#: Nothing sorts after it: a run whose newest line cannot be read is looked at before all others.
UNKNOWN = "~"


class Revision(JsonPart):
    """The revision of the checkout that the kernels are in; ``dirty``: with changes that are in
    no commit."""

    commit: str
    branch: str = ""
    dirty: bool = False

    def __str__(self) -> str:
        return f"{self.commit[:12]}{' with changes' if self.dirty else ''}"


class RunFacts(JsonLine):
    """``tags`` have a value or ''. ``time`` is that of the newest command that added to the run,
    ``job`` the address of the CI job that it was; ``number`` is its place among the runs of its
    folder, in the order in which they began, whatever the clock said; ``options`` are those that
    the newest command named; ``remarks`` are what a reader of it must know, such as that
    there was no earlier run to compare with."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    time: str = ""
    tags: Mapping[str, str] = {}
    git: Revision | None = None
    job: str = ""
    number: int = 0
    options: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> RunFacts:
        """Empty where nothing was said. Raises RecordError."""
        try:
            text = foreign_text.content(folder / FACTS).decode()
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{folder / FACTS}: {error}") from error
        try:
            return cls.from_json(text)
        except RecordError as error:
            raise RecordError(f"{folder / FACTS}: {error}") from error

    def has(self, tag: str) -> bool:
        """``name``, or ``name:value`` or ``name=value``."""
        name, value = _split(tag)
        return name in self.tags and value in ("", self.tags[name])


def note(
    folder: Path,
    tags: Mapping[str, str],
    sources: Path,
    options: Mapping[str, str] | None = None,
) -> None:
    """Keep what is said of the run; tags of earlier commands stay. ``sources``: where the kernels
    are. Raises RecordError and StorageError."""
    known = RunFacts.read(folder)
    facts = RunFacts(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        tags={**known.tags, **tags},
        git=revision(sources),
        job=_job() or known.job,
        options=known.options if options is None else options,
        remarks=known.remarks,
        number=known.number or 1 + max(map(_number, folder.parent.glob(f"*/{FACTS}")), default=0),
    )
    atomic_write.write(folder / FACTS, facts.to_json() + "\n")


def remark(folder: Path, remarks: Iterable[str]) -> None:
    """Keep what the newest command has to say of the run, in place of what an earlier one said.
    Raises RecordError and StorageError."""
    known, said = RunFacts.read(folder), tuple(dict.fromkeys(remarks))
    if said != known.remarks:
        facts = known.model_copy(update={"remarks": said})
        atomic_write.write(folder / FACTS, facts.to_json() + "\n")


def _job() -> str:
    """The address of the job on GitHub, GitLab or Jenkins; '' elsewhere."""
    said = os.environ
    if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"} <= said.keys():
        return "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format(**said)
    address = said.get("CI_JOB_URL") or said.get("BUILD_URL") or ""
    return address if address.isprintable() else ""


def _number(facts: Path) -> int:
    """0 where it cannot be read."""
    try:
        return RunFacts.read(facts.parent).number
    except RecordError:
        return 0


def revision(folder: Path) -> Revision | None:
    """The revision of a folder's checkout; None where there is no checkout of git's, no commit yet,
    or no git."""

    try:
        # What is not tracked, such as reports, does not change the kernels
        changes = run_git(
            folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"
        ).strip()
        return Revision(
            commit=run_git(folder, "rev-parse", "HEAD").strip(),
            branch=run_git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip(),
            dirty=bool(changes),
        )
    except ToolError:
        return None


def tags(said: object) -> dict[str, str]:
    """``nightly``, ``[nightly, branch:main]`` or ``{branch: main}``. Raises ConfigError."""
    if isinstance(said, Mapping):
        pairs = [(str(name), str(value)) for name, value in said.items()]
    else:
        several = said if isinstance(said, list) else [said] if said not in (None, "") else []
        pairs = [_split(str(tag)) for tag in several]
    for name, value in pairs:
        if not _NAME.fullmatch(name) or not value.isprintable():
            raise ConfigError(
                f"Got the tag {name!r}, expected a word without ':', '=' and ','; "
                "as in tags=[nightly,h200] or tags={branch:main}"
            )
    return dict(pairs)


def _split(tag: str) -> tuple[str, str]:
    name, _, value = re.sub("[:=]", ":", tag, count=1).partition(":")
    return name, value


@dataclass(frozen=True)
class RecordedRun:
    """``time``: of its last line, which is the newest one's unless files were put together, and not
    before that of a run that began earlier; ``number`` as in :class:`RunFacts`."""

    folder: Path
    time: str
    number: int = 0

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def records(self) -> Path:
        return records_of(self.folder)


def records_of(folder: Path) -> Path:
    """The file of a run's records, compressed or not."""
    return packed.standing(folder / RECORDS)


def newest_first(reports: Path) -> list[RecordedRun]:
    """The runs that have a record, the newest first."""
    found = [
        RecordedRun(path.parent, _newest(path), _number(path.parent / FACTS))
        for path in sorted({records_of(path.parent) for path in reports.glob(f"[!.]*/{RECORDS}*")})
        if path.exists() and path.stat().st_size
    ]
    ordered, latest = [run for run in found if not run.number], ""
    for run in sorted((run for run in found if run.number), key=lambda run: run.number):
        latest = max(latest, run.time)  # a clock that jumped back changes no order
        ordered.append(replace(run, time=latest))
    return sorted(ordered, key=lambda run: (run.time, run.number), reverse=True)


def tagged(tag: str, runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], list[str]]:
    """The runs that have the tag, and what could not be read."""
    found: list[RecordedRun] = []
    problems: list[str] = []
    for run in runs:
        try:
            if RunFacts.read(run.folder).has(tag):
                found.append(run)
        except RecordError as error:
            problems.append(f"{run.name} has no tags: {error}")
    return found, problems


def _newest(path: Path) -> str:
    """The time of the last whole line; of a compressed file, whose lines stand by operator, the
    newest time."""
    if path.suffix == packed.SUFFIX:
        return _newest_packed(path)
    length = 1 << 16
    with foreign_text.opened(path) as file:
        end = file.seek(0, 2)
        while True:
            start = max(0, end - length)
            file.seek(start)
            # what follows the last newline is torn
            *lines, _ = file.read(end - start).split(b"\n")
            whole = [line for line in (lines if not start else lines[1:]) if line.strip()]
            if whole:
                match = _TIME.search(whole[-1])
                return match[1].decode(errors="replace") if match else UNKNOWN
            if not start or length > foreign_text.MOST_BYTES:
                return UNKNOWN
            length *= 16


def _newest_packed(path: Path) -> str:
    try:
        with packed.opened(path) as lines:
            found = [match[1] for line in lines if (match := _TIME.search(line))]
    except RecordError:
        return UNKNOWN
    return max(found).decode(errors="replace") if found else UNKNOWN
