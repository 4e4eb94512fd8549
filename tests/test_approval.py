"""People strike ideas out: on a terminal, and through a file."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from portkern.agent.approval import DECISIONS, FILE, Approval, Approver, chosen
from portkern.agent.axes import Word
from portkern.agent.slot import Slot
from portkern.errors import ConfigError, RecordError, StorageError

IDEAS = ["tile the rows", "vectorise: 16 bytes\nat a time", "fuse 漢字"]
SLOT = Slot(ideas=3, number=7)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def carried(words: Sequence[Word]) -> list[str]:
    """The ideas that are carried out."""
    return [word.idea for word in words if word.idea]


def approver(folder: Path, answers: str = "", mode: str = "ideas") -> tuple[Approver, io.StringIO]:
    sink = io.StringIO()
    return Approver(mode, folder, source=Terminal(answers), sink=sink), sink


# ---- what an answer means


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("all", [1, 2, 3]),
        ("ALL ", [1, 2, 3]),
        (True, [1, 2, 3]),
        ("none", []),
        (False, []),
        ([], []),
        ("2", [2]),
        (2, [2]),
        ("1, 3", [1, 3]),
        ("3 1", [3, 1]),
        ("1,1,1", [1]),
        ([3, 1, 3], [3, 1]),
        (["2"], [2]),
    ],
)
def test_an_answer_names_ideas_by_number(answer: object, numbers: list[int]) -> None:
    assert chosen(answer, IDEAS) == [IDEAS[number - 1] for number in numbers]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "0",
        "4",
        "-1",
        "maybe",
        "1; 2",
        "1.5",
        "9" * 5000,
        "²",
        0,
        4,
        1.0,
        [1.5],
        [True],
        [[1]],
        {"1": True},
        [None],
        "all of them",
    ],
)
def test_what_is_not_an_answer_is_told_what_one_is(answer: object) -> None:
    with pytest.raises(ConfigError, match="expected numbers from 1 to 3, 'all' or 'none'"):
        chosen(answer, IDEAS)


@pytest.mark.full
@given(st.text() | st.lists(st.integers() | st.text()) | st.floats() | st.none())
def test_any_answer_is_a_choice_or_a_complaint(answer: object) -> None:
    try:
        assert set(chosen(answer, IDEAS)) <= set(IDEAS)
    except ConfigError as error:
        assert "expected numbers" in str(error)


# ---- on a terminal


def test_nobody_is_asked_when_nothing_has_to_be_approved(tmp_path: Path) -> None:
    asking, sink = approver(tmp_path, mode="none")
    assert carried(asking.choose(SLOT, IDEAS)) == IDEAS
    assert sink.getvalue() == "" and not list(tmp_path.iterdir())


def test_a_terminal_shows_the_ideas_and_takes_numbers(tmp_path: Path) -> None:
    asking, sink = approver(tmp_path, "3, 1\n")
    assert carried(asking.choose(SLOT, IDEAS)) == [IDEAS[0], IDEAS[2]]  # in their own order
    shown = sink.getvalue()
    assert "Ideas of slot 7" in shown and "  1. tile the rows" in shown and "fuse 漢字" in shown


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            "2: sixteen at a time\nall\n",
            [Word(IDEAS[0]), Word("sixteen at a time"), Word(IDEAS[2])],
        ),
        ("-1: too much memory\n- 2\nall\n", [Word(why="too much memory"), Word(), Word(IDEAS[2])]),
        ("-3: later\n1\n", [Word(IDEAS[0]), Word(), Word(why="later")]),
        ("-1: no\n1: by columns\n1\n", [Word("by columns"), Word(), Word()]),  # the last word
        ("9: x\n-9: y\n2:\nnone\n", [Word(), Word(), Word()]),  # there is no such idea
    ],
)
def test_a_terminal_takes_other_words_for_an_idea_and_why_it_is_struck_out(
    tmp_path: Path, answers: str, words: list[Word]
) -> None:
    assert approver(tmp_path, answers)[0].choose(SLOT, IDEAS) == words
    assert approver(tmp_path)[0].choose(SLOT, IDEAS) == words  # kept, nobody is asked again


def test_a_terminal_asks_again_after_garbage(tmp_path: Path) -> None:
    asking, sink = approver(tmp_path, "\nwhat?\n9\n2\n")
    assert carried(asking.choose(SLOT, IDEAS)) == [IDEAS[1]]
    assert sink.getvalue().count("expected numbers from 1 to 3") == 3
    assert sink.getvalue().count("Carry out which?") == 4


def test_a_terminal_that_is_gone_approves_nothing(tmp_path: Path) -> None:
    assert carried(approver(tmp_path, "what?\n")[0].choose(SLOT, IDEAS)) == []


def test_an_unknown_mode_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'ideas'"):
        Approver("idea", tmp_path)


# ---- decisions are kept


def test_what_was_decided_is_not_asked_again(tmp_path: Path) -> None:
    assert carried(approver(tmp_path, "2\n")[0].choose(SLOT, IDEAS)) == [IDEAS[1]]
    again, sink = approver(tmp_path)
    assert carried(again.choose(SLOT, IDEAS)) == [IDEAS[1]]
    assert sink.getvalue() == ""


def test_that_nothing_is_wanted_is_a_decision_too(tmp_path: Path) -> None:
    approver(tmp_path, "none\n")[0].choose(SLOT, IDEAS)
    assert carried(approver(tmp_path, "all\n")[0].choose(SLOT, IDEAS)) == []


@pytest.mark.parametrize("other", [(Slot(number=8), IDEAS), (SLOT, ["something else"])])
def test_other_slots_and_other_ideas_are_asked_about(
    tmp_path: Path, other: tuple[Slot, list[str]]
) -> None:
    approver(tmp_path, "1\n")[0].choose(SLOT, IDEAS)
    asking, sink = approver(tmp_path, "all\n")
    assert carried(asking.choose(*other)) == other[1]
    assert "Carry out which?" in sink.getvalue()


def test_a_decision_that_was_cut_off_is_asked_about_again(tmp_path: Path) -> None:
    approver(tmp_path, "1\n")[0].choose(SLOT, IDEAS)
    path = tmp_path / DECISIONS
    path.write_bytes(path.read_bytes()[:-9])
    assert carried(approver(tmp_path, "3\n")[0].choose(SLOT, IDEAS)) == [IDEAS[2]]
    assert carried(approver(tmp_path)[0].choose(SLOT, IDEAS)) == [IDEAS[2]]


@pytest.mark.parametrize("line", ["[]", "{}", "nonsense", '{"schema": 1, "slot": "x"}'])
def test_a_damaged_file_of_decisions_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / DECISIONS).write_text(line + "\n")
    with pytest.raises(RecordError, match=rf"{DECISIONS}:1: "):
        approver(tmp_path, "1\n")[0].choose(SLOT, IDEAS)


@given(st.integers(0, 10**6), st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_decision_reads_back_as_it_was(slot: int, ideas: list[str]) -> None:
    decision = Approval(slot=slot, ideas=tuple(ideas), approved=tuple(ideas[:1]))
    assert Approval.from_json(decision.to_json()) == decision


# ---- through a file


class Waiting:
    """An approver without a terminal, which asks in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.path, self.sink = folder / FILE, io.StringIO()
        asking = Approver("ideas", folder, source=io.StringIO(), sink=self.sink, poll_s=0.01)
        self.approved: list[str] | None = None
        self._thread = threading.Thread(target=self._ask, args=(asking,), daemon=True)
        self._thread.start()

    def _ask(self, asking: Approver) -> None:
        self.words = asking.choose(SLOT, IDEAS)
        self.approved = carried(self.words)

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not true():
            assert time.monotonic() < end, self.sink.getvalue()
            time.sleep(0.005)

    def save(self, text: str) -> None:
        self.until(self.path.exists)
        self.path.write_text(text, encoding="utf-8")

    def answer(self, approved: object) -> list[str]:
        self.until(lambda: self.path.exists() and "approved: null" in self.path.read_text("utf-8"))
        asked = self.path.read_text("utf-8")
        self.save(asked.replace("approved: null", f"approved: {approved}"))
        self._thread.join(20)
        assert self.approved is not None
        return self.approved


