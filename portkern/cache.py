"""Built artifacts, kept by everything that decides what a build produces."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from portkern.backend import Artifact, Build


def build_key(build: Build, builds_for: str, toolchain: Mapping[str, str]) -> str:
    """Source × signature × dtype × target × toolchain versions × portkern's own version;
    ``builds_for`` is :meth:`Backend.builds_for`'s answer for the target."""
    parts = [
        version("portkern"), build.candidate.backend, build.candidate.digest,
        build.signature.to_json(), build.dtype, builds_for, dict(build.dims),
        dict(build.scalars), build.runnable, build.emulated, build.checked, build.emulator,
        dict(toolchain),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


class ArtifactCache:
    """Entries appear whole or not at all: they are filled aside and renamed into place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Artifact | None:
        manifest = self.folder / key / "artifact.json"
        try:
            artifact = Artifact.from_json(json.loads(manifest.read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # absent, or written by another version: build again
        return artifact if artifact.path.exists() else None

    def workdir(self) -> Path:
        """A private folder on the cache's file system, to build in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".building-", dir=self.folder))
        made.chmod(0o755)  # a worker is another user
        return made

    def put(self, key: str, workdir: Path, artifact: Artifact) -> Artifact:
        """Take over ``workdir``; the artifact as it is in the cache. The first of two wins."""
        final = self.folder / key
        moved = Artifact(
            final / artifact.path.relative_to(workdir), artifact.kind, artifact.resources,
            artifact.log,
        )  # fmt: skip
        (workdir / "artifact.json").write_text(json.dumps(moved.to_json()))
        if self.get(key) is not None:
            shutil.rmtree(workdir)
            return moved
        shutil.rmtree(final, ignore_errors=True)  # a damaged entry
        try:
            workdir.rename(final)
        except OSError:
            shutil.rmtree(workdir, ignore_errors=True)  # another process was faster
        return moved
