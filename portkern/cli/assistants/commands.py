"""A verb of the command line, run as a process of its own, and its JSON document."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from portkern.cli.config import quoted
from portkern.errors import ConfigError, PortkernError
from portkern.printable import printable
from portkern.spec.foreign_text import json_value

#: A proof of a library takes longest.
LIMIT_S = 1_800.0
_MOST_SAID = 2_000

#: Calls of one verb write to one run and take turns; assistants make several at once.
_TURNS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

Value = str | int | float | bool | Sequence[str]


def run(verb: str, options: Mapping[str, Value], folder: Path) -> dict[str, Any]:
    """Options are given as values, whatever stands in them. Raises PortkernError with what the
    command said where it gave no document."""
    words = [f"{name}={_written(value)}" for name, value in options.items()]
    try:
        with _TURNS[verb]:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "portkern.cli", verb, *words, "json=true"],
                cwd=folder,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=LIMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise PortkernError(f"portkern {verb} took longer than {LIMIT_S:.0f} s") from error
    try:
        document = json_value(ended.stdout)
    except ValueError:
        said = ended.stderr.decode(errors="replace").strip()[-_MOST_SAID:]
        told = printable(said) or f"exit status {ended.returncode}"
        raise ConfigError(told.removeprefix("portkern: error: ")) from None
    if not isinstance(document, dict):
        raise PortkernError(f"portkern {verb} gave no document")
    return document


def _written(value: Value) -> str:
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    return f"[{','.join(map(quoted, value))}]"
