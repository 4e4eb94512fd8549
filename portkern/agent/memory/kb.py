"""Documents that people wrote for the task at hand: the target's own facts, or a folder of theirs.

constraints/general.md      told to everybody
guidance/triton.md          told where the file is named after something of the task: its op,
hardware/gfx942.md          op family, backend, language, dtype, target, architecture or vendor
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.log import Log
from portkern.agent.memory.family import family
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.errors import ConfigError
from portkern.spec.target import Target

#: The order in which they are told.
FOLDERS = ("constraints", "guidance", "hardware")
EVERYBODY = "general"


class Kb:
    """Read once: a document that is edited while a run goes on does not change it."""

    def __init__(self, options: MemoryOptions, task: Task) -> None:
        """Raises ConfigError for a folder that is none, or has nothing of ours in it."""
        blocks = curated(Path(options.folder), task) if options.folder else facts(task.target)
        self.blocks = list(blocks)

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        return [Passage(block) for block in self.blocks]

    def learn(self, attempt: Attempt) -> None:
        """People write these."""


def facts(target: Target) -> Iterator[PromptBlock]:
    """Facts of a target's file that not every prompt has: those that are uncertain."""
    if target.uncertain:
        text = "\n".join(f"- {line}" for line in target.uncertain)
        title = f"{target.title}: what is not certain of this"
        yield PromptBlock(kind="kb", title=title, text=text)


def curated(folder: Path, task: Task) -> Iterator[PromptBlock]:
    if not any((folder / name).is_dir() for name in FOLDERS):
        raise ConfigError(
            f"memory.folder: got {str(folder)!r}, expected a folder with {', '.join(FOLDERS)} in it"
        )
    target = task.target
    about = {
        EVERYBODY,
        task.op.name,
        family(task.op),
        task.backend.name,
        task.language,
        task.dtype,
        target.name,
        target.arch,
        target.vendor,
    }
    for name in FOLDERS:
        for file in sorted((folder / name).glob("*.md")):
            if file.stem in about:
                title = f"{name.capitalize()}: {file.stem}"
                yield PromptBlock(kind="kb", title=title, text=_read(file))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {file}: {error}") from error
