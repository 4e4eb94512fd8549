"""Keeps what is replaced in a model so far, and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from . import _modules
from ._call import NoTrace
from ._modules import Plan
from ._proof import differs
from ._race import ROUNDS, race_site
from ._report import Kept, Replaced, Report
from ._sites import Site, Used


@dataclass(frozen=True, eq=False)
class Change:
    module: nn.Module
    names: tuple[str, ...]
    own: type[nn.Module]
    made: Any

    @property
    def plan(self) -> Plan:
        plan: Plan = self.made.portkern_plan
        return plan


@dataclass
class Work:
    """``every``: what does not pay is replaced too, for tests of results."""

    report: Report
    called: Mapping[str, Any]
    training: bool
    every: bool
    races: dict[Any, tuple[float, float, bool]] = field(default_factory=dict)
    changed: list[Change] = field(default_factory=list)

    def take(self, one: Used) -> None:
        taken, reasons, replaced = [], [], []
        for site in one.sites:
            reason, times = self.judged(site)
            if reason:
                reasons.append(reason)
                continue
            taken.append(site)
            replaced.append(Replaced(one.names, one.kind, site.operator, one.calls, *times))
        if not taken:
            self.report.kept.append(Kept(one.names, one.kind, "; ".join(dict.fromkeys(reasons))))
            return
        names = tuple(site.operator for site in taken)
        library = self.report.library
        if one.traced is None:
            made = _modules.known_class(type(one.module), Plan(library, names), self.called)
        else:
            places = tuple(site.place for site in taken if site.place is not None)
            plan = Plan(library, names, one.call, one.traced.seen, places)
            made = _modules.traced_class(one.module, plan, self.called, one.traced)
        self.changed.append(Change(one.module, one.names, type(one.module), made))
        self.report.replaced += replaced

    def judged(self, site: Site) -> tuple[str, tuple[float, float]]:
        """Why a call stays, or '', and microseconds of both."""
        if site.operator not in self.called:
            return f"the library has no {site.operator}", (0.0, 0.0)
        called = self.called[site.operator]
        try:
            arguments = site.arguments
            if reason := differs(site, called, training=self.training):
                return reason, (0.0, 0.0)
        except (
            NoTrace,
            RuntimeError,
            ValueError,
            TypeError,
            IndexError,
            NotImplementedError,
        ) as error:
            return f"{site.operator}: {str(error).splitlines()[0][:120]}", (0.0, 0.0)
        scalars = tuple(one for one in arguments if not isinstance(one, torch.Tensor))
        key = (
            site.key,
            scalars,
            tuple((t.shape, t.stride(), t.dtype, t.device) for t in site.tensors),
        )
        if key not in self.races:
            rounds = 1 if self.every else ROUNDS
            self.races[key] = race_site(site, called, rounds, training=self.training)
        own, operator, pays = self.races[key]
        if pays or self.every:
            return "", (own, operator)
        return f"{site.operator} does not pay ({own:.1f} us, the operator {operator:.1f})", (
            own,
            operator,
        )

    def drop(self, changed: Sequence[Change], reason: str) -> None:
        """Takes replacements back, if there is a reason to."""
        if not reason:
            return
        names = {one.names for one in changed}
        self.changed = [one for one in self.changed if one.names not in names]
        mine = [one for one in self.report.replaced if one.names in names]
        self.report.replaced = [one for one in self.report.replaced if one.names not in names]
        self.report.kept += [Kept(one.names, one.kind, f"{one.operator}: {reason}") for one in mine]


@contextmanager
def in_place(changed: Sequence[Change]) -> Iterator[None]:
    """A context in which the modules have the classes that call operators."""
    for one in changed:
        one.module.__class__ = one.made
    try:
        yield
    finally:
        for one in changed:
            one.module.__class__ = one.own
