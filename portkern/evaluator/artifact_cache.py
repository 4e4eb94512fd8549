"""Built artifacts, kept by everything that decides what a build produces."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from portkern.errors import StorageError
from portkern.evaluator.code_digest import evaluator_digest
from portkern.sandbox.jail import owner
from portkern.sandbox.message import plain
from portkern.spec.backend import Artifact, Build
from portkern.toolchain.make_once import readable

#: What a build does not depend on: kernels are sources of their own.
_NOT_BUILT_WITH = {"kernels", "calibration", "__pycache__"}
#: Folders in which something is being built, or was when its process was killed.
_ASIDE = ".building-"
_MANIFEST = "artifact.json"
#: The age at which a file of another machine that shares the folder counts as abandoned: one cannot
#: ask it.
_ABANDONED_S = 24 * 3600.0


def build_key(build: Build, builds_for: str, toolchain: Mapping[str, str]) -> str:
    """Source × signature × dtype × target × toolchain versions × portkern's own version and the
    backends' files; ``builds_for`` is :meth:`Backend.builds_for`'s answer for the target."""
    parts = [
        version("portkern"),
        evaluator_digest(),  # what stands before a source is made in ``spec``
        backends_digest(),
        build.candidate.backend,
        build.candidate.digest,
        build.signature.to_json(),
        build.dtype,
        builds_for,
        dict(build.dims),
        dict(build.scalars),
        build.runnable,
        build.emulated,
        build.executed,
        build.checked,
        build.emulator,
        *(["ahead"] if build.ahead else []),
        dict(toolchain),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@lru_cache
def backends_digest() -> str:
    """A digest of how the backends build, harnesses and headers included; a kernel's source has
    its own."""
    digest = hashlib.sha256()
    for folder in import_module("portkern.backends").__path__:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not _NOT_BUILT_WITH & set(path.relative_to(folder).parts):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _manifest(workdir: Path, artifact: Artifact) -> dict[str, object]:
    files = sorted(path for path in workdir.rglob("*") if path.is_file())
    sums = {str(path.relative_to(workdir)): _file_sum(path) for path in files}
    sums.pop(_MANIFEST, None)  # of a build that made a file of this name
    described = plain(artifact.to_json())
    return {
        "artifact": described,
        "files": sums,
        "sum": _sum(json.dumps([described, sums]).encode()),
    }


def _file_sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class ArtifactCache:
    """Entries appear whole or not at all: they are filled aside and renamed into place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key; None for what is absent, damaged since it was put, or written by
        another version."""
        folder = self.folder / key
        try:
            manifest = json.loads((folder / _MANIFEST).read_text())
            sums = manifest["files"]
            artifact = Artifact.from_json(manifest["artifact"])
            whole = manifest["sum"] == _sum(json.dumps([manifest["artifact"], sums]).encode())
            whole = whole and str(artifact.path.relative_to(folder)) in sums
            intact = whole and all(_file_sum(folder / name) == sums[name] for name in sums)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return artifact if intact else None

    @contextmanager
    def workdir(self) -> Iterator[Path]:
        """A private folder on the cache's file system, to build in; gone unless it was put.

        Raises StorageError.
        """
        made = self._aside()
        try:
            made.mkdir(parents=True)
        except OSError as error:
            raise StorageError.of(error, made) from error
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what processes that were killed had not finished."""
        for left in self.folder.glob(f"{_ASIDE}*"):
            with suppress(OSError):  # another process may be doing the same
                age_s = time.time() - left.stat().st_mtime
                if owner.gone(left.name.removeprefix(_ASIDE)) or age_s > _ABANDONED_S:
                    shutil.rmtree(left, ignore_errors=True)

    def put(self, key: str, workdir: Path, artifact: Artifact) -> Artifact:
        """Take over ``workdir``; the artifact as it is in the cache. The first of two wins.

        Raises StorageError.
        """
        final = self.folder / key
        moved = replace(artifact, path=final / artifact.path.relative_to(workdir))
        try:
            (workdir / _MANIFEST).write_text(json.dumps(_manifest(workdir, moved)))
            readable(workdir)
            if self.get(key) is None:
                self._discard(final)
                workdir.rename(final)
        except OSError as error:
            if self.get(key) is None:  # otherwise another process was faster
                raise StorageError.of(error, final) from error
        return moved

    def _aside(self) -> Path:
        return self.folder / f"{_ASIDE}{owner.name()}"

    def _discard(self, damaged: Path) -> None:
        """Removes a damaged entry as a whole, as entries appear."""
        aside = self._aside()
        with suppress(FileNotFoundError):
            damaged.rename(aside)
            shutil.rmtree(aside)
