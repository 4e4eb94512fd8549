"""People decide which ideas are carried out: on a terminal, or through a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TextIO

import yaml

from portkern.agent.slot import Slot
from portkern.errors import ConfigError, no_such

MODES = ("none", "ideas")
#: Where there is no terminal: ``ideas.yaml`` asks, and is answered in place.
FILE, DECISIONS = "ideas.yaml", "decisions.jsonl"
_HEAD = """\
# Ideas of slot {slot}. Set 'approved' to the list of those to carry out, such as [1, 3], to 'all'
# or to 'none'; the run goes on when the file is saved.
"""


class Approver:
    """What was decided once is kept in the run's folder: a resumed run does not ask again."""

    def __init__(
        self, mode: str, folder: Path, *, source: TextIO | None = None, sink: TextIO | None = None,
        poll_s: float = 0.5,
    ) -> None:  # fmt: skip
        if mode not in MODES:
            raise no_such("approve mode", mode, MODES)
        self.mode, self.folder, self.poll_s = mode, folder, poll_s
        self._source, self._sink = source or sys.stdin, sink or sys.stderr
        self._turn = Lock()  # one question at a time

    def choose(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        """Those of ``ideas`` that are to be carried out."""
        if self.mode == "none":
            return list(ideas)
        with self._turn:
            decided = self._decided().get(slot.number)
            if decided is None:
                ask = self._ask if self._source.isatty() else self._ask_by_file
                decided = ask(slot, ideas)
                with (self.folder / DECISIONS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"slot": slot.number, "approved": decided}) + "\n")
        return [one for one in ideas if one in decided]

    def _decided(self) -> dict[int, list[str]]:
        path = self.folder / DECISIONS
        if not path.exists():
            return {}
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return {one["slot"]: one["approved"] for one in lines}

    def _ask(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        print(f"\nIdeas of slot {slot.number}:", file=self._sink)
        for number, idea in enumerate(ideas, 1):
            print(f"  {number}. {idea}", file=self._sink)
        while True:
            print("Carry out which? (numbers, all or none) ", end="", file=self._sink, flush=True)
            line = self._source.readline()
            if not line:
                return []  # the terminal is gone: nothing was approved
            try:
                return chosen(line.strip(), ideas)
            except ConfigError as error:
                print(error, file=self._sink)

    def _ask_by_file(self, slot: Slot, ideas: Sequence[str]) -> list[str]:
        path = self.folder / FILE
        numbered = dict(enumerate(ideas, 1))
        asked = yaml.safe_dump({"ideas": numbered, "approved": None}, allow_unicode=True)
        path.write_text(_HEAD.format(slot=slot.number) + asked, encoding="utf-8")
        print(f"portkern: note: waiting for 'approved' in {path}", file=self._sink)
        while True:
            time.sleep(self.poll_s)
            try:
                told = yaml.safe_load(path.read_text(encoding="utf-8"))
                answer = told.get("approved") if isinstance(told, dict) else None
                if answer is None:
                    continue
                decided = chosen(answer, ideas)
            except (OSError, yaml.YAMLError, ConfigError):
                continue  # half saved, or not an answer yet
            path.unlink(missing_ok=True)
            return decided


def chosen(answer: object, ideas: Sequence[str]) -> list[str]:
    """``answer``: numbers from 1, in a list or a text, ``all`` or ``none``. Raises ConfigError."""
    if answer in ("all", "none"):
        return list(ideas) if answer == "all" else []
    parts = answer if isinstance(answer, list) else str(answer).replace(",", " ").split()
    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or not all(1 <= number <= len(ideas) for number in numbers):
        raise ConfigError(
            f"Got {answer!r}, expected numbers from 1 to {len(ideas)}, 'all' or 'none'"
        )
    return [ideas[number - 1] for number in dict.fromkeys(numbers)]
