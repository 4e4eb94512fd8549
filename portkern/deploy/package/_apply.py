"""Replaces what a model's modules compute by a library's operators, where they are equal and pay.

A model is run on sample inputs. Of each call in it that is one of the operators, both ways are
held against the same in float64 and raced in turns; then the model with all that pays is held
against what it was, and raced as well. What does not pay is not kept.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from . import _modules
from ._call import Call, NoTrace
from ._modules import FUSED, KNOWN, Plan

#: What a replacement gains at least, by the medians; less is noise.
LEAST_GAIN = 1.03
_ROUNDS, _BUDGET_S = 31, 0.25
#: A round's calls: on a GPU as many as make it longer than the wait for their end.
_PART_S = {"cpu": 50e-6, "cuda": 300e-6}
_MODEL_ROUNDS, _MODEL_BUDGET_S = 15, 3.0


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


@dataclass(eq=False)
class Site:
    """One call of an operator that a module's forward has or is. ``tensors`` are those of the
    sample, ``place`` counts the calls of a traced forward, and ``check`` is what it asks first."""

    operator: str
    tensors: list[torch.Tensor]
    theirs: Callable[..., Any]
    ours: Callable[[Any], Callable[..., Any]]
    key: Any
    place: int | None = None
    check: Callable[[], object] = bool

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Raises NoTrace where the module's own forward is called all the same."""
        found: list[tuple[Any, ...]] = []

        def asked(*given: Any) -> Any:
            found.append(given)
            raise _AskedError

        with suppress(_AskedError):
            self.ours(asked)(*self.tensors)
        if not found:
            raise NoTrace("these inputs are not for the operator")
        return found[0]


class _AskedError(Exception):
    pass


@dataclass(eq=False)
class Used:
    """A module and the first call of it on the sample."""

    module: nn.Module
    names: tuple[str, ...]
    calls: int = 0
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    traced: _modules.Traced | None = None
    call: Call | None = None

    @property
    def kind(self) -> str:
        return type(self.module).__name__


# ---- What a model's forwards are


def sites(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[Used | Kept]:
    """The modules that the sample calls, with the calls of operators in its forward, or why none
    is. Modules of torch's own that are none of them are left out."""
    state = _State(model)
    used = _observed(model, given, named, state)
    for one in used:
        reason = _modules.refused(one.module)
        known = KNOWN.get(type(one.module))
        if known is None and type(one.module).__module__.startswith("torch."):
            continue
        reason = reason or ("" if one.calls else "the sample does not call it")
        if not reason:
            try:
                if known:
                    reason = known.refuse(one.module)
                    one.sites = [] if reason else [_of_known(one)]
                else:
                    _of_traced(one)
                    reason = "" if one.sites else "nothing in its forward is one of the operators"
            except NoTrace as error:
                reason = str(error)
            finally:
                state.restore()
        yield Kept(one.names, one.kind, reason) if reason else one


def _observed(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any], state: _State
) -> list[Used]:
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    used = {id(one): Used(one, tuple(names[id(one)])) for one in model.modules()}

    def seen(module: nn.Module, given: Any, named: Any) -> None:
        one = used[id(module)]
        if not one.calls:
            one.given, one.named = _copied(given), _copied(named)
        one.calls += 1

    hooks = [one.module.register_forward_pre_hook(seen, with_kwargs=True) for one in used.values()]
    try:
        _run(model, given, named, training=False)
    finally:
        for hook in hooks:
            hook.remove()
        state.restore()
    return list(used.values())


def _copied(tree: Any) -> Any:
    return pytree.tree_map(
        lambda one: one.detach().clone() if type(one) in (torch.Tensor, nn.Parameter) else one, tree
    )


