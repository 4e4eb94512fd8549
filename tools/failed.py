"""Prints the names of the tests which failed in the last run, one a line, as ``pytest @FILE`` reads
them. Ends with 1 where no test did, or something else as well: lint, collection or the process
failed, which running tests again does not mend."""

from __future__ import annotations

import json
import sys
from pathlib import Path

#: Where pytest keeps what it knows of the last run.
KEPT = Path(".pytest_cache/v")
#: The name under which the tests' own session says what the tests have changed.
CHANGED = "portkern/changed"


def failed(kept: Path) -> list[str]:
    """The names of tests; none where a file could not be collected or workers (``gw0``) collected
    different tests: pytest-xdist runs what else there is, and what was not run would be missed.
    None where tests changed files of the user: they would be taken for unchanged."""
    cache = kept / "cache/lastfailed"
    if not cache.is_file() or (kept / CHANGED).exists():
        return []
    names = list(json.loads(cache.read_text(encoding="utf-8")))
    return names if all("::" in name for name in names) else []


if __name__ == "__main__":
    names = failed(KEPT)
    sys.stdout.writelines(f"{name}\n" for name in names)
    sys.exit(0 if names else 1)
