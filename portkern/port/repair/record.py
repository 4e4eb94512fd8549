"""One attempt at mending a file: a line of ``repairs.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Literal

from portkern.records.jsonl import JsonLine, JsonPart
from portkern.records.record import Text

SCHEMA: Final = 1
FILE: Final = "repairs.jsonl"
#: ``kept``: better by the order of :mod:`.standing`; ``undone``: built and proven again, and no
#: better; ``refused``: changes what must stay, and was not tried; ``unread``: no edit in the reply;
#: ``failed``: no reply.
Status = Literal["kept", "undone", "refused", "unread", "failed"]


class KernelChange(JsonPart):
    """``before`` and ``after`` in words; ``findings`` are those that the model was told."""

    path: Text
    line: int
    kernel: Text
    before: Text
    after: Text
    better: bool = False
    findings: tuple[Text, ...] = ()


class Repair(JsonLine):
    """``call`` names the line of ``calls.jsonl``, ``prompt`` the template with its version.
    Tokens and USD are None where nobody said."""

    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    attempt: int
    file: Text
    status: Status
    why: Text = ""
    kernels: tuple[KernelChange, ...] = ()
    diff: Text = ""
    model: Text = ""
    call: Text = ""
    prompt: Text = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None

    @property
    def cost(self) -> str:
        tokens = [self.tokens_in, self.tokens_out]
        counted = "tokens unknown" if None in tokens else "{} + {} tokens".format(*tokens)
        usd = "price unknown" if self.usd is None else f"{self.usd:.4f} USD"
        return ", ".join(filter(None, [self.model, self.prompt, counted, usd]))

    def __str__(self) -> str:
        text = f"repair {self.attempt} of {self.file}: {self.status}"
        changes = ", ".join(
            f"{change.kernel}: {change.before} → {change.after}"
            for change in self.kernels
            if change.before != change.after
        )
        return f"{text}; {changes or self.why}" if changes or self.why else text


def mended_by(repairs: Iterable[Repair], path: str, kernel: str) -> str:
    """The model whose edit made a kernel better last; empty where none did."""
    models = [
        repair.model
        for repair in repairs
        for change in repair.kernels
        if repair.status == "kept"
        and change.better
        and (change.path, change.kernel) == (path, kernel)
    ]
    return models[-1] if models else ""