def _of_known(one: Used) -> Site:
    """Raises NoTrace for a call that no forward of the operators takes."""
    own: Any = type(one.module)
    given = [*one.given, *one.named.values()]
    if not given or not all(type(tensor) is torch.Tensor for tensor in given):
        raise NoTrace("it is called with something else than tensors")
    known, bare = KNOWN[own], own.__new__(own)
    bare.__dict__.update(one.module.__dict__, _parameters=dict(one.module._parameters))
    names = [name for name, value in one.module._parameters.items() if value is not None]

    def of(forward: Any) -> Callable[..., Any]:
        def run(*tensors: Any) -> Any:
            bare._parameters.update(zip(names, tensors[len(given) :], strict=True))
            return forward(bare, *tensors[: len(given)])

        return run

    tensors = [*given, *(one.module._parameters[name] for name in names)]
    operator = known.operator_of(one.module)
    return Site(
        operator,
        [tensor.detach() for tensor in tensors if tensor is not None],
        of(own.forward),
        lambda called: of(known.make(called, own.forward)),
        (own, operator),
    )


def _of_traced(one: Used) -> None:
    call = Call.of(one.given, one.named)
    tensors = call.tensors(one.given, one.named)
    assert tensors is not None
    with torch.no_grad():
        found = _modules.trace(one.module, call, tensors)
    one.traced, one.call = found, call
    for place, match in enumerate(found.matches):
        inputs = [found.values[node].detach() for node in match.inputs]
        words = tuple(str(node.target) for node in match.nodes)
        check = partial(_modules.asks, one.module, found.guard, call, one.given, one.named)
        one.sites.append(
            Site(match.operator, inputs, match.theirs, match.ours, words, place, check)
        )


# ---- Running a model without a trace of it


class _State:
    """Keeps what a model's forward may change: buffers, and attributes beside its parameters."""

    _TABLES = ("_parameters", "_modules", "_buffers")

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.versions = {name: one._version for name, one in model.named_parameters()}
        memo: dict[int, Any] = {id(one): one for one in (*model.parameters(), *model.modules())}
        self.kept = []
        for module in model.modules():
            plain = {n: v for n, v in module.__dict__.items() if n not in self._TABLES}
            plain = {n: v for n, v in plain.items() if not n.endswith("_hooks")}
            copies = {name: _copy(value, memo) for name, value in plain.items()}
            buffers = {n: (b, None if b is None else b.clone()) for n, b in module._buffers.items()}
            self.kept.append((module, plain, copies, buffers))

    def restore(self) -> None:
        with torch.no_grad():
            for module, plain, copies, buffers in self.kept:
                for name in [*module.__dict__]:
                    new = name not in plain and name not in self._TABLES
                    if new and not name.endswith("_hooks"):
                        del module.__dict__[name]
                for name, value in plain.items():
                    _put_back(value, copies[name])
                    module.__dict__[name] = value
                for name in [*module._buffers]:
                    if name not in buffers:
                        del module._buffers[name]
                for name, (tensor, saved) in buffers.items():
                    module._buffers[name] = tensor
                    if tensor is not None and saved is not None:
                        tensor.copy_(saved)

    @property
    def changed(self) -> list[str]:
        """Parameters that were written to."""
        now = {name: one._version for name, one in self.model.named_parameters()}
        return [name for name in self.versions if now.get(name) != self.versions[name]]


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """Returns a copy, or the value where it cannot be copied."""
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - an attribute may be anything: a lock, a process group
        return value


def _put_back(value: Any, saved: Any) -> None:
    """The contents of what may have changed, in the very object."""
    if value is saved:
        return
    if isinstance(value, list | deque):
        value.clear()
        value.extend(copy.copy(saved))
    elif isinstance(value, dict | set):
        value.clear()
        value.update(saved)
    elif isinstance(value, torch.Tensor) and value.shape == saved.shape:
        value.copy_(saved)


