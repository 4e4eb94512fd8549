"""The account of an :func:`apply`: what it did to a model, in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Replaced:
    """``gain`` is what one call of the module's own was slower by, on the sample."""

    names: tuple[str, ...]
    kind: str
    operator: str
    calls: int
    own_us: float
    operator_us: float

    @property
    def gain(self) -> float:
        return self.own_us / self.operator_us

    def __str__(self) -> str:
        times = f"{self.own_us:.1f} us, now {self.operator_us:.1f} us a call, {self.calls} calls"
        return f"{self.names[0] or 'the model'} ({self.kind}): {self.operator}, {times}"


@dataclass(frozen=True)
class Kept:
    names: tuple[str, ...]
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.names[0] or 'the model'} ({self.kind}): kept, {self.reason}"


@dataclass(frozen=True)
class Whole:
    """The model as it was, with what was replaced, and by how much their results differ.
    ``tolerance`` is four times what the model's own results move by when the outputs of the modules
    that are replaced are moved by two roundoffs at most."""

    own_ms: float
    applied_ms: float
    difference: float
    tolerance: float

    @property
    def ratio(self) -> float:
        return self.own_ms / self.applied_ms


@dataclass
class Report:
    """The account of an :func:`apply`. ``notes``: what else is to be known."""

    library: str
    mode: str
    replaced: list[Replaced] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    model: Whole | None = None
    notes: list[str] = field(default_factory=list)
    _classes: list[tuple[nn.Module, type]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Gives the modules that were replaced their own classes again."""
        for module, own in self._classes:
            module.__class__ = own
        self._classes.clear()

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        replaced = [asdict(one) | {"gain": one.gain} for one in self.replaced]
        model = asdict(self.model) | {"ratio": self.model.ratio} if self.model else None
        kept = [asdict(one) for one in self.kept]
        said = {"library": self.library, "mode": self.mode, "notes": self.notes}
        return {**said, "replaced": replaced, "kept": kept, "model": model}

    def __str__(self) -> str:
        lines = [*map(str, self.replaced), *map(str, self.kept), *self.notes]
        if self.model:
            whole = self.model
            lines.append(
                f"the model: {whole.own_ms:.3f} ms, now {whole.applied_ms:.3f} ms "
                f"({whole.ratio:.2f}x), results differ by {whole.difference:.2g} of "
                f"{whole.tolerance:.2g} that a roundoff explains"
            )
        return "\n".join(lines)