def test_without_a_terminal_a_file_asks_and_is_answered_in_place(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    waiting.until(lambda: "waiting for 'approved' in" in waiting.sink.getvalue())
    asked = waiting.path.read_text("utf-8")
    assert yaml.safe_load(asked) == {
        "slot": 7,
        "question": yaml.safe_load(asked)["question"],
        "ideas": dict(enumerate(IDEAS, 1)),
        "why": {},
        "approved": None,
    }
    assert asked.startswith("# Ideas of slot 7.")
    assert waiting.answer("[3, 1]") == [IDEAS[0], IDEAS[2]]
    assert not waiting.path.exists()
    assert carried(approver(tmp_path)[0].choose(SLOT, IDEAS)) == [IDEAS[0], IDEAS[2]]


def test_a_file_takes_other_words_for_an_idea_and_why_it_is_struck_out(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    waiting.until(waiting.path.exists)
    content = yaml.safe_load(waiting.path.read_text("utf-8"))
    content["ideas"][1] = "tile the columns"
    for wrong in ({"why": {2: 5}}, {"why": ["no"]}, {"ideas": {9: "x"}}):
        waiting.save(yaml.safe_dump(content | {"approved": [1]} | wrong))
        name = next(iter(wrong))
        waiting.until(lambda name=name: f"Got {name}: " in waiting.sink.getvalue())  # type: ignore[misc]
    waiting.save(yaml.safe_dump(content | {"approved": [1], "why": {2: "unaligned"}}))
    waiting.until(lambda: waiting.approved is not None)
    assert waiting.words == [Word("tile the columns"), Word(why="unaligned"), Word()]
    assert approver(tmp_path)[0].choose(SLOT, IDEAS) == waiting.words


def test_an_answer_with_other_words_is_there_when_the_run_goes_on(tmp_path: Path) -> None:
    first = Waiting(tmp_path / "first")
    first.until(first.path.exists)
    content = yaml.safe_load(first.path.read_text("utf-8"))
    content["ideas"][2] = "eight bytes"
    second = tmp_path / "second"
    second.mkdir()
    (second / FILE).write_text(yaml.safe_dump(content | {"approved": [2]}), encoding="utf-8")
    waiting = Waiting(second)
    waiting.until(lambda: waiting.approved == ["eight bytes"])


@pytest.mark.parametrize(("answer", "count"), [("all", 3), ("none", 0), ("no", 0), ("2", 1)])
def test_a_file_takes_words(tmp_path: Path, answer: str, count: int) -> None:
    assert len(Waiting(tmp_path).answer(answer)) == count


def test_what_is_half_saved_is_waited_for_and_nonsense_complained_about(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    waiting.until(waiting.path.exists)
    for text in ("", "ideas: [", "- a list\n", "approved: null\n"):
        waiting.save(text)
        time.sleep(0.03)
    assert waiting.approved is None and "Got" not in waiting.sink.getvalue()
    waiting.save("approved: [9]\n")
    waiting.until(lambda: "Got [9], expected numbers from 1 to 3" in waiting.sink.getvalue())
    time.sleep(0.05)
    assert waiting.sink.getvalue().count("Got [9]") == 1
    waiting.save("approved: [2]\n")
    waiting.until(lambda: waiting.approved == [IDEAS[1]])


def test_an_answer_to_an_interrupted_run_is_not_overwritten(tmp_path: Path) -> None:
    asked = {"slot": 7, "ideas": dict(enumerate(IDEAS, 1)), "approved": [2]}
    (tmp_path / FILE).write_text(yaml.safe_dump(asked), encoding="utf-8")
    waiting = Waiting(tmp_path)
    waiting.until(lambda: waiting.approved == [IDEAS[1]])


def test_an_answer_to_another_question_is_overwritten(tmp_path: Path) -> None:
    asked = {"slot": 6, "ideas": {1: "x"}, "approved": "all"}
    (tmp_path / FILE).write_text(yaml.safe_dump(asked), encoding="utf-8")
    assert Waiting(tmp_path).answer("[1]") == [IDEAS[0]]


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asking = Approver("ideas", tmp_path / "file", source=io.StringIO(), sink=io.StringIO())
    with pytest.raises(StorageError, match="Cannot write"):
        asking.choose(SLOT, IDEAS)
