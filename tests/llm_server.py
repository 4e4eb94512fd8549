"""A chat-completions server on this machine that answers by a script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MODEL = "openai/scripted"


@dataclass(frozen=True)
class Say:
    """One response. ``body`` replaces the completion of ``text``; ``drop`` closes the connection
    instead of it, ``trickle_s`` passes between its bytes. Tokens are counted as :func:`tokens` does
    unless they are given; ``usage`` False leaves them out."""

    text: str | None = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    trickle_s: float = 0.0
    finish: str = "stop"
    reasoning: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    usage: bool = True
    body: bytes | Mapping[str, Any] | None = None
    drop: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    path: str

    @property
    def prompt(self) -> str:
        """Its last message."""
        return str(self.body["messages"][-1]["content"])


#: Responses in turn, a text being one with that text; or who makes them, told how many requests
#: came before.
Script = Sequence[Say | str] | Callable[[Mapping[str, Any], int], Say | str]


def refuse(status: int, message: str = "no", *, retry_after: str = "") -> Say:
    headers = {"Retry-After": retry_after} if retry_after else {}
    error = {"message": message, "type": "scripted", "code": None}
    return Say(status=status, headers=headers, body={"error": error})


def tokens(text: str) -> int:
    return (len(text) + 3) // 4


def completion(say: Say, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a response."""
    message: dict[str, Any] = {"role": "assistant", "content": say.text}
    if say.reasoning:
        message["reasoning_content"] = say.reasoning
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "finish_reason": say.finish, "message": message}],
    }
    if say.usage:
        prompt = "".join(str(one["content"]) for one in asked["messages"])
        tokens_in = tokens(prompt) if say.tokens_in is None else say.tokens_in
        tokens_out = tokens(str(say.text or "")) if say.tokens_out is None else say.tokens_out
        body["usage"] = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
    return body


class Server:
    """A scripted server, used as a context; ``url`` is an ``api_base``. A list that has come to its
    end is answered by status 400, which nobody repeats. ``most_at_once`` counts requests without a
    response."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Asked] = []
        self.most_at_once = 0
        self._script, self._at_once = script, 0
        self._lock, self.closing = threading.Lock(), threading.Event()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def prompts(self) -> list[str]:
        return [request.prompt for request in self.requests]

    def wait_for(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Waits until so many requests have come in."""
        end = time.monotonic() + timeout_s
        while len(self.requests) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.requests)} requests, expected {count}")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def respond(self, asked: Asked) -> Say:
        with self._lock:
            number = len(self.requests)
            self.requests.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            say = self._next(asked, number)
            self.closing.wait(say.delay_s)
        finally:
            with self._lock:
                self._at_once -= 1
        return say

    def _next(self, asked: Asked, number: int) -> Say:
        if callable(self._script):
            say = self._script(asked.body, number)
        elif number < len(self._script):
            say = self._script[number]
        else:
            say = refuse(400, f"the script has no response number {number + 1}")
        return Say(say) if isinstance(say, str) else say


class _Http(ThreadingHTTPServer):
    owner: Server
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of clients that no longer listen, such as those whose time was over."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        say = self.server.owner.respond(Asked(body, dict(self.headers), self.path))
        if say.drop:
            self.close_connection = True
            return
        content = completion(say, body) if say.body is None else say.body
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(say.status)
        for name, value in {"Content-Type": "application/json", **say.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        for part in [sent] if not say.trickle_s else [bytes([byte]) for byte in sent]:
            self.wfile.write(part)
            self.server.owner.closing.wait(say.trickle_s)

    def log_message(self, format: str, *args: Any) -> None:
        pass