def _run(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any], *, training: bool
) -> list[torch.Tensor]:
    """The tensors that a model gives, with ``training`` also its parameters' gradients; random
    numbers are the same each time, and the process's own go on where they were."""
    given, named = _copied(tuple(given)), _copied(dict(named))
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices), torch.set_grad_enabled(training):
        torch.manual_seed(0)
        made = pytree.tree_leaves(model(*given, **named))
        found = [one for one in made if isinstance(one, torch.Tensor)]
        if training:
            found += _gradients(found, [p for p in model.parameters() if p.requires_grad])
    return [one.detach().clone() for one in found]


def _gradients(made: Sequence[torch.Tensor], wanted: Sequence[Any]) -> list[torch.Tensor]:
    """Returns those of a sum with weights that differ, without inputs that have none."""
    total: Any = 0.0
    for one in made:
        if one.is_floating_point() and one.requires_grad:
            weights = torch.linspace(-1, 1, max(one.numel(), 1), device=one.device)
            total = total + (one.float() * weights[: one.numel()].view(one.shape)).sum()
    if not isinstance(total, torch.Tensor) or not wanted:
        return []
    found = torch.autograd.grad(total, [*wanted], allow_unused=True)
    return [one for one in found if one is not None]


# ---- Proofs


def _roundoff(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) / 2


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[float, float]] | None:
    """The largest difference and value of each pair; None where they are not of one
    form, or not numbers in the same places."""
    if len(ours) != len(theirs):
        return None
    found = []
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
            return None
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return None
            continue
        x, y = a.double(), b.double()
        finite = torch.isfinite(y)
        special = [torch.nan_to_num(torch.where(finite, 0.0, one), nan=1.0) for one in (x, y)]
        if not torch.equal(*special):
            return None
        gap = torch.where(finite, (x - y).abs(), 0.0)
        size = torch.where(finite, y.abs(), 0.0)
        found.append((float(gap.max()), float(size.max())) if a.numel() else (0.0, 0.0))
    return found


def _outcome(function: Any, tensors: Sequence[torch.Tensor], *, training: bool) -> list[Any]:
    if training:
        tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    with torch.set_grad_enabled(training):
        made = [
            one for one in pytree.tree_leaves(function(*tensors)) if isinstance(one, torch.Tensor)
        ]
        wanted = [t for t in tensors if t.requires_grad]
        gradients = _gradients(made, wanted) if training else []
    return [one.detach() for one in (*made, *gradients)]


def differs(site: Site, called: Any, *, training: bool) -> str:
    """Why a call of the operator is not what the module computes, or ''. Both are held against the
    module's own in float64: ours may err by four times as much as theirs, and a few roundoffs."""
    ours = _outcome(site.ours(called), site.tensors, training=training)
    theirs = _outcome(site.theirs, site.tensors, training=training)
    pairs = _difference(ours, theirs)
    if pairs is None:
        return "the operator gives another form or other special values"
    wide = [t.double() if t.is_floating_point() else t for t in site.tensors]
    exact = _outcome(site.theirs, wide, training=training)
    floats = [one for one in zip(ours, theirs, exact, strict=True) if one[0].is_floating_point()]
    for (a, b, e), (gap, size) in zip(floats, pairs, strict=True):
        bound = 16 * _roundoff(a.dtype) * size
        if gap <= bound:
            continue
        finite = torch.isfinite(e) & torch.isfinite(b.double())
        own, other = (
            float(torch.where(finite, (one.double() - e).abs(), 0.0).max()) for one in (a, b)
        )
        if own > 4 * other + bound:
            return f"the operator errs by {own:.2g}, the module by {other:.2g}"
    return ""


# ---- Races


