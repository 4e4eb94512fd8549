"""One call, one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from portkern.agent.attempt import Attempt
from portkern.agent.axes import AgentContext, KernelDraft
from portkern.agent.proposer import donor, menu
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.slot import Arm
from portkern.agent.task import Task
from portkern.spec.candidate import Candidate


class Direct(Modelled):
    """The model sees what the memory shows and writes the whole file."""

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        return replace(await writer.write("direct"), idea=writer.slot.arm)


class Universal(Modelled):
    """KernelEvolve's one operator: whether it drafts, mends or optimises follows from what it
    is shown."""

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        draft = await writer.write("universal", shown=writer.parents[:1])
        return replace(draft, idea=writer.slot.arm)


class TranslateOptions(WriterOptions):
    """``donor``: ``catalogue``, a backend's name whose catalogue kernel is the donor, or the folder
    of a run whose best kernel is; ``shots``: how many donors are shown."""

    donor: str = "catalogue"
    shots: int = Field(default=1, ge=1)


class Translate(Modelled):
    """The best verified kernels of the op on other backends are shown, or the best one of another
    run; what the two platforms call alike is data."""

    options_type = TranslateOptions
    options: TranslateOptions

    def __init__(self, options: TranslateOptions) -> None:
        super().__init__(options)
        self._of_run: Candidate | None = None

    @property
    def decisive(self) -> Mapping[str, object]:
        """The facts on which this run depends: another run may go on, so that its best kernel
        becomes another one."""
        return {"donor": self._of_run.digest} if self._of_run else {}

    def arms(self, task: Task) -> Sequence[Arm]:
        """Raises ConfigError, also when there is nothing to translate from: a run asks this before
        it begins."""
        self.donors(task)
        return super().arms(task)

    def donors(self, task: Task) -> list[Candidate]:
        """The donors for a task; another run is looked at only once, as it may be at work too."""
        if not donor.is_run(self.options.donor):
            return menu.donors(task, self.options.donor)[: self.options.shots]
        self._of_run = self._of_run or donor.of_run(self.options.donor, task)
        return [self._of_run]

    def shown(self, task: Task) -> list[Candidate]:
        """The donors as one reads them who may not take portkern's headers: with their text."""
        donors = self.donors(task)
        return donors if task.library == "allow" else [donor.whole(one) for one in donors]

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        task = writer.context.task
        donors = self.shown(task)
        mapping = menu.mapping([donor.backend for donor in donors], task.backend.name)
        draft = await writer.write("translate", donors=donors, mapping=mapping)
        return replace(draft, idea=writer.slot.arm, donor=" ".join(map(_named, donors)))


def _named(kernel: Candidate) -> str:
    of = "" if kernel.author == "catalogue" else f" of {kernel.author}"
    return f"{kernel.backend}/{kernel.language}{of}"


class ContrastiveOptions(WriterOptions):
    """``exemplars`` scored kernels are shown, from as many buckets of speed as there are."""

    exemplars: int = Field(default=2, ge=2)  # contrast takes two
    buckets: int = Field(default=4, ge=2)


class Contrastive(Modelled):
    """CUDA-L1's prompt without its training: why is one kernel faster than the other?"""

    options_type = ContrastiveOptions
    options: ContrastiveOptions

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        exemplars = self.exemplars(writer.context)
        draft = await writer.write("contrastive", shown=exemplars, exemplars=exemplars)
        note = f"exemplars: {' '.join(exemplar.id for exemplar in exemplars) or 'none'}"
        return replace(draft, idea=writer.slot.arm, notes=(note,))

    def exemplars(self, context: AgentContext) -> list[Attempt]:
        """Kernels of distinct buckets, drawn with weights that grow with speed, the slowest
        first; where there are too few, one is shown again, as the authors do."""
        scored = sorted(context.log.correct, key=lambda attempt: attempt.score)
        if not scored:
            return []
        buckets = _bucketed(scored, self.options.buckets)
        drawn: list[Attempt] = []
        while buckets and len(drawn) < self.options.exemplars:
            names = list(buckets)
            bucket = context.random.choices(names, [name + 1.0 for name in names])[0]
            drawn.append(context.random.choice(buckets.pop(bucket)))
        drawn += [drawn[-1]] * (self.options.exemplars - len(drawn))
        return sorted(drawn, key=lambda attempt: attempt.score)


def _bucketed(scored: Sequence[Attempt], count: int) -> dict[int, list[Attempt]]:
    """Equal steps between the slowest and the fastest; those that are empty are left out."""
    low, high = scored[0].score, scored[-1].score
    width = (high - low) / count or 1.0
    bins: dict[int, list[Attempt]] = {}
    for attempt in scored:
        bins.setdefault(min(int((attempt.score - low) / width), count - 1), []).append(attempt)
    return bins
