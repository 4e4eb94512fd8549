"""Reading of a compiler's dependency output (a rule for make), which lists what it included."""

from __future__ import annotations

import re
from pathlib import Path

from portkern.errors import BuildError


def prerequisites(listed: Path) -> list[Path]:
    """Raises BuildError where the compiler wrote no such file."""
    try:
        text = listed.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise BuildError(f"The compiler did not list what it included: {error}") from error
    _, _, after = text.replace("\\\n", " ").partition(": ")
    return [Path(part.replace("\\ ", " ")) for part in re.split(r"(?<!\\)\s+", after) if part]