def _clock(devices: set[str]) -> Callable[[], float]:
    def now() -> float:
        if "cuda" in devices:
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def race(
    ways: Sequence[Callable[[], Any]], devices: set[str], *, rounds: int, budget_s: float
) -> list[list[float]]:
    """The seconds that a call of each takes, in turns, after one that is not counted; short ones
    are called several times a round."""
    now = _clock(devices)
    for way in ways:
        way()
    start = now()
    ways[0]()
    first = max(now() - start, 1e-7)
    part = max((_PART_S.get(one, 50e-6) for one in devices), default=50e-6)
    times = max(1, min(100, int(part / first)))
    found: list[list[float]] = [[] for _ in ways]
    end = time.perf_counter() + budget_s
    for number in range(rounds):
        # Who comes first is never the same: what one leaves in a cache the other finds.
        for place in range(len(ways)):
            place = (place + number) % len(ways)
            start = now()
            for _ in range(times):
                ways[place]()
            found[place].append((now() - start) / times)
        if time.perf_counter() > end and number >= 5:
            break
    return found


def _site_race(
    site: Site, called: Any, rounds: int, *, training: bool
) -> tuple[float, float, bool]:
    """The microseconds of the module's own code and of the operator, and whether that pays."""
    tensors = site.tensors
    if training:
        tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    wanted = [t for t in tensors if t.requires_grad]

    def of(function: Any, check: Callable[[], object]) -> Callable[[], Any]:
        def run() -> None:
            check()
            made = pytree.tree_leaves(function(*tensors))[0]
            if training and made.requires_grad:
                torch.autograd.grad(made, wanted, torch.ones_like(made), allow_unused=True)

        return run

    with torch.set_grad_enabled(training):
        devices = {t.device.type for t in tensors}
        ways = [of(site.theirs, bool), of(site.ours(called), site.check)]
        theirs, ours = race(ways, devices, rounds=rounds, budget_s=_BUDGET_S)
    own, operator = statistics.median(theirs), statistics.median(ours)
    won = sum(a > b for a, b in zip(theirs, ours, strict=True)) / len(ours)
    return own * 1e6, operator * 1e6, own >= LEAST_GAIN * operator and won >= 2 / 3


# ---- Applying


@dataclass(frozen=True, eq=False)
class _Change:
    module: nn.Module
    names: tuple[str, ...]
    own: type[nn.Module]
    made: Any

    @property
    def plan(self) -> Plan:
        plan: Plan = self.made.portkern_plan
        return plan


@dataclass
class _Work:
    """``every``: what does not pay is replaced too, for tests of results."""

    report: Report
    called: Mapping[str, Any]
    training: bool
    every: bool
    races: dict[Any, tuple[float, float, bool]] = field(default_factory=dict)
    changed: list[_Change] = field(default_factory=list)

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
        self.changed.append(_Change(one.module, one.names, type(one.module), made))
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
            rounds = 1 if self.every else _ROUNDS
            self.races[key] = _site_race(site, called, rounds, training=self.training)
        own, operator, pays = self.races[key]
        if pays or self.every:
            return "", (own, operator)
        return f"{site.operator} does not pay ({own:.1f} us, the operator {operator:.1f})", (
            own,
            operator,
        )

    def drop(self, changed: Sequence[_Change], reason: str) -> None:
        """Takes replacements back, if there is a reason to."""
        if not reason:
            return
        names = {one.names for one in changed}
        self.changed = [one for one in self.changed if one.names not in names]
        mine = [one for one in self.report.replaced if one.names in names]
        self.report.replaced = [one for one in self.report.replaced if one.names not in names]
        self.report.kept += [Kept(one.names, one.kind, f"{one.operator}: {reason}") for one in mine]


