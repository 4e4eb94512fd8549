"""Attempts and code as text for a prompt, and what is done when there is too much of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.memory.options import LEAST_CHARS
from portkern.agent.task import Task

_FENCE = re.compile(r"`{3,}")
_TAGS = {"c++": "cpp", "cuda": "cuda", "hip": "cpp"}
#: A closing fence and a note on what was left out are no longer than this.
_NOTE = 60
_MOST_ACTION = 120


class Passage(NamedTuple):
    """``spared``: what is to be built on, which others make room for."""

    block: PromptBlock
    spared: bool = False


def code(source: str, language: str) -> str:
    """Fenced, with a fence that is not in it."""
    longest = max(map(len, _FENCE.findall(source)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{_TAGS.get(language, 'python')}\n{source.rstrip()}\n{fence}"


def result(attempt: Attempt, task: Task) -> str:
    """One line. Sizes that ``task`` does not show are not named."""
    if not attempt.correct:
        status = attempt.status.replace("_", " ")
        return f"{status}: {attempt.detail.splitlines()[0]}" if attempt.detail else status
    if not attempt.speedups:
        return f"passed, not timed{attempt.ranked and f': {attempt.ranked}'}"
    shown = {workload.name for several in task.workloads.values() for workload in several}
    sizes = [f"{name}: {gain:.2f}" for name, gain in attempt.speedups.items() if name in shown]
    status = f"passed, {attempt.score:.2f} times as fast as the baseline"
    return f"{status} ({', '.join(sizes)})" if len(sizes) > 1 else status


def action(attempt: Attempt) -> str:
    """The action that an attempt carried out, in words by which it can be repeated. Empty when
    nobody said."""
    return named(attempt.arm or attempt.idea)


def named(idea: str) -> str:
    """The beginning of an idea, which stands for it; an arm's name as it is."""
    return " ".join(idea.split())[:_MOST_ACTION].rstrip(" .")


def cut(text: str, most: int) -> str:
    """The text cut to at most ``most`` characters, with a note on how many are missing. Code keeps
    whole lines and its closing fence; prose ends with a word."""
    if len(text) <= most:
        return text
    room, kept, fence = most - _NOTE, "", ""
    for line in text.split("\n"):
        if len(kept) + len(line) >= room:
            kept += "" if fence or _FENCE.match(line) else _words(line, room - len(kept))
            break
        kept += f"{line}\n"
        mark = _FENCE.match(line)
        if mark and (not fence or line.rstrip() == fence):
            fence = "" if fence else mark[0]
    closing = f"{fence}\n" if fence else ""
    return f"{kept}{closing}… {len(text) - len(kept)} characters left out"


def _words(line: str, room: int) -> str:
    """As many words of a line as fit, with the space behind them."""
    return line[: line.rfind(" ", 0, max(room, 0)) + 1]


def fit(passages: Sequence[Passage], *, each: int, total: int) -> list[PromptBlock]:
    """All blocks within their limits. Those that are spared take their room first. Of the others
    the longest are cut first; where not even their beginnings have room, the first ones go."""
    spared = [min(len(passage.block.text), each) for passage in passages if passage.spared]
    others = [min(len(passage.block.text), each) for passage in passages if not passage.spared]
    room = max(total - sum(spared), 0)
    gone = 0
    if sum(others) > room:
        gone = max(len(others) - max(room // LEAST_CHARS - 1, 0), 0)
    most = {True: _level(spared, total), False: _level(others[gone:], room - bool(gone) * _NOTE)}
    blocks = [_left_out(gone)] if gone else []
    for block, important in passages:
        if not important and gone:
            gone -= 1
            continue
        text = cut(block.text, most[important])
        blocks.append(block.model_copy(update={"text": text}))
    return blocks


def _left_out(count: int) -> PromptBlock:
    what = "1 more text" if count == 1 else f"{count} more texts"
    return PromptBlock(
        kind="left_out", title="Left out", text=f"{what} would not have fitted in here."
    )


def _level(lengths: Sequence[int], room: int) -> int:
    """The most that each may have so that all fit: what the short ones leave is the others'."""
    for number, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return max(lengths, default=0)
