"""The log of what models were asked and what they answered: one line each, on disk before it is
used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

from portkern.agent.axes import PromptMessage, Reply
from portkern.agent.llm.completion import REFUSED, TOOL_CALLS
from portkern.errors import ConfigError, RecordError
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine, LineFile
from portkern.records.record import Cost
from portkern.spec import foreign_text

SCHEMA: Final = 1
FILE: Final = "calls.jsonl"

N = TypeVar("N", int, float)
#: What kept a model from answering: its cap, a refusal, thoughts without an answer, calls of tools
#: that nobody offered.
Obstacle = Literal["", "cut", "refused", "reasoning", "tools"]
_OBSTACLES: Final[Mapping[str, Obstacle]] = {
    "length": "cut",
    REFUSED: "refused",
    TOOL_CALLS: "tools",
    "function_call": "tools",
}


@dataclass(frozen=True)
class ModelRequest:
    """``id`` is ``<scope>/<role>#<k>``, the k-th call of that role in that scope, from 1. ``model``
    is litellm's id, ``prompt`` the name and version of the template."""

    id: str
    role: str
    model: str
    messages: tuple[PromptMessage, ...]
    params: Mapping[str, Any]
    prompt: str = ""

    @cached_property
    def digest(self) -> str:
        """A digest of everything that an answer depends on, so that equal requests need not be
        paid twice."""
        messages = [[message.role, message.content] for message in self.messages]
        parts = [self.model, messages, dict(self.params)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def tokens_at_most(self) -> int:
        """An upper estimate of the prompt's tokens: tokenizers make one token of 3 to 4 bytes of
        code, and add a few for each message."""
        return sum(
            len(message.content.encode(errors="replace")) // 2 + 8 for message in self.messages
        )


class ModelCall(JsonLine):
    """Line of ``calls.jsonl``: a request and its reply, or the ``error`` that it ended with.

    ``answered`` is the litellm id that answered, ``snapshot`` what the service calls that model.
    ``tokens_in``, ``tokens_out`` and ``usd`` are what it took, None where nobody said, 0 of a reply
    from the cache; ``charged_tokens`` and ``charged_usd`` what the budget was charged: more where
    requests were lost that may have been served. ``seconds`` are those of the request that was
    answered, ``retries`` say why others were not.
    """

    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    id: str
    digest: str
    role: str
    model: str
    answered: str = ""
    snapshot: str = ""
    prompt: str = ""
    messages: tuple[PromptMessage, ...]
    params: dict[str, object] = {}
    reply: str = ""
    reasoning: str = ""
    finish: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    charged_tokens: int = 0
    charged_usd: float | None = 0.0
    seconds: float = 0.0
    retries: tuple[str, ...] = ()
    error: str = ""
    final: bool = False  # see ModelError
    down: bool = False  # see ModelDown
    source: Literal["model", "cache", "replay"] = "model"

    @classmethod
    def of(cls, request: ModelRequest, **answer: Any) -> Self:
        return cls(
            id=request.id,
            digest=request.digest,
            role=request.role,
            model=request.model,
            prompt=request.prompt,
            messages=request.messages,
            params=dict(request.params),
            **answer,
        )

    @property
    def answer(self) -> Reply:
        return Reply(self.reply, self.id, self.answered, cut=self.finish == "length")

    @property
    def obstacle(self) -> Obstacle:
        """Why it holds no whole answer, where that is not the model's skill; else empty."""
        if self.error:
            return ""
        if self.finish in _OBSTACLES:
            return _OBSTACLES[self.finish]
        return "reasoning" if self.reasoning and not self.reply.strip() else ""

    def again(self, request: ModelRequest, source: Literal["cache", "replay"]) -> ModelCall:
        """This call as the answer to ``request``, which has the same digest. Only what is
        replayed has its cost."""
        free = {
            "tokens_in": 0,
            "tokens_out": 0,
            "usd": 0.0,
            "charged_tokens": 0,
            "charged_usd": 0.0,
            "seconds": 0.0,
            "retries": (),
        }
        return self.model_copy(
            update={
                "id": request.id,
                "role": request.role,
                "prompt": request.prompt,
                "source": source,
                **(free if source == "cache" else {}),
            }
        )


class Calls:
    """A run's ``calls.jsonl``, or a recording of one. In memory without a ``path``."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises RecordError when the file is not what portkern writes."""
        self._file = LineFile(path, ModelCall.from_json) if path else None
        self._lines: list[ModelCall] = self._file.read()[0] if self._file else []
        self._by_digest: dict[str, ModelCall] = {}
        self._by_id: dict[str, ModelCall] = {}
        for call in self._lines:
            self._index(call)

    @classmethod
    def recorded(cls, place: Path) -> Self:
        """``place`` is the file or its folder. Raises ConfigError where there is none, and
        RecordError."""
        path = place / FILE if place.is_dir() else place
        if not path.is_file():
            raise ConfigError(f"No recording {str(place)!r}; expected a {FILE} or its folder")
        return cls(path)

    def add(self, call: ModelCall) -> None:
        """Adds a call, which is on disk when this returns. Raises StorageError."""
        if self._file:
            self._file.append([call])
        self._lines.append(call)
        self._index(call)

    def __iter__(self) -> Iterator[ModelCall]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: str) -> bool:
        return name in self._by_id

    def __getitem__(self, name: str) -> ModelCall:
        """The last call of that id: one that failed was made again when its run was resumed."""
        return self._by_id[name]

    def of(self, request: ModelRequest) -> ModelCall | None:
        """The answer to an equal request; only where there is none, its failure."""
        return self._by_digest.get(request.digest)

    def cost(self, names: Iterable[str]) -> Cost:
        """The cost of these calls together."""
        return _cost([self._by_id[name] for name in names])

    @property
    def total(self) -> Cost:
        """The cost of all lines: a call that was made again has several."""
        return _cost(self._lines)

    def why_missing(self, request: ModelRequest) -> str:
        """Says why this recording does not hold a request, and what it holds in its place."""
        where = self._file.path if self._file else "the recording"
        text = f"call {request.id!r} is not in {where} ({len(self)} calls)"
        if request.id not in self:
            return f"{text}: the recorded run did not make it, so this one took another course"
        other = _difference(self[request.id], request)
        return f"{text}, which has one of that id with another {other}"

    def _index(self, call: ModelCall) -> None:
        self._by_id[call.id] = call
        known = self._by_digest.get(call.digest)
        if known is None or known.error or not call.error:
            self._by_digest[call.digest] = call


