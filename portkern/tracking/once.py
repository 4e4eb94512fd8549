"""Logs the content of a folder once: the same content is known again from a note that lies
beside it, and what has changed goes on with the runs that are there."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from portkern.records import atomic_write
from portkern.sandbox.message import FormError, read
from portkern.spec.foreign_text import content, json_value
from portkern.tracking import store
from portkern.tracking.store import SkippedLog, Store, Tracked, sent

#: The note of the token by which the folder's runs are known, and what was logged last, where.
NOTE = ".mlflow.json"
#: What may choose another experiment than is asked for.
_CHOOSES = ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")


def once(
    log: Callable[[Store, str], Tracked],
    folder: Path,
    *,
    experiment: str,
    digest: str,
    uri: str | None = None,
) -> Tracked | SkippedLog:
    """``log`` is given the store and the folder's token; ``digest`` is of all that it logs."""
    note = _read(folder)
    asked = [store.public(store.address(uri)), experiment, *map(os.environ.get, _CHOOSES)]
    known = note.get("tracked")
    same = note.get("of") == [asked, digest] and not store.lost(store.address(uri))
    if same and isinstance(known, dict):
        with suppress(FormError):
            return read(Tracked, known)
    token = str(note.get("token") or uuid.uuid4().hex)
    _keep(folder, {"token": token})  # a run that is begun is found again
    answer = sent(lambda where: log(where, token), experiment=experiment, uri=uri)
    if isinstance(answer, Tracked):
        _keep(folder, {"token": token, "of": [asked, digest], "tracked": asdict(answer)})
    return answer


def _read(folder: Path) -> dict[str, object]:
    try:
        note = json_value(content(folder / NOTE))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) and "token" in note else {}


def _keep(folder: Path, note: Mapping[str, object]) -> None:
    if folder.is_dir():
        atomic_write.write(folder / NOTE, json.dumps(note, indent=1) + "\n")
