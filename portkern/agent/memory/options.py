"""The options of a memory, in one place: its parts share the limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=1)]
#: A block that is cut keeps this much at least: the note on what is left out has to fit.
LEAST_CHARS = 200


class MemoryOptions(BaseModel):
    """``conf/memory/none.yaml`` says what each is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    history: tuple[str, ...] = ()
    ancestors: _Count = 5
    order: Literal["worst_to_best", "oldest_first"] = "worst_to_best"
    rounds: _Count = 8
    code_chars: _Count = 500
    best: _Count = 1
    measured: bool = False
    recent: _Count = 5
    insights: _Count = 3
    reflexions: _Count = 5
    leaders: _Count = 3
    relatives: _Count = 4
    results: bool = True

    knowledge: tuple[str, ...] = ()
    k: _Count = 2
    corpora: tuple[str, ...] = ("catalogue",)
    query: Literal["reference", "code", "action"] = "reference"
    min_score: float = 0.0
    mending: bool = False
    own: bool = False
    model: str = ""
    folder: str = ""
    skills: _Count = 5
    graph: str = ""
    examples: _Count = 2
    keep: bool = False

    max_chars: Annotated[int, Field(ge=LEAST_CHARS)] = 24_000
    max_total: Annotated[int, Field(ge=LEAST_CHARS)] = 80_000
