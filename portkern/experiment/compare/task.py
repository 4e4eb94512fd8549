"""The tasks of a sweep: each is put to several models, several times."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from portkern.agent.run import RunPlan
from portkern.experiment.compare.sample import Sample

#: What a model brings to a plan: ``models`` are the roles that it plays.
_OF_MODELS = ("models", "axes", "seed")


@dataclass(frozen=True)
class ComparedModel:
    """``roles`` and ``axes`` are its own part of every plan; ``concurrency``: so many of its
    samples are written at a time."""

    name: str
    roles: Mapping[str, Any]
    axes: Mapping[str, Mapping[str, object]]
    concurrency: int = 4

    @property
    def folder(self) -> str:
        return folder_name(self.name)


@dataclass(frozen=True)
class CompareTask:
    """``op`` is its name in rows, which may be shared by no other. ``plan`` is that of a sample
    but for the model. ``donor`` is the backend whose kernel is shown."""

    op: str
    plan: RunPlan
    suite: str = ""
    donor: str = ""

    @cached_property
    def folder(self) -> str:
        task = self.plan.task
        parts = (self.op, task.dtype, task.language, task.target.name)
        return folder_name("-".join(part.replace("+", "p") for part in parts))

    @property
    def place(self) -> str:
        return f"{self.plan.task.backend.name} on {self.plan.task.target.name}"

    @property
    def decided(self) -> str:
        """A digest of what its samples depend on, besides the model."""
        plan = self.plan
        decisive = {k: v for k, v in plan.decisive.items() if k not in _OF_MODELS}
        return _digest([decisive, list(plan.final), plan.budget.attempts, self.donor])


@dataclass(frozen=True)
class AskedSample:
    """``index`` counts the model's samples of the task, and is the seed of its request."""

    model: ComparedModel
    task: CompareTask
    index: int

    @property
    def key(self) -> tuple[object, ...]:
        task = self.task.plan.task
        place = (task.backend.name, task.language, task.target.name)
        return self.model.name, self.task.op, task.dtype, *place, self.index

    @property
    def path(self) -> str:
        """The sample's path within the sweep's folder."""
        return f"samples/{self.model.folder}/{self.task.folder}/{self.index}"

    @property
    def plan(self) -> RunPlan:
        return replace(
            self.task.plan, models=self.model.roles, axes=self.model.axes, seed=self.index
        )

    def row(self, **found: Any) -> Sample:
        """``found`` is what became of it."""
        task = self.task.plan.task
        return Sample(
            model=self.model.name,
            op=self.task.op,
            suite=self.task.suite,
            backend=task.backend.name,
            target=task.target.name,
            language=task.language,
            dtype=task.dtype,
            index=self.index,
            seed=self.index,
            donor=self.task.donor,
            path=self.path,
            **found,
        )


def key_of(sample: Sample) -> tuple[object, ...]:
    """The key of the request that a row answers."""
    place = (sample.backend, sample.language, sample.target)
    return sample.model, sample.op, sample.dtype, *place, sample.index


def decided_by(model: ComparedModel, task: CompareTask) -> str:
    """A digest of what the model's part of any task's plan is."""
    decisive = replace(task.plan, models=model.roles, axes=model.axes).decisive
    return _digest({name: decisive[name] for name in ("models", "axes")})


def folder_name(name: str) -> str:
    """The name of a folder for ``name``; different names never share one."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:150]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _digest(plain: object) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