def apply(
    model: nn.Module,
    inputs: Any,
    *,
    library: str,
    operators: Sequence[str],
    mode: str = "auto",
    compiled: bool = False,
    every: bool = False,
) -> Report:
    """Replaces in ``model`` what ``inputs`` (a tensor, a tuple of arguments or a dict of named
    ones) show to be equal to an operator of the library and faster by it.

    ``mode``: ``training`` counts a backward pass too; ``auto`` is what the model is in.
    ``compiled``: the model is compiled by ``torch.compile``, and replaced there too where that
    pays; otherwise a compiled model keeps its own forwards. ``every``: also what does not pay, as a
    test wants it. Raises ValueError.
    """
    training = _training(model, mode)
    given, named = arguments(inputs)
    report = Report(library, "training" if training else "inference")
    called = _modules.calls(library, operators)
    work = _Work(report, called, training, every)
    state = _State(model)
    try:
        for one in sites(model, given, named):
            if isinstance(one, Kept):
                report.kept.append(one)
            else:
                work.take(one)
        if work.changed:
            _whole(model, given, named, work, state)
        if compiled and report._classes:
            _compiled(model, given, named, work, state)
    finally:
        state.restore()
    if state.changed:
        report.undo()
        report.notes.append(
            f"its forward changes its parameters ({state.changed[0]}): nothing replaced"
        )
    return report


def _training(model: nn.Module, mode: str) -> bool:
    if mode not in ("auto", "inference", "training"):
        raise ValueError(f"got mode={mode!r}, expected 'auto', 'inference' or 'training'")
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "got a model that torch.compile made; apply the library before, and compile then"
        )
    return mode == "training" or (mode == "auto" and model.training)


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Raises ValueError."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    raise ValueError(
        f"got inputs of {type(inputs).__name__}, expected a tensor, a tuple of a call's arguments, "
        "or a dict of named ones"
    )


def _whole(model: nn.Module, given: Any, named: Any, work: _Work, state: _State) -> None:
    """Keeps what was replaced where the model gives what it gave, and is faster."""

    def run() -> list[torch.Tensor]:
        state.restore()
        return _run(model, given, named, training=work.training)

    own = run()
    moved = [_difference(run(), own)]
    for seed in range(3):
        with _perturbed(work.changed, seed):
            moved.append(_difference(run(), own))
    kinds = [one.dtype for one in own if one.is_floating_point()]

    def judged(changed: Sequence[_Change]) -> _Judged:
        with _in_place(changed):
            return _judged(_difference(run(), own), moved, kinds)

    verdict = judged(work.changed)
    if verdict.reason:
        for operators in dict.fromkeys(one.plan.operators for one in work.changed):
            alone = [one for one in work.changed if one.plan.operators == operators]
            work.drop(alone, judged(alone).reason)
        verdict = judged(work.changed)
        work.drop([*work.changed], verdict.reason)
    if not work.changed:
        return
    times = _model_race(model, given, named, work, state)
    whole = Whole(times[0] * 1e3, times[1] * 1e3, verdict.difference, verdict.tolerance)
    if whole.ratio < 1 and not work.every:
        work.drop([*work.changed], f"the model is not faster by it ({whole.ratio:.2f}x)")
        return
    work.report.model = whole
    work.report._classes = [(one.module, one.own) for one in work.changed]
    for one in work.changed:
        one.module.__class__ = one.made


@dataclass(frozen=True)
class _Judged:
    reason: str = ""
    difference: float = 0.0
    tolerance: float = 0.0


_Pairs = list[tuple[float, float]] | None


def _judged(pairs: _Pairs, moved: Sequence[_Pairs], kinds: Sequence[torch.dtype]) -> _Judged:
    """The result that is nearest to its tolerance, or beyond it."""
    moves = [one for one in moved if one is not None]
    if pairs is None or len(moves) < len(moved):
        return _Judged("the model's results have another form or other special values then")
    worst = _Judged()
    for number, ((gap, size), kind) in enumerate(zip(pairs, kinds, strict=True)):
        most = max(one[number][0] for one in moves)
        room = 4 * most + 16 * _roundoff(kind) * size
        if gap > room:
            said = f"the model's results differ by {gap:.2g} then, a roundoff by {most:.2g}"
            return _Judged(said, gap, room)
        if number == 0 or gap * worst.tolerance > worst.difference * room:
            worst = _Judged("", gap, room)
    return worst


