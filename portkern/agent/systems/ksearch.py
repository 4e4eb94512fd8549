"""K-Search: a model of the world, which is a tree of what might be done, guides the search and
learns from it.

The critic keeps it: what it says of an attempt are edits of the tree, and the tree is what all
edits of the log make of it. An action stays until it no longer gains; then the tree is edited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, within
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.memory.history import Told, VisibleLog
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search, ranked, written
from portkern.errors import BudgetSpent, ModelError

KIND = "ksearch"
ROOT = 0
#: Actions up to this difficulty, of 1 to 5, are taken first.
HARD = 4
#: Open actions that there are to be, and how promising one of them.
OPEN, PROMISING = 3, 0.5
#: New actions of one answer, and how often an answer that leaves too little open is sent back.
MOST_NEW, AGAIN = 3, 2


_SCALES: Final = {"difficulty": (1, 5), "score": (0, 1), "rating": (0, 10)}
Difficulty = Annotated[float, within(*_SCALES["difficulty"])]
Score = Annotated[float, within(*_SCALES["score"])]
Rating = Annotated[float, within(*_SCALES["rating"])]
#: The scales as a model is told them.
SCALES: Final = {name: f"{least} to {most}" for name, (least, most) in _SCALES.items()}


class WorldEdit(Form):
    """``insert`` has ``under`` and a title, ``update`` and ``delete`` have a ``node``."""

    op: Literal["insert", "update", "delete"]
    node: int = ROOT
    under: int = ROOT
    title: Text = ""
    description: Text = ""
    difficulty: Difficulty | None = None
    score: Score | None = None
    rating: Rating | None = None

    @property
    def action(self) -> str:
        return ": ".join(filter(None, (self.title, self.description)))


class TreeEdits(Form):
    summary: Text = ""
    edits: tuple[dict[str, object], ...]

    @property
    def readable(self) -> list[WorldEdit]:
        """The edits that can be made out, with :data:`MOST_NEW` actions at most; one that cannot
        costs no other."""
        edits: list[WorldEdit] = []
        for given in self.edits:
            try:
                edit = WorldEdit.model_validate(given)
            except ValidationError:
                continue
            new = sum(one.op == "insert" for one in edits)
            edits += [edit] if edit.op != "insert" or new < MOST_NEW else []
        return edits


class WorldNode(BaseModel):
    """``tries`` are the attempts of the action while it is being tried, ``solved`` the fastest
    right one once it was; ``failed`` counts how often it came to none."""

    number: int
    above: int = ROOT
    action: str = ""
    difficulty: float = 3.0
    score: float = 0.0
    rating: float = 0.0
    tries: list[str] = []
    solved: str = ""
    failed: int = 0


class WorldModel:
    """The tree, as the log has it: node 0 is the task itself."""

    def __init__(self, log: Iterable[Attempt]) -> None:
        self.nodes = {ROOT: WorldNode(number=ROOT)}
        self.known: dict[str, Attempt] = {}
        self.active: int | None = None
        self.begun = False
        for attempt in log:
            self._enter(attempt)

    def _enter(self, attempt: Attempt) -> None:
        self.known[attempt.id] = attempt
        node = self.of(attempt.arm)
        if node is not None:
            self.active = node.number
            node.tries.append(attempt.id)
        elif attempt.correct and not self.nodes[ROOT].solved:
            self.nodes[ROOT].solved = attempt.id
        said = attempt.diagnosis
        if said is not None and said.critic == KIND:
            self._close()
            self.apply([WorldEdit.model_validate_json(edit) for edit in said.lessons])

    def of(self, action: str) -> WorldNode | None:
        found = [node for node in self.nodes.values() if action and node.action == action]
        return found[0] if found else None

    def _close(self) -> None:
        """The action that is being tried is over. One that came to nothing is the hardest, unless
        an edit says otherwise."""
        self.begun = True
        if self.active is None:
            return
        node = self.nodes[self.active]
        best = self.best_of(node)
        node.solved, node.tries, self.active = best.id if best else "", [], None
        if best is None:
            node.failed, node.difficulty = node.failed + 1, 5.0

    def apply(self, edits: Sequence[WorldEdit]) -> list[WorldEdit]:
        """The edits that fit, which are made: of known nodes, and new actions. Of a solved node
        nothing is changed but its rating."""
        return [edit for edit in edits if self._applied(edit)]

    def _applied(self, edit: WorldEdit) -> bool:
        node = self._inserted(edit) if edit.op == "insert" else self.nodes.get(edit.node)
        if node is None or node.number == ROOT:
            return False
        if edit.op == "delete":
            return self._deleted(node)
        told = edit.model_dump(include={"difficulty", "score", "rating"}, exclude_none=True)
        for name, value in told.items():
            if name == "rating" or not node.solved:
                setattr(node, name, value)
        return True

    def _inserted(self, edit: WorldEdit) -> WorldNode | None:
        if not edit.title or self.of(edit.action) or edit.under not in self.nodes:
            return None
        number = max(self.nodes) + 1
        self.nodes[number] = WorldNode(number=number, above=edit.under, action=edit.action)
        return self.nodes[number]

    def _deleted(self, node: WorldNode) -> bool:
        leaf = all(other.above != node.number for other in self.nodes.values())
        if node.solved or not leaf or node.number == self.active:
            return False
        del self.nodes[node.number]
        return True

    def best_of(self, node: WorldNode) -> Attempt | None:
        return next(iter(ranked(self.known[name] for name in node.tries)), None)

    def base(self, node: WorldNode) -> Attempt | None:
        """The kernel that the action is applied to; None for the task itself."""
        return self.known.get(self.nodes[node.above].solved)

    def over(self, node: WorldNode, window: int) -> bool:
        """Whether the action no longer gains: so many tries in a row were not its fastest, or its
        fastest was not faster than what it was applied to."""
        base = self.base(node)
        best, before = 0.0, base.score if base else 0.0
        still, behind = 0, 0
        for name in node.tries:
            score = self.known[name].score
            best, still = (score, 0) if score > best else (best, still + 1)
            behind = behind + 1 if best and before and best <= before else 0
        return max(still, behind) >= window

    @property
    def open(self) -> list[WorldNode]:
        """The actions that can be tried: what they are applied to is there."""
        return [
            node
            for node in self.nodes.values()
            if node.action
            and not node.solved
            and (node.above == ROOT or self.nodes[node.above].solved)
        ]

    def chosen(self) -> WorldNode | None:
        """The most promising open action, of equals the easier, then the better rated; hard ones
        wait until nothing else is left."""
        among = [node for node in self.open if node.difficulty <= HARD] or self.open
        order = sorted(among, key=lambda n: (-n.score, n.difficulty, -n.rating, n.number))
        return order[0] if order else None

    @property
    def lacks(self) -> list[str]:
        """Returns what the tree lacks for the search to go on well, a line each."""
        solved = [node for node in self.nodes.values() if node.solved]
        best = max(solved, key=lambda node: self.known[node.solved].score, default=None)
        lacks = []
        if len(self.open) < OPEN:
            lacks.append(f"{len(self.open)} actions can be tried, there are to be {OPEN}")
        if not any(node.score > PROMISING for node in self.open):
            lacks.append(f"no action that can be tried scores more than {PROMISING}")
        if best and not any(node.above == best.number for node in self.open):
            lacks.append(f"node {best.number}, the fastest, has no action below it")
        return lacks

    def __str__(self) -> str:
        return "\n".join(self._lines(ROOT, 0))

    def _lines(self, number: int, depth: int) -> list[str]:
        node = self.nodes[number]
        below = [n for n in self.nodes.values() if n.number != ROOT and n.above == number]
        line = f"{'  ' * depth}- {number}: {node.action or 'the task'} ({self._state(node)})"
        return [line, *(more for one in below for more in self._lines(one.number, depth + 1))]

    def _state(self, node: WorldNode) -> str:
        if node.solved:
            return f"done, {self.known[node.solved].score:.2f} times as fast as the baseline"
        if node.number == ROOT:
            return "no right kernel yet"
        told = f"score {node.score:g}, difficulty {node.difficulty:g}, rating {node.rating:g}"
        times = "once" if node.failed == 1 else f"{node.failed} times"
        return f"{told}, came to nothing {times}" if node.failed else told


class WorldSearch(Search):
    """One action after the other, as the world has them: its first kernel is made of the one above,
    the next ones of the one before, until the world says that it is over."""

    class Options(Search.Options):
        trials: Count | None = 20

    options: Options

    def next(self, known: Log) -> Slot | None:
        if self.state.out or self.asked_of_authors == self.options.trials:
            return None
        world, latest = WorldModel(known), written(known)[-1:]
        if not world.begun:
            return Slot(parents=tuple(one.id for one in latest))
        node = world.chosen() if world.active is None else world.nodes[world.active]
        if node is None:  # nothing is left to be tried: the next kernel asks for a new plan
            right = [one for one in written(known) if one.correct]
            near = [max(right, key=lambda one: one.score)] if right else latest
            return Slot(parents=tuple(one.id for one in near))
        base, best = world.base(node), world.best_of(node)
        tries = written(known.some(node.tries))[-1:]
        parents = tries or ([base] if base else [])
        reference = max(filter(None, (base, best)), key=lambda one: one.score, default=None)
        beside = [reference.id] if reference and reference not in parents else []
        return Slot(parents=tuple(one.id for one in parents), arm=node.action, shown=tuple(beside))


class KeeperOptions(AskingCriticOptions):
    """An action is over after ``window`` kernels without a gain."""

    kind: str = KIND
    window: int = Field(7, ge=1)


class Keeper(Silent):
    """Edits the tree when it is begun, and whenever an action is over."""

    options_type: ClassVar[type[KeeperOptions]] = KeeperOptions

    def __init__(self, options: KeeperOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        world = WorldModel([*context.log, seen])
        node = None if world.active is None else world.nodes[world.active]
        ended = world.over(node, self.options.window) if node else not world.open
        if world.begun and not ended:
            return None
        best = world.best_of(node) if node else seen
        # The tree after the action, which is what is edited.
        closed = seen.model_copy(update={"diagnosis": Diagnosis(critic=KIND, problem="")})
        world = WorldModel([*context.log, closed])
        stage = "begin" if node is None else "refine" if best else "too hard"
        edits: list[WorldEdit] = []
        summary, wants = "", [] if node else world.lacks
        for _ in range(1 + AGAIN):
            try:
                answer = await reading.ask(
                    context.llm,
                    self.options.role,
                    "critic_world",
                    TreeEdits,
                    **shown.facts(best or seen, context),
                    record=str(world),
                    stage=stage,
                    action=node.action if node else "",
                    wanted=MOST_NEW,
                    lacks=wants,
                    scales=SCALES,
                )
            except (ModelError, BudgetSpent):
                if not edits:
                    raise
                break  # what was edited before stays
            edits += world.apply(answer.readable)
            summary, wants = summary or answer.summary, world.lacks
            if not wants:
                break
        return Diagnosis(
            critic=KIND,
            problem=summary or "The plan was looked at.",
            lessons=tuple(edit.model_dump_json(exclude_defaults=True) for edit in edits),
        )


def world(past: VisibleLog) -> Told:
    """The history of a run as its tree."""
    made = WorldModel(past.log)
    if made.begun:
        yield PromptBlock(kind=KIND, title="What was done, and what might be", text=str(made))
