"""The parts that all experiments have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.section import SectionAnswer


class Study(ABC):
    """``title`` says what is found out; ``arms`` are all that can be compared, ``compared`` those
    that are unless others are named, ``seeds`` likewise. ``counts`` names the option that has the
    number of attempts of each job."""

    title: ClassVar[str]
    arms: ClassVar[tuple[str, ...]]
    compared: ClassVar[tuple[str, ...]]
    seeds: ClassVar[tuple[int, ...]]
    counts: ClassVar[str]
    #: Whether a language model has to write, since the catalogue's kernels hold no errors.
    asks_model: ClassVar[bool] = True
    #: Groups that the arms differ in, which therefore cannot be chosen for all of them.
    varied: ClassVar[tuple[str, ...]] = ("strategy", "preset")
    #: Whether tasks are operators in several places: backends, each with a target.
    in_places: ClassVar[bool] = False
    #: Whether arms are models that the user names.
    of_models: ClassVar[bool] = False

    @abstractmethod
    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        """The overrides of ``portkern generate`` for each arm that is asked for."""

    @abstractmethod
    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        """The findings from the jobs that are done, of which there is at least one."""
