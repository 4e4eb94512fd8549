"""ReGraphT's reasoning graph: methods of optimisation, and how kernels went from one to the next.

A step has examples: a correct kernel before and after, and what that gained. The start is ``""``,
the op's reference. Graphs merge like sets: twice the same walk is one, in whichever order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.log import Log
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.skills import gain
from portkern.agent.memory.text import Passage, action, code, named
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.errors import ConfigError, StorageError
from portkern.records import atomic_write
from portkern.spec.foreign_text import Malformed, json_value, place_of, read_text, yaml_value
from portkern.toolchain.run_tool import cache_root

START = ""
FILE = "graph.json"
#: As many of a step are kept for other runs.
MOST_KEPT = 16


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Method(_Part):
    """A method to speed up a kernel, which a strategy may use as an arm (see Slot)."""

    name: str
    text: str = ""
    resource: str = ""


class MethodExample(_Part):
    """An attempt; ``gain`` over its parent is None where that was not measured."""

    run: str
    attempt: str
    digest: str
    island: int = 0
    op: str
    target: str
    backend: str
    language: str
    before: str
    after: str
    gain: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run, self.attempt, self.digest


class MethodStep(_Part):
    """A step from one method to the next. The examples are sorted, the best first."""

    source: str
    to: str
    examples: tuple[MethodExample, ...] = ()

    @field_validator("examples")
    @classmethod
    def _each_once(cls, given: tuple[MethodExample, ...]) -> tuple[MethodExample, ...]:
        once = {
            example.key: example for example in sorted(given, key=MethodExample.model_dump_json)
        }
        return tuple(
            sorted(once.values(), key=lambda example: (-(example.gain or 0.0), example.key))
        )


class MethodGraph(_Part):
    """Sorted by names, so that equal graphs are equal texts."""

    nodes: tuple[Method, ...] = ()
    steps: tuple[MethodStep, ...] = ()

    @field_validator("nodes")
    @classmethod
    def _named_once(cls, given: tuple[Method, ...]) -> tuple[Method, ...]:
        """Keeps one description of each method, the longest."""
        by_length = sorted(given, key=lambda method: (len(method.text), method.model_dump_json()))
        once = {method.name: method for method in by_length}
        return tuple(once[name] for name in sorted(once))

    @field_validator("steps")
    @classmethod
    def _gathered(cls, given: tuple[MethodStep, ...]) -> tuple[MethodStep, ...]:
        once: dict[tuple[str, str], MethodStep] = {}
        for step in given:
            place = step.source, step.to
            if place in once:
                examples = (*once[place].examples, *step.examples)
                step = MethodStep(source=step.source, to=step.to, examples=examples)
            once[place] = step
        return tuple(once[place] for place in sorted(once))

    @model_validator(mode="after")
    def _connected(self) -> MethodGraph:
        known = {START, *(method.name for method in self.nodes)}
        for step in self.steps:
            if not step.to or not {step.source, step.to} <= known:
                raise ValueError(f"step {step.source!r} to {step.to!r} is not between two methods")
        return self

    def methods(self) -> list[Arm]:
        """The methods as a strategy over graphs takes them."""
        return [Arm(node.name, node.text, node.resource) for node in self.nodes]

    def edges(self) -> dict[str, list[str]]:
        """``{method: [methods]}``, with those that may come first under ``""``."""
        edges: dict[str, list[str]] = {}
        for step in self.steps:
            edges.setdefault(step.source, []).append(step.to)
        return edges

    def examples(self, source: str, to: str) -> tuple[MethodExample, ...]:
        return next((s.examples for s in self.steps if (s.source, s.to) == (source, to)), ())

    def merged(self, other: MethodGraph) -> MethodGraph:
        """Everything of both."""
        return MethodGraph(nodes=self.nodes + other.nodes, steps=self.steps + other.steps)

    @property
    def trimmed(self) -> MethodGraph:
        """The graph with the best examples only."""
        steps = [
            step.model_copy(update={"examples": step.examples[:MOST_KEPT]}) for step in self.steps
        ]
        return self.model_copy(update={"steps": tuple(steps)})

    @classmethod
    def read(cls, path: Path) -> MethodGraph:
        """Reads a graph that :meth:`write` wrote, or one in YAML. Raises ConfigError."""
        try:
            text = read_text(path)
            data = yaml_value(text) if path.suffix == ".yaml" else json_value(text)
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = place_of(first["loc"]) or "graph"
            raise ConfigError(f"{path}: {field}: {first['msg']}") from error
        except Malformed as error:
            raise ConfigError(f"Cannot read {path}: {error}") from error

    def write(self, path: Path) -> None:
        """Raises StorageError."""
        atomic_write.write(path, self.model_dump_json(indent=1))


@cache
def shipped() -> MethodGraph:
    """Methods and their usual order, by hand: nothing of it was measured."""
    return MethodGraph.read(Path(str(files(__package__) / "start.yaml")))


def begun(options: MemoryOptions, folder: Path) -> MethodGraph:
    """The graph that a run starts from: the shipped one, an empty one (``none``) or a file's,
    with what other runs kept. It is put into the run's folder: a run that is resumed, and the
    strategy that walks it, go on from the same. Raises ConfigError and StorageError."""
    beside, kept = folder / FILE, cache_root() / FILE
    if beside.is_file():
        return MethodGraph.read(beside)
    if options.graph == "none":
        graph = MethodGraph()
    else:
        graph = MethodGraph.read(Path(options.graph)) if options.graph else shipped()
    if options.keep and kept.is_file():
        graph = graph.merged(MethodGraph.read(kept))
    graph.write(beside)
    return graph


class Reasoning:
    """The graph of a run: where it began, and what its attempts added."""

    def __init__(self, options: MemoryOptions, task: Task, folder: Path) -> None:
        """Raises ConfigError and StorageError."""
        self.options, self.task, self.run = options, task, folder.name
        self.graph = begun(options, folder)
        self._begun = self.graph.edges()
        self._kept = {example.key for step in self.graph.steps for example in step.examples}
        self._learned: dict[str, Attempt] = {}

    def learn(self, attempt: Attempt) -> None:
        """Adds the step to a correct kernel from a correct one, or from nothing. Raises
        StorageError when the step is to be kept and cannot be."""
        self._learned[attempt.id] = attempt
        walked = self._walked(attempt)
        if walked is None:
            return
        self.graph = self.graph.merged(walked)
        if self.options.keep and walked.steps[0].examples[0].key not in self._kept:
            _keep(walked)

    def _walked(self, attempt: Attempt) -> MethodGraph | None:
        method = action(attempt)
        if not (method and attempt.correct and attempt.source):
            return None
        source, before = START, self.task.op.reference_source
        if attempt.parents:
            parent = self._learned.get(attempt.parents[0])
            if parent is None or not parent.correct:
                return None
            source, before = action(parent), parent.source
        example = MethodExample(
            run=self.run,
            attempt=attempt.id,
            digest=attempt.digest,
            island=attempt.island,
            op=attempt.op,
            target=attempt.target,
            backend=attempt.backend,
            language=attempt.language,
            before=before,
            after=attempt.source,
            gain=gain(attempt, self._learned),
        )
        names = {source, method} - {START}
        return MethodGraph(
            nodes=tuple(Method(name=name) for name in sorted(names)),
            steps=(MethodStep(source=source, to=method, examples=(example,)),),
        )

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        """How the slot's arm was applied after the parent's method; without an arm, what may
        follow that method."""
        parents = log.some(slot.parents[:1])
        source = action(parents[0]) if parents else START
        if not slot.arm:
            return list(self._next(source, slot, log))
        shown = self._seen(source, named(slot.arm), slot, log)[: self.options.examples]
        return [Passage(_told(named(slot.arm), example)) for example in shown]

    def _seen(self, source: str, to: str, slot: Slot, log: Log) -> list[MethodExample]:
        """The examples of a step in this backend that the slot may know of."""
        return [
            example
            for example in self.graph.examples(source, to)
            if example.backend == self.task.backend.name
            and (
                self._is_open(example, slot, log)
                if example.run == self.run
                else self._may_be_shown(example)
            )
        ]

    @staticmethod
    def _is_open(example: MethodExample, slot: Slot, log: Log) -> bool:
        """Whether the slot may see an example. The slot's log decides: what was committed since
        does not show. An example shows the parent's code as well, which may be of another
        island."""
        if example.attempt not in log:
            return False
        shown = [log[example.attempt], *log.some(log[example.attempt].parents[:1])]
        known = (*slot.parents, *slot.shown)
        return all(each.island == slot.island or each.id in known for each in shown)

    def _may_be_shown(self, example: MethodExample) -> bool:
        """Whether an example gives no answer away, as another run's kernel of this op would."""
        return self.options.own or example.op != self.task.op.name

    def _next(self, source: str, slot: Slot, log: Log) -> Iterator[Passage]:
        """The methods that may follow ``source``: those that the run began with, and those tried
        since that the slot may know of."""
        texts = {method.name: method.text for method in self.graph.nodes}
        lines = []
        for name in self.graph.edges().get(source, []):
            seen = self._seen(source, name, slot, log)
            if seen or name in self._begun.get(source, []):
                gains = [example.gain for example in seen if example.gain]
                known = f"gained up to {max(gains):.2f}" if gains else "not measured"
                lines.append(f"- {name} ({known}): {texts[name]}".rstrip(": "))
        if lines:
            title = f"What may follow {source}" if source else "What may come first"
            yield Passage(PromptBlock(kind="graph", title=title, text="\n".join(lines)))


def _told(method: str, example: MethodExample) -> PromptBlock:
    gained = (
        f"{example.gain:.2f} times as fast"
        if example.gain
        else "not timed against what it came from"
    )
    text = (
        f"{example.op} on {example.target}: {gained}.\n\n"
        f"Before:\n{code(example.before, example.language)}\n\n"
        f"After:\n{code(example.after, example.language)}"
    )
    return PromptBlock(kind="graph", title=f"An example of {method}", text=text)


def _keep(graph: MethodGraph) -> None:
    from filelock import FileLock

    path = cache_root() / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            known = MethodGraph.read(path) if path.is_file() else MethodGraph()
            known.merged(graph).trimmed.write(path)
    except OSError as error:
        raise StorageError.of(error, path) from error