class CallCache:
    """Answers of all runs, one file for each. Another ``place`` (an ``api_base``) has its own: a
    server of one's own may bear any model's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, request: ModelRequest, place: str) -> ModelCall | None:
        try:
            text = foreign_text.content(self._path(request.digest, place)).decode()
            call = ModelCall.from_json(text)
        except (OSError, ValueError, RecordError):
            return None  # absent, or written by another version: ask again
        return call if call.digest == request.digest else None

    def put(self, call: ModelCall, place: str) -> None:
        """Raises StorageError."""
        atomic_write.write(self._path(call.digest, place), call.to_json())

    def _path(self, digest: str, place: str) -> Path:
        name = hashlib.sha256(f"{digest} {place}".encode()).hexdigest() if place else digest
        return self.folder / f"{name}.json"


def _cost(calls: Iterable[ModelCall]) -> Cost:
    calls = list(calls)
    return Cost(
        usd=_sum(call.usd for call in calls),
        tokens_in=_sum(call.tokens_in for call in calls),
        tokens_out=_sum(call.tokens_out for call in calls),
    )


def _sum(values: Iterable[N | None]) -> N | None:
    """The sum; None as soon as one of the values is not known."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


def _difference(recorded: ModelCall, request: ModelRequest) -> str:
    if recorded.model != request.model:
        return f"model: {recorded.model}, now {request.model}"
    names = sorted({*recorded.params, *request.params})
    for name in names:
        then, now = recorded.params.get(name), request.params.get(name)
        if then != now:
            return f"{name}: {then}, now {now}"
    if recorded.prompt != request.prompt:
        return f"prompt: {recorded.prompt}, now {request.prompt}"
    return f"text: its prompt ({request.prompt or 'unnamed'}) or what it shows has changed"
