"""People decide which ideas are carried out: on a terminal, or through a file."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import ClassVar, Literal, TextIO

import yaml

from portkern.agent.slot import Slot
from portkern.errors import ConfigError, StorageError, no_such
from portkern.printable import printable
from portkern.records.jsonl import Line, LineFile
from portkern.spec.foreign_text import Malformed, read_text, yaml_value

MODES = ("none", "ideas")
#: Where there is no terminal: ``ideas.yaml`` asks, and is answered in place.
FILE, DECISIONS = "ideas.yaml", "decisions.jsonl"
_HEAD = """\
# Ideas of slot {slot}. Set 'approved' to the list of those to carry out, such as [1, 3], to 'all'
# or to 'none'; the run goes on when the file is saved.
"""


class Decision(Line):
    """Line of ``decisions.jsonl``."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    slot: int
    ideas: tuple[str, ...]
    approved: tuple[str, ...]


class Approver:
    """Asks people which ideas are carried out, and keeps each answer in the run's folder: a
    resumed run does not ask again."""

    def __init__(
        self,
        mode: str,
        folder: Path,
        *,
        source: TextIO | None = None,
        sink: TextIO | None = None,
        poll_s: float = 0.5,
    ) -> None:
        if mode not in MODES:
            raise no_such("approve mode", mode, MODES)
        self.mode, self.folder, self.poll_s = mode, folder, poll_s
        self._source, self._sink = source or sys.stdin, sink or sys.stderr
        self._decisions = LineFile(folder / DECISIONS, Decision.from_json)
        self._turn = Lock()  # one question at a time

    def choose(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        """Returns the ``ideas`` that are to be carried out, in their order. Raises RecordError
        and StorageError."""
        if self.mode == "none":
            return list(ideas)
        with self._turn:
            approved = self._decided(slot, ideas)
            if approved is None:
                ask = self._ask if self._source.isatty() else self._ask_by_file
                approved = ask(slot, ideas)
                self._decisions.append(
                    [Decision(slot=slot.number, ideas=tuple(ideas), approved=tuple(approved))]
                )
        return [idea for idea in ideas if idea in approved]

    def _decided(self, slot: Slot, ideas: Sequence[str]) -> Sequence[str] | None:
        """The ideas that were approved of these; None when nobody was asked about them for this
        slot."""
        known = [
            decision.approved
            for decision in self._decisions.read()[0]
            if (decision.slot, decision.ideas) == (slot.number, tuple(ideas))
        ]
        return known[-1] if known else None

    def _ask(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        self._say(f"\nIdeas of slot {slot.number}:")
        for number, idea in enumerate(ideas, 1):
            self._say(f"{number:3}. {idea}")
        while True:
            self._say("Carry out which? (numbers, all or none) ", end="")
            line = self._source.readline()
            if not line:
                self._say("")
                return []  # the terminal is gone: nothing was approved
            try:
                return chosen(line.strip(), ideas)
            except ConfigError as error:
                self._say(str(error))

    def _ask_by_file(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        """An answer that makes no sense is complained about once, and waited for again."""
        path = self.folder / FILE
        asked = {"slot": slot.number, "ideas": dict(enumerate(ideas, 1))}
        if not _asks(path, asked):  # somebody may have answered what an interrupted run asked
            text = yaml.safe_dump(asked | {"approved": None}, allow_unicode=True, sort_keys=False)
            _write(path, _HEAD.format(slot=slot.number) + text)
        self._say(f"portkern: note: waiting for 'approved' in {path}")
        complained = ""
        while True:
            try:
                answer = _read(path).get("approved")
                if answer is not None:
                    approved = chosen(answer, ideas)
                    path.unlink(missing_ok=True)
                    return approved
            except (Malformed, ConfigError) as error:  # it may be half saved
                reason = " ".join(str(error).split())
                if isinstance(error, ConfigError) and reason != complained:
                    self._say(f"portkern: note: {path}: {reason}")
                    complained = reason
            time.sleep(self.poll_s)

    def _say(self, text: str, end: str = "\n") -> None:
        print(printable(text), end=end, file=self._sink, flush=True)


def _read(path: Path) -> dict[str, object]:
    """Raises Malformed, also where there is no such file."""
    try:
        content = yaml_value(read_text(path))
    except ConfigError as error:
        raise Malformed(str(error)) from error
    return content if isinstance(content, dict) else {}


def _asks(path: Path, asked: dict[str, object]) -> bool:
    try:
        answers = _read(path)
    except Malformed:
        return False
    return all(answers.get(key) == value for key, value in asked.items())


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError.of(error, path) from error


def chosen(answer: object, ideas: Sequence[str]) -> list[str]:
    """``answer``: numbers from 1, in a list or a text, ``all`` or ``none``, or what YAML makes of
    yes and no. Raises ConfigError."""
    word = answer.strip().lower() if isinstance(answer, str) else answer
    if word == "all" or word is True:
        return list(ideas)
    if word == "none" or word is False or word == []:
        return []
    parts = word if isinstance(word, list) else str(word).replace(",", " ").split()
    numbers = [_number(part) for part in parts]
    if not numbers or not all(1 <= number <= len(ideas) for number in numbers):
        raise ConfigError(
            f"Got {answer!r}, expected numbers from 1 to {len(ideas)}, 'all' or 'none'"
        )
    return [ideas[number - 1] for number in dict.fromkeys(numbers)]


def _number(part: object) -> int:
    """0, which no idea has, for what is none."""
    if isinstance(part, int) and not isinstance(part, bool):
        return part
    return int(part) if isinstance(part, str) and re.fullmatch(r"[0-9]{1,6}", part) else 0
