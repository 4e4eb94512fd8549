"""Messages about a night arrive once, later if they must, and their address is a secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from portkern.errors import ConfigError
from portkern.tracking import webhook


class Hook(BaseHTTPRequestHandler):
    answers: ClassVar[list[int]] = []
    got: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.got.append(json.loads(text))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(webhook, "PAUSES_S", (0.0, 0.01, 0.02))
    server = HTTPServer(("127.0.0.1", 0), Hook)
    Hook.answers, Hook.got = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/secret"
    server.shutdown()
    server.server_close()


def texts() -> list[object]:
    return [one["text"] for one in Hook.got]


def test_a_message_that_is_not_taken_at_first_is_tried_again(url: str, tmp_path: Path) -> None:
    Hook.answers = [503, 429]
    assert webhook.send(url, "red", {"run": "one"}, tmp_path) == []
    assert Hook.got == [{"text": "red", "run": "one"}]


def test_what_a_dead_server_missed_goes_with_the_next_message(url: str, tmp_path: Path) -> None:
    Hook.answers = [500] * 3
    [note] = webhook.send(url, "first", {}, tmp_path)
    assert "answered 500" in note and "next command" in note
    gone = "http://127.0.0.1:9/secret"
    [note] = webhook.send(gone, "to another", {}, tmp_path)
    kept = [path.read_text() for path in (tmp_path / webhook.SPOOL).iterdir()]
    assert len(kept) == 2 and not any("secret" in text for text in [note, *kept])
    (tmp_path / webhook.SPOOL / "00.json").write_text("torn {")
    assert webhook.send(url, "second", {}, tmp_path) == []
    assert texts() == ["first", "second"]
    assert webhook.send(url, "third", {}, tmp_path) == [] and texts()[2:] == ["third"]


@pytest.mark.parametrize("status", [302, 400, 404])
def test_what_is_refused_is_said_and_not_kept(url: str, tmp_path: Path, status: int) -> None:
    Hook.answers = [status]
    [note] = webhook.send(url, "red", {}, tmp_path)
    assert f"answered {status}" in note and not (tmp_path / webhook.SPOOL).exists()
    assert not Hook.got


def test_the_spool_has_an_end(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MOST", 2)
    for number in range(4):
        Hook.answers = [500] * 9
        notes = webhook.send(url, str(number), {}, tmp_path)
    assert any("dropped" in note for note in notes)
    Hook.answers = []
    webhook.send(url, "last", {}, tmp_path)
    assert texts() == ["2", "3", "last"]


def test_an_address_is_of_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(webhook.VARIABLE, raising=False)
    assert webhook.address("") == ""  # a fork's pull request has no secrets
    monkeypatch.setenv(webhook.VARIABLE, "https://example.com/x")
    assert webhook.address("") == "https://example.com/x"
    for bad in ("file:///etc/passwd", "example.com/x", "http://", "http://[x/", "https://a/\n"):
        with pytest.raises(ConfigError) as caught:
            webhook.address(bad)
        assert bad not in str(caught.value)


@pytest.mark.parametrize("address", ["http://user:SECRET@h/x", "http://127.0.0.1/a SECRET"])
def test_words_about_an_address_do_not_quote_it(address: str, tmp_path: Path) -> None:
    notes = webhook.send(address, "red", {}, tmp_path)
    assert notes and not any("SECRET" in note for note in notes)
