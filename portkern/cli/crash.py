"""The report that is kept of an error that nobody foresaw: portkern has a defect, and this shows
where."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

#: The most characters of an error's message in the one line for the user.
_MOST = 200


def tell(error: BaseException, argv: Sequence[str]) -> str:
    """One line for the user; the traceback is in the file that it names. Values of the
    environment's keys and tokens are in neither."""
    from portkern.agent.llm.keys import redact_error

    text = redact_error("".join(traceback.format_exception(error)))
    command = redact_error(" ".join(["portkern", *argv]))
    facts = f"portkern {version('portkern')}, Python {platform.python_version()}"
    what = redact_error(f"{type(error).__name__}: {error}".partition("\n")[0])[:_MOST]
    said = f"portkern: defect: {what}; this is an error of portkern's own, not of a kernel"
    kept = _kept(f"{command}\n{facts}, {platform.platform()}\n\n{text}")
    return f"{said}; please report it with {kept}" if kept else f"{said}\n{text.rstrip()}"


def _kept(text: str) -> Path | None:
    """The file that now holds the text; None where none can be written."""
    from portkern.toolchain.run_tool import cache_root

    try:
        folder = cache_root() / "crash"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%f')}.txt"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, RuntimeError):  # RuntimeError: Path.home() of a user without one
        return None
    return file
