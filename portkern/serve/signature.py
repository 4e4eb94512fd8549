"""Requests that nobody else can make, and nobody can make twice: signed with a key that never
travels, over what is asked, the time, and a word that is used once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable

#: The headers of a request and of its answer.
HEADER, ANSWER = "Authorization", "Portkern-Answer"
#: Seconds that a signature holds: clients and server share a clock, or nearly.
VALID_S = 60.0
_FORM = re.compile(r"Portkern ([0-9a-f]{32}) ([0-9]{1,12}) ([0-9a-f]{64}) ([0-9a-f]{64})")


def new_key() -> str:
    return secrets.token_hex(32)


def sign(key: str, method: str, path: str, body: bytes, *, now: float | None = None) -> str:
    """The value of the header."""
    nonce, at = secrets.token_hex(16), int(time.time() if now is None else now)
    digest = hashlib.sha256(body).hexdigest()
    return f"Portkern {nonce} {at} {digest} {_mac(key, method, path, digest, nonce, at)}"


def is_of(header: str, body: bytes) -> bool:
    """Whether a signature that is right was made for this body."""
    form = _FORM.fullmatch(header)
    return form is not None and form[3] == hashlib.sha256(body).hexdigest()


def _mac(key: str, method: str, path: str, digest: str, nonce: str, at: int) -> str:
    said = "\n".join((method, path, nonce, str(at), digest)).encode()
    return hmac.new(key.encode(), said, hashlib.sha256).hexdigest()


def answer(key: str, request: str, status: int, content: bytes) -> str:
    """The value of an answer's header, for the request with this signature alone."""
    said = "\n".join(("answer", request, str(int(status)), hashlib.sha256(content).hexdigest()))
    return hmac.new(key.encode(), said.encode(errors="replace"), hashlib.sha256).hexdigest()


class Verifier:
    """Knows the words that were used while their signatures hold. Thread-safe."""

    def __init__(self, key: str, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()

    def answer(self, request: str, status: int, content: bytes) -> str:
        return answer(self._key, request, status, content)

    def refusal(self, header: str, method: str, path: str) -> str:
        """Why a request is not taken; empty where it is. A word counts as used only by a request
        whose signature is right: others cannot fill the memory."""
        form = _FORM.fullmatch(header)
        if form is None:
            return (
                "the request is not signed; its key is in the server's file, which portkern reads"
            )
        nonce, at = form[1], int(form[2])
        if not hmac.compare_digest(_mac(self._key, method, path, form[3], nonce, at), form[4]):
            return "its signature is wrong: the server was started anew, or the request altered"
        now = self._clock()
        if abs(now - at) > VALID_S:
            return f"its signature is of {now - at:.0f} s ago, expected at most {VALID_S:.0f} s"
        with self._lock:
            self._used = {word: until for word, until in self._used.items() if until > now}
            if nonce in self._used:
                return "it was sent before; sign each request anew"
            self._used[nonce] = at + 2 * VALID_S
        return ""
