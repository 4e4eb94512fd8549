"""People decide which ideas are carried out, and in which words: on a terminal, or through a
file."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import ClassVar, Literal, TextIO

import yaml
from pydantic import Field

from portkern.agent.axes import Word
from portkern.agent.slot import Slot
from portkern.errors import ConfigError, no_such
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine, LineFile
from portkern.spec.foreign_text import Malformed, read_text, yaml_value

MODES = ("none", "ideas")
#: Where there is no terminal: ``ideas.yaml`` asks, and is answered in place.
FILE, DECISIONS = "ideas.yaml", "decisions.jsonl"
_HEAD = """\
# Ideas of slot {slot}. Set 'approved' to the list of those to carry out, such as [1, 3], to 'all'
# or to 'none'; the run goes on when the file is saved. Change the text of an idea to have that
# carried out in its place, and say in 'why' what is against one: {{2: needs too much memory}}.
"""
_ASK = (
    "Carry out which? (numbers, all or none; 'N: TEXT' changes an idea, '-N: WHY' strikes it out) "
)
#: A line that changes an idea or strikes it out.
_CHANGE = re.compile(r"\s*(-?)\s*([0-9]{1,6})\s*(?::\s*(.*?))?\s*")


class Approval(JsonLine):
    """Line of ``decisions.jsonl``: those ``approved`` of the ``ideas``, by the number of an idea
    the text that came in its place (``edited``), and ``why`` others were not."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    slot: int
    ideas: tuple[str, ...]
    approved: tuple[str, ...]
    edited: Mapping[str, str] = Field(default_factory=dict)
    why: Mapping[str, str] = Field(default_factory=dict)


@dataclass
class _Answer:
    """``approved`` are ideas as they were asked about; ``edited`` and ``why`` by their number."""

    approved: Sequence[str] = ()
    edited: dict[int, str] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)

    def words(self, ideas: Sequence[str]) -> list[Word]:
        return [
            Word(self.edited.get(number, idea))
            if idea in self.approved
            else Word(why=self.why.get(number, ""))
            for number, idea in enumerate(ideas, 1)
        ]


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
        self._decisions = LineFile(folder / DECISIONS, Approval.from_json)
        self._turn = Lock()  # one question at a time

    def choose(self, slot: Slot, ideas: Sequence[str]) -> list[Word]:
        """Returns people's word on each of the ``ideas``. Raises RecordError and StorageError."""
        if self.mode == "none":
            return [Word(idea) for idea in ideas]
        with self._turn:
            answer = self._decided(slot, ideas)
            if answer is None:
                ask = self._ask if self._source.isatty() else self._ask_by_file
                answer = ask(slot, ideas)
                self._keep(slot, ideas, answer)
        return answer.words(ideas)

    def _decided(self, slot: Slot, ideas: Sequence[str]) -> _Answer | None:
        """The answer for these ideas; None when nobody was asked about them for this slot."""
        known = [
            decision
            for decision in self._decisions.read()[0]
            if (decision.slot, decision.ideas) == (slot.number, tuple(ideas))
        ]
        if not known:
            return None
        edited = {int(number): text for number, text in known[-1].edited.items()}
        why = {int(number): text for number, text in known[-1].why.items()}
        return _Answer(known[-1].approved, edited, why)

    def _keep(self, slot: Slot, ideas: Sequence[str], answer: _Answer) -> None:
        decision = Approval(
            slot=slot.number,
            ideas=tuple(ideas),
            approved=tuple(answer.approved),
            edited={str(number): text for number, text in answer.edited.items()},
            why={str(number): text for number, text in answer.why.items()},
        )
        self._decisions.append([decision])

    def _ask(self, slot: Slot, ideas: Sequence[str]) -> _Answer:
        """Lines that change an idea or strike it out come before the one that chooses."""
        self._say(f"\nIdeas of slot {slot.number}:")
        for number, idea in enumerate(ideas, 1):
            self._say(f"{number:3}. {idea}")
        answer = _Answer()
        while True:
            self._say(_ASK, end="")
            line = self._source.readline()
            if not line:
                self._say("")
                return _Answer()  # the terminal is gone: nothing was approved
            try:
                if _changes(answer, line, ideas):
                    continue
                picked = chosen(line.strip(), ideas)
                if line.strip().lower() == "all":
                    picked = [i for n, i in enumerate(ideas, 1) if n not in answer.why]
                answer.approved = picked
                return answer
            except ConfigError as error:
                self._say(str(error))

    def _ask_by_file(self, slot: Slot, ideas: Sequence[str]) -> _Answer:
        """An answer that makes no sense is complained about once, and waited for again."""
        path = self.folder / FILE
        asked = {"slot": slot.number, "question": _digest(ideas)}
        before = {"slot": slot.number, "ideas": dict(enumerate(ideas, 1))}  # as 0.2 asked
        # Somebody may have answered what an interrupted run asked.
        if not (_asks(path, asked) or _asks(path, before)):
            rest = {"ideas": dict(enumerate(ideas, 1)), "why": {}, "approved": None}
            text = yaml.safe_dump(asked | rest, allow_unicode=True, sort_keys=False)
            _write(path, _HEAD.format(slot=slot.number) + text)
        self._say(f"portkern: note: waiting for 'approved' in {path}")
        complained = ""
        while True:
            try:
                content = _read(path)
                if content.get("approved") is not None:
                    answer = _of_file(content, ideas)
                    path.unlink(missing_ok=True)
                    return answer
            except (Malformed, ConfigError) as error:  # it may be half saved
                reason = " ".join(str(error).split())
                if isinstance(error, ConfigError) and reason != complained:
                    self._say(f"portkern: note: {path}: {reason}")
                    complained = reason
            time.sleep(self.poll_s)

    def _say(self, text: str, end: str = "\n") -> None:
        print(printable(text), end=end, file=self._sink, flush=True)


def _changes(answer: _Answer, line: str, ideas: Sequence[str]) -> bool:
    """Whether the line changes an idea or strikes it out, which is then done. Raises
    ConfigError for an idea that there is not."""
    found = _CHANGE.fullmatch(line)
    if not found or not (found[1] or found[3]):
        return False
    number = int(found[2])
    if not 1 <= number <= len(ideas):
        raise ConfigError(f"Got {line.strip()!r}, expected numbers from 1 to {len(ideas)}")
    place = answer.why if found[1] else answer.edited
    place[number] = found[3] or ""
    return True


def _of_file(content: Mapping[str, object], ideas: Sequence[str]) -> _Answer:
    """The answer that a file holds. Raises ConfigError."""
    edited = {
        number: text
        for number, text in _texts(content, "ideas", ideas).items()
        if text.strip() and text != ideas[number - 1]
    }
    return _Answer(chosen(content["approved"], ideas), edited, _texts(content, "why", ideas))


def _texts(content: Mapping[str, object], name: str, ideas: Sequence[str]) -> dict[int, str]:
    """Texts by the number of an idea. Raises ConfigError."""
    value = content.get(name) or {}
    if isinstance(value, dict) and all(
        0 < _number(key) <= len(ideas) and isinstance(text, str) for key, text in value.items()
    ):
        return {_number(key): text for key, text in value.items()}
    raise ConfigError(
        f"Got {name}: {str(value)[:80]}, expected texts by numbers from 1 to {len(ideas)}"
    )


def _digest(ideas: Sequence[str]) -> str:
    return hashlib.sha256(repr(list(ideas)).encode()).hexdigest()[:12]


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
    atomic_write.write(path, text)  # a link in its place is replaced


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
