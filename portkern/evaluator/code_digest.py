"""A digest of portkern's own code, one of the things on which the reuse of a result depends.

An edited threshold, rule or header may decide otherwise, though the version stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import portkern

#: Packages whose code has a part in a verdict. Of the ops an :class:`~portkern.spec.op.Op` has its
#: own digest, but for what they share; emulators have a version, backends theirs.
DECIDING = ("evaluator", "guard", "rounding", "sandbox", "spec", "toolchain", "worker")
SHARED_BY_OPS = "ops/_*.py"


@lru_cache
def evaluator_digest() -> str:
    """A digest of the text of all modules that decide a verdict, as it is when first asked for."""
    return digest_of(Path(portkern.__file__).parent)


def digest_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(folder):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for package in DECIDING:
        yield from sorted((folder / package).rglob("*.py"))
    yield from sorted(folder.glob(SHARED_BY_OPS))