@contextmanager
def _in_place(changed: Sequence[_Change]) -> Iterator[None]:
    """A context in which the modules have the classes that call operators."""
    for one in changed:
        one.module.__class__ = one.made
    try:
        yield
    finally:
        for one in changed:
            one.module.__class__ = one.own


@contextmanager
def _perturbed(changed: Sequence[_Change], seed: int) -> Iterator[None]:
    """Moves what the modules give by up to two roundoffs, each number by its own."""

    def moved(module: nn.Module, given: Any, made: Any) -> Any:
        del module, given
        return pytree.tree_map(lambda one: _moved(one, seed), made)

    hooks = [one.module.register_forward_hook(moved) for one in changed]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _moved(one: Any, seed: int) -> Any:
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return one
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-2, 3, one.shape, generator=generator).to(one.device)
    return one * (1 + steps * torch.finfo(one.dtype).eps).to(one.dtype)


def _devices(model: nn.Module, inputs: Any) -> set[str]:
    tensors = [one for one in pytree.tree_leaves(inputs) if isinstance(one, torch.Tensor)]
    return {one.device.type for one in (*model.parameters(), *tensors)}


def _model_race(
    model: nn.Module, given: Any, named: Any, work: _Work, state: _State
) -> tuple[float, float]:
    """Median seconds of the model as it was and with what was replaced."""
    inputs = _copied(tuple(given)), _copied(dict(named))
    wanted = [p for p in model.parameters() if p.requires_grad]

    def step() -> None:
        made = model(*inputs[0], **inputs[1])
        if work.training:
            floats = [
                t
                for t in pytree.tree_leaves(made)
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            if floats and wanted:
                torch.autograd.grad(
                    floats, wanted, [torch.ones_like(t) for t in floats], allow_unused=True
                )

    def applied() -> None:
        with _in_place(work.changed):
            step()

    devices = _devices(model, inputs)
    with torch.random.fork_rng([]), torch.set_grad_enabled(work.training):
        rounds = 1 if work.every else _MODEL_ROUNDS
        times = race([step, applied], devices, rounds=rounds, budget_s=_MODEL_BUDGET_S)
    state.restore()
    return statistics.median(times[0]), statistics.median(times[1])


def _compiled(model: nn.Module, given: Any, named: Any, work: _Work, state: _State) -> None:
    """Leaves in the compiled model what a compiler does not fuse, where it is faster by that."""
    report, inputs = work.report, (_copied(tuple(given)), _copied(dict(named)))
    pairs: list[tuple[nn.Module, tuple[Any, Any]]] = []
    for module, own in report._classes:
        kind: Any = type(module)
        plan = replace(kind.portkern_plan, compiled=True)
        if not FUSED & {*plan.operators}:
            module.__class__ = own
            _modules.again(module, plan)
            pairs.append((module, (kind, type(module))))
            module.__class__ = kind
    if not pairs:
        report.notes.append("compiled: what was replaced is left to the compiler, which fuses it")
        return
    fast: Any = torch.compile(model)

    def of(place: int) -> Callable[[], Any]:
        def run() -> None:
            for module, kinds in pairs:
                module.__class__ = kinds[place]
            fast(*inputs[0], **inputs[1])

        return run

    with torch.random.fork_rng([]), torch.set_grad_enabled(work.training):
        devices = _devices(model, inputs)
        times = race([of(0), of(1)], devices, rounds=_MODEL_ROUNDS, budget_s=_MODEL_BUDGET_S)
    own_s, applied_s = map(statistics.median, times)
    pays = own_s >= LEAST_GAIN * applied_s
    for module, kinds in pairs:
        module.__class__ = kinds[pays]
    said = f"{own_s * 1e3:.3f} ms by itself, {applied_s * 1e3:.3f} ms with operators"
    report.notes.append(f"compiled: {said}: {'replaced' if pays else 'left to the compiler'}")
    state.restore()
