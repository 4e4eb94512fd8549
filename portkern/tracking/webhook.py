"""Sends the news of a night to an address: JSON by POST, as Slack and services like it take it.

An address is a secret: no message, file or record has it. What could not be sent lies in a spool
beside the runs, and goes with the next command that has the same address.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from portkern.errors import ConfigError, PortkernError, RecordError
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine
from portkern.spec import foreign_text

#: The address where no option says one: a secret is better in the environment than in a command.
VARIABLE = "PORTKERN_NOTIFY"
SPOOL = "outbox"
#: Seconds before each try, and until one is given up.
PAUSES_S, TIMEOUT_S = (0.0, 1.0, 4.0), 10.0
#: Seconds for messages that wait; the others wait on.
WAITING_S = 30.0
#: Messages that wait; of more the oldest go.
MOST = 100
#: Answers after which it may go better later; others mean that the message or address is wrong.
_LATER = {408, 425, 429, *range(500, 600)}
#: The host that takes a text alone.
_TEXT_ALONE = "hooks.slack.com"


class WebhookMessage(JsonLine):
    """``to`` is a digest of the address; ``content`` goes there as it is."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    to: str
    content: str


def address(said: str) -> str:
    """The address from the option, else from the environment; '' where there is none, as in a
    pull request of a fork. Raises ConfigError."""
    url = said or os.environ.get(VARIABLE, "")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        good = False
    if url and not good:
        raise ConfigError(f"Got notify= of {len(url)} characters, expected http(s)://HOST/…")
    return url


def send(url: str, text: str, document: Mapping[str, object], reports: Path) -> list[str]:
    """The message and those that wait for it, the oldest first, with a note for what could not be
    sent. ``document`` is for those who read more than a text."""
    host = urlsplit(url).hostname or ""
    content = {"text": text} if host == _TEXT_ALONE else {"text": text, **document}
    message = WebhookMessage(to=_digest(url), content=json.dumps(content, ensure_ascii=False))
    spool = reports / SPOOL
    waiting = _waiting(spool, message.to)
    notes: list[str] = []
    begun = time.monotonic()
    for path, one in [*waiting.items(), (None, message)]:
        if path is not None and time.monotonic() - begun > WAITING_S:
            continue
        why, later = _post(url, one.content, PAUSES_S if path is None else PAUSES_S[:1])
        if why and later:
            notes.append(f"{host} was not told: {why}; it is tried again by the next command")
            if path is None:
                notes += _keep(spool, message)
            continue
        if why:
            notes.append(f"{host} does not take it: {why}")
        if path is not None:
            path.unlink(missing_ok=True)
    return list(dict.fromkeys(notes))


def _post(url: str, content: str, pauses: Sequence[float]) -> tuple[str, bool]:
    """Why it was not taken, '' if it was, and whether a later try may go better."""
    request = urllib.request.Request(
        url,
        content.encode(),
        {"Content-Type": "application/json; charset=utf-8", "User-Agent": "portkern"},
        method="POST",
    )
    opener = urllib.request.build_opener(_NoRedirect)
    why = ""
    for pause in pauses:
        time.sleep(pause)
        try:
            with opener.open(request, timeout=TIMEOUT_S):
                return "", False
        except urllib.error.HTTPError as error:
            error.close()
            why = f"it answered {error.code}"
            if error.code not in _LATER:
                return why, False
        except InvalidURL:  # its words quote the address
            return "the address is not one", False
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            why = type(reason).__name__ if not str(reason) else str(reason).replace(url, "…")
    return why, True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere becomes a GET, and an address is a secret of its host."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _waiting(spool: Path, to: str) -> dict[Path, WebhookMessage]:
    found: dict[Path, WebhookMessage] = {}
    for path in sorted(spool.glob("*.json")):
        try:
            one = WebhookMessage.from_json(foreign_text.content(path).decode())
        except (RecordError, OSError, UnicodeDecodeError):
            continue
        if one.to == to:
            found[path] = one
    return found


def _keep(spool: Path, message: WebhookMessage) -> list[str]:
    """Keeps a message in the spool; returns a note where that is not all of it."""
    name = f"{time.time_ns():020}-{os.getpid()}.json"
    try:
        atomic_write.write(spool / name, message.to_json())
        old = sorted(spool.glob("*.json"))[:-MOST]
        for path in old:
            path.unlink(missing_ok=True)
    except (PortkernError, OSError) as error:
        return [f"the message is lost: {error}"]
    return [f"{len(old)} old messages were dropped, {MOST} are kept"] if old else []


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]
