"""One reply of one model to one task, and how it ended: what all metrics are computed from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import ClassVar, Final, Literal

from portkern.agent.attempt import Status
from portkern.agent.llm.calls import Obstacle
from portkern.experiment.ending import BUILT
from portkern.records.jsonl import JsonLine
from portkern.records.record import Text

SCHEMA: Final = 1
#: The samples' file in a sweep's folder, which public result sets are read into as well.
FILE: Final = "samples.jsonl"


class Sample(JsonLine):
    """Line of ``samples.jsonl``: one request, whatever came back.

    A *task* is an ``op`` in a ``dtype`` for a ``backend`` and a ``target``; ``index`` counts a
    model's samples of it. A backend's languages are tasks of their own, see :func:`by_language`.
    ``suite`` groups ops in tables, such as ``kernelbench/level1``.
    ``status`` is None where nobody evaluated the reply (the model was down, there was nothing to
    run it on): such a sample is none. ``evidence`` says how a correct one is known to be correct;
    numbers of ``emulated`` and of ``measured`` samples are never mixed.

    ``speedup`` is over ``baseline``, the geometric mean over the workloads that were timed;
    ``efficiency`` the share of the roofline that is reached, in the same mean; ``us`` the mean of
    the medians. All three are None where nothing was timed, which is neither 0 nor slow.
    ``heldout`` is whether it passed the sets that its author had not seen, None where none was
    asked for. ``cheat`` is a reply that was refused or suspected as one, in the evaluator's words,
    which nobody looked for without ``cheats_sought``.
    ``obstacle`` is what kept the model from answering, where it is not correct: see ModelCall.
    ``headers`` are the headers and modules of portkern that its kernel takes, which only
    library=allow accepts. ``usd`` is None where the price is unknown. ``path`` leads to the
    prompt, the reply and the records, from the sweep's folder.
    """

    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    model: str
    op: str
    suite: str = ""
    backend: str
    target: str
    language: str = ""
    dtype: str = "float32"
    index: int
    seed: int = 0
    status: Status | None
    evidence: Literal["", "built", "emulated", "measured"] = ""
    device: str = ""
    baseline: str = ""
    speedup: float | None = None
    efficiency: float | None = None
    us: float | None = None
    heldout: bool | None = None
    cheat: str = ""
    cheats_sought: bool = True
    obstacle: Obstacle = ""
    donor: str = ""
    headers: tuple[str, ...] = ()
    digest: str = ""
    detail: Text = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    seconds: float | None = None
    path: str = ""

    @property
    def task(self) -> tuple[str, str, str, str]:
        return self.op, self.dtype, self.backend, self.target

    @property
    def evaluated(self) -> bool:
        return self.status is not None

    @property
    def built(self) -> bool:
        return self.status in BUILT

    @property
    def correct(self) -> bool:
        return self.status is Status.PASSED


def by_language(samples: Iterable[Sample]) -> list[Sample]:
    """The samples with the language in a backend's name where several were written, such as
    ``cpu/numba``, so that they are places of their own for whatever is computed from them."""
    samples = list(samples)
    languages: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        languages[sample.backend].add(sample.language)
    several = {backend for backend, found in languages.items() if len(found - {""}) > 1}
    return [
        sample.model_copy(update={"backend": f"{sample.backend}/{sample.language}"})
        if sample.backend in several and sample.language
        else sample
        for sample in samples
    ]
