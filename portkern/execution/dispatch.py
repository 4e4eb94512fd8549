"""Slices to nodes, one at a time each: lost ones are tried again, slow ones also elsewhere."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from portkern.execution.slices import Slice
from portkern.printable import printable

#: So often a slice is sent before its cells are given up.
MOST_TRIES = 3
#: A slice is slow when its cells take so many times what cells have taken so far.
SLOW = 4.0
POLL_S = 0.5
#: Seconds in which the first nodes of a cluster say what they are.
FIRST_S = 30.0
#: Characters of what another machine says of itself.
MOST_SAID = 300


def said(text: object) -> str:
    """A line of what another machine, or whoever answers for it, says."""
    return printable(" ".join(str(text)[: 4 * MOST_SAID].split()))[:MOST_SAID]


def cause(error: BaseException) -> str:
    """The cause of a loss in one line: what was raised there, or what carried it says."""
    raised = getattr(error, "cause", None) or error
    return said(f"{type(raised).__name__}: {raised}")


@dataclass(frozen=True)
class Lost:
    """A slice without an answer, by no fault of its own as far as is known: its node or worker
    ended."""

    why: str


@dataclass(frozen=True)
class ExecutionNode:
    """One that may be sent slices. ``targets`` are what it says that it is."""

    id: str
    name: str
    targets: frozenset[str]


class Fleet(Protocol):
    """Nodes that run slices; ``refused`` are those that may not, with the reason."""

    @property
    def refused(self) -> Mapping[str, str]: ...

    def nodes(self) -> Sequence[ExecutionNode]: ...

    @property
    def settled(self) -> bool:
        """Whether all nodes that are known have said what they are."""

    def submit(self, node: ExecutionNode, document: str) -> object:
        """A handle, which can be hashed."""

    def begun(self, handle: object) -> bool:
        """Whether it runs, or has; until then it is queued."""

    def wait(self, handles: Sequence[object], timeout_s: float) -> Collection[object]:
        """Waits, and returns the handles that have ended."""

    def result(self, handle: object) -> object | Lost:
        """The answer, of which nothing is known, or its loss."""

    def cancel(self, handle: object) -> None: ...


@dataclass(frozen=True)
class Sent:
    slice: Slice
    node: ExecutionNode
    since: float


@dataclass
class Dispatch:
    """``answered`` takes a slice's answer once, whatever it is, and says what is wrong with it,
    if anything; ``given_up`` a slice with the reason. ``node_wait_s``: how long a slice waits for a
    node that it may go to; ``straggler_s``: what no slice is slow before."""

    fleet: Fleet
    answered: Callable[[Slice, ExecutionNode, object], str]
    given_up: Callable[[Slice, str], None]
    note: Callable[[str], None] = lambda _: None
    node_wait_s: float = 30.0
    straggler_s: float = 300.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _waiting: list[Slice] = field(default_factory=list)
    _sent: dict[object, Sent] = field(default_factory=dict)
    _begun: dict[object, float] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)
    _failed: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _homeless: dict[int, float] = field(default_factory=dict)
    _cell_s: list[float] = field(default_factory=list)

    def first_nodes(self) -> Sequence[ExecutionNode]:
        """Once all that are there have said what they are, or :data:`FIRST_S` are over."""
        nodes, start = self.fleet.nodes(), self.clock()
        while not (nodes and self.fleet.settled) and self.clock() - start < FIRST_S:
            if self.fleet.settled and self.clock() - start >= self.node_wait_s:
                break
            self.sleep(POLL_S / 5)
            nodes = self.fleet.nodes()
        return nodes

    def run(self, slices: Sequence[Slice]) -> None:
        """Runs until each slice is answered or given up; when it is left by an error, what runs is
        ended."""
        self._waiting = list(slices)
        try:
            while self._waiting or self._sent:
                nodes = self.fleet.nodes()
                self._look_who_runs()
                self._send(nodes)
                self._give_up_homeless(nodes)
                if self._waiting or self._sent:
                    for handle in self._ended():
                        if handle in self._sent:  # not a copy of what another has just answered
                            self._take(handle)
        finally:
            for handle in self._sent:
                self.fleet.cancel(handle)

    def _ended(self) -> Collection[object]:
        if self._sent:
            return self.fleet.wait(list(self._sent), POLL_S)
        self.sleep(POLL_S)
        return ()

    def _look_who_runs(self) -> None:
        for handle in self._sent.keys() - self._begun.keys():
            if self.fleet.begun(handle):
                self._begun[handle] = self.clock()

    def _send(self, nodes: Sequence[ExecutionNode]) -> None:
        busy = {sent.node.id for sent in self._sent.values()}
        for node in nodes:
            if node.id in busy:
                continue
            chosen = next((s for s in self._waiting if self._may(s, node, nodes)), None)
            if chosen is not None:
                self._waiting.remove(chosen)
            else:
                chosen = next((s for s in self._slow() if s.fits(node.targets)), None)
                if chosen is None:
                    continue
                self.note(f"{chosen.name} takes long; it is sent to {node.name} as well")
            sent = Sent(chosen, node, self.clock())
            self._sent[self.fleet.submit(node, chosen.document)] = sent

    def _may(self, waiting: Slice, node: ExecutionNode, nodes: Sequence[ExecutionNode]) -> bool:
        """Whether ``node`` may run the slice: a node that gave no answer is not asked again
        while there are others."""
        failed = self._failed[id(waiting)]
        others = any(other.id not in failed for other in nodes if waiting.fits(other.targets))
        return waiting.fits(node.targets) and not (others and node.id in failed)

    def _slow(self) -> Iterator[Slice]:
        """The slices that run once and take much longer than others; the oldest first."""
        copies = Counter(id(sent.slice) for sent in self._sent.values())
        usual = statistics.median(self._cell_s) if self._cell_s else 0.0
        for handle, since in sorted(self._begun.items(), key=lambda item: item[1]):
            part = self._sent[handle].slice
            limit = max(self.straggler_s, SLOW * usual * len(part.cells))
            if copies[id(part)] == 1 and self.clock() - since > limit:
                yield part

    def _give_up_homeless(self, nodes: Sequence[ExecutionNode]) -> None:
        for waiting in list(self._waiting):
            if any(waiting.fits(node.targets) for node in nodes):
                self._homeless.pop(id(waiting), None)
                continue
            since = self._homeless.setdefault(id(waiting), self.clock())
            if self.clock() - since >= self.node_wait_s:
                self._waiting.remove(waiting)
                self.given_up(waiting, self._no_node(waiting, nodes))

    def _no_node(self, waiting: Slice, nodes: Sequence[ExecutionNode]) -> str:
        known = [f"{node.name} ({' '.join(sorted(node.targets))})" for node in nodes]
        known += [f"{name} is refused: {why}" for name, why in self.fleet.refused.items()]
        what = f"no node of the cluster is a {waiting.device}" if waiting.device else "no node"
        return f"{what}; nodes: {'; '.join(known) or 'none'}"

    def _take(self, handle: object) -> None:
        sent = self._sent.pop(handle)
        since = self._begun.pop(handle, sent.since)
        result = self.fleet.result(handle)
        if not isinstance(result, Lost):
            wrong = self.answered(sent.slice, sent.node, result)
            if not wrong:
                self._cell_s.append((self.clock() - since) / len(sent.slice.cells))
                self._recall(sent.slice)
                return
            result = Lost(wrong)
        self._tries[id(sent.slice)] += 1
        self._failed[id(sent.slice)].add(sent.node.id)
        self.note(f"{sent.slice.name}: {sent.node.name}: {result.why}")
        if any(other.slice is sent.slice for other in self._sent.values()):
            return
        if self._tries[id(sent.slice)] < MOST_TRIES:
            self._waiting.insert(0, sent.slice)
        else:
            tries = self._tries[id(sent.slice)]
            self.given_up(sent.slice, f"{tries} nodes gave no answer; the last: {result.why}")

    def _recall(self, answered: Slice) -> None:
        """Copies of what is answered; their answers are nobody's."""
        for handle in [h for h, sent in self._sent.items() if sent.slice is answered]:
            self.fleet.cancel(handle)
            del self._sent[handle]
            self._begun.pop(handle, None)
