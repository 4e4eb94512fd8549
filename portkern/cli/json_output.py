"""JSON for other programs: what ``json=true`` prints, and what is kept in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from portkern.records import atomic_write


def show(document: object) -> None:
    sys.stdout.write(_as_json(document))


def write(path: Path, document: object) -> None:
    """Raises StorageError."""
    atomic_write.write(path, _as_json(document))


def _as_json(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"
