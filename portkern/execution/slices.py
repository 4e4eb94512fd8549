"""Which cells go to a node together, and to which nodes they may go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from portkern.cells.selection import SelectedCell
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.execution.question import Question
from portkern.records.record import Record

#: Characters of a node's answer.
MOST_ANSWER = 64 << 20


@dataclass(frozen=True)
class Slice:
    """All kernels of one op and dtype that race on one device, or are emulated; these may go to any
    node, and have no ``device``.."""

    run: str
    cells: tuple[SelectedCell, ...]
    options: TrialOptions
    device: str = ""

    @cached_property
    def document(self) -> str:
        """The document that travels: the plan of these cells."""
        return ExecutionPlan.of(self.cells, self.options, self.run).to_json()

    @property
    def name(self) -> str:
        first = self.cells[0]
        where = self.device or "any node"
        return f"{first.op.name} {first.dtype} on {where} ({len(self.cells)} cells)"

    def fits(self, targets: Collection[str]) -> bool:
        return not self.device or self.device in targets

    def records(self, answer: object) -> list[Record]:
        """The answers of a node, in the cells' order. Raises RecordError for lines that are not
        records, and ValueError unless each cell has one."""
        lines = _lines(answer)
        by_question: Mapping[Question, Record] = {
            Question.of_record(record): record for record in map(Record.from_json, lines)
        }
        asked = [Question.of_cell(cell) for cell in self.cells]
        if len(lines) != len(asked) or set(asked) != set(by_question):
            raise ValueError(f"got records of {len(by_question)} cells, expected {len(asked)}")
        return [by_question[question] for question in asked]


def _lines(answer: object) -> list[str]:
    """Raises ValueError for anything but lines, and for more than records take."""
    if type(answer) is not list or any(type(line) is not str for line in answer):
        raise ValueError(f"got {type(answer).__name__:.40}, expected a list of lines")
    size = sum(map(len, answer))
    if size > MOST_ANSWER:
        raise ValueError(f"got {size} characters, expected at most {MOST_ANSWER}")
    return answer


def slices(
    cells: Sequence[SelectedCell], options: TrialOptions, run: str, advertised: Collection[str]
) -> list[Slice]:
    """``advertised``: the targets that some node is. What is of one of them goes there, unless only
    emulators are asked for; what is of none may be emulated anywhere, unless only hardware is."""
    groups: dict[tuple[str, str, str], list[SelectedCell]] = {}
    for cell in cells:
        name, venue = cell.target.name, cell.stage.venue
        there = name in advertised and venue != "emulator"
        device = name if there or venue == "hardware" else ""
        groups.setdefault((cell.op.name, cell.dtype, device), []).append(cell)
    made = [Slice(run, tuple(group), options, device) for (_, _, device), group in groups.items()]
    return sorted(made, key=lambda one: not one.device)  # what few nodes can do comes first
