"""Whether each operator of an installed library gives what PyTorch gives, whatever it gets and
wherever: hostile tensors, streams, captured graphs, gradients, transforms, compiled graphs.

    python -m benchmarks.library_checks library=NAME [device=cuda] [workers=4] [seconds=600]

Each worker is a process of its own: one that a kernel ends is said, and the next goes on behind it.
What the seconds did not suffice for is said as well. Writes results/library-checks-DEVICE.json.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks import _script
from portkern import ops
from portkern.evaluator.inputs import DRAWS
from portkern.ops.formulas import FORMULAS
from portkern.spec.op import Op, Workload

#: What a formula may refuse, and its operator has to refuse then.
_REFUSED = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


# ---- Inputs and answers


def drawn(
    op: Op, workload: Workload, device: str, dtype: str = "float32", seed: int = 1
) -> tuple[list[torch.Tensor], list[Any]]:
    """Inputs and scalars of a workload."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors = []
    for spec in op.signature.inputs:
        sizes, kind = spec.sizes(workload.dims), getattr(torch, spec.resolve(dtype))
        if kind.is_floating_point:
            made = torch.randn(sizes, generator=generator, device=device).to(kind)
        else:
            low, high = spec.bounds(workload.dims)
            made = torch.randint(low, max(high, 1), sizes, generator=generator, device=device)
            own = DRAWS.get(op.draws.get(spec.name, ""))
            made = own(made) if own else made
        tensors.append(made.to(kind))
    scalars = op.signature.scalar_values(workload.scalars)
    return tensors, [scalars[one.name] for one in op.signature.scalars]


def compare(got: Any, expected: Any) -> None:
    """Raises AssertionError where they differ by more than their dtype's roundoff explains, or that
    of sums whose terms are as large as a tenth of the largest result."""
    several = isinstance(expected, tuple | list)
    pairs = zip(got, expected, strict=True) if several else [(got, expected)]
    for one, other in pairs:
        if other is None:  # an attention without rows, on a GPU
            assert one is None, "something, expected nothing"
            continue
        assert one.dtype == other.dtype and one.shape == other.shape, "another dtype or shape"
        loose = {torch.float16: 2e-2, torch.bfloat16: 6e-2}.get(one.dtype, 2e-4)
        plain = other[torch.isfinite(other)].abs() if other.is_floating_point() else torch.zeros(0)
        least = loose * max(1.0, float(plain.max()) / 10 if plain.numel() else 0.0)
        torch.testing.assert_close(one, other, rtol=loose, atol=least, equal_nan=True)


def as_near(got: Any, expected: Any, exact: Any) -> bool:
    """Whether it errs by no more than four times what the formula does, and a few roundoffs."""
    if not isinstance(exact, tuple):
        got, expected, exact = (got,), (expected,), (exact,)
    for one, other, true in zip(got, expected, exact, strict=True):
        if not other.is_floating_point():
            if not torch.equal(one, other):
                return False
            continue
        ours, theirs = ((x.double() - true).abs().max() for x in (one, other))
        room = 4 * theirs + 16 * torch.finfo(one.dtype).eps * true.abs().max()
        if not bool(ours <= room):
            return False
    return True


class Case:
    """An operator of a library, and what it is held against."""

    def __init__(self, lib: Any, name: str, device: str, dtype: str = "float32") -> None:
        self.lib, self.op, self.device, self.dtype = lib, ops.load(name), device, dtype
        #: Parts of a check that end the process where PyTorch is alone, and the last one of those
        #: that it is asked alone.
        self.fatal: Sequence[str] = ()
        self.alone = ""
        self.begins: Callable[[str], None] = lambda part: None
        self.call = getattr(getattr(torch.ops, lib.NAME), name).default

    def draw(self, workload: Workload, seed: int = 1) -> tuple[list[torch.Tensor], list[Any]]:
        return drawn(self.op, workload, self.device, self.dtype, seed)

    def ours(self, *tensors: Any, scalars: Sequence[Any]) -> Any:
        return self.call(*tensors, *scalars)

    def theirs(self, *tensors: Any, scalars: Sequence[Any]) -> Any:
        named = (one.name for one in self.op.signature.scalars)
        return self.op.reference(*tensors, **dict(zip(named, scalars, strict=True)))

    @property
    def small(self) -> Workload:
        return self.op.workloads["ci"][0]

    @property
    def large(self) -> Workload:
        return (*self.op.workloads.get("typical", ()), self.small)[0]

    def compare(self, tensors: Sequence[Any], scalars: Sequence[Any], got: Any) -> None:
        """Expects the formula's answer, or one about as near to what the formula is in double."""
        expected = self.theirs(*tensors, scalars=scalars)
        try:
            compare(got, expected)
        except AssertionError:
            double = [t.double() if t.is_floating_point() else t for t in tensors]
            if not as_near(got, expected, self.theirs(*double, scalars=scalars)):
                raise


# ---- Hostile tensors


def _strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0]


def _offset(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    plain = x.numel() and x.is_floating_point()
    return x.flatten()[:1].expand(x.numel()).view(x.shape) if plain else x


ODD = "no element at a multiple of 16 bytes"
HOSTILE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda x: x,
    "strided": _strided,
    ODD: _offset,
    "a view that negates": lambda x: torch._neg_view(x) if x.is_floating_point() else x,
    "one element for all": _expanded,
    "double": lambda x: x.double() if x.is_floating_point() else x,
    "half": lambda x: x.half() if x.is_floating_point() else x,
    "first dimension doubled": lambda x: torch.cat([x, x]) if x.dim() else x,
    "a dimension more": lambda x: x[None],
    "a dimension less": lambda x: x[0] if x.dim() and len(x) else x,
    "empty": lambda x: x[:0] if x.dim() else x,
    "last element less": lambda x: x[..., :-1] if x.dim() else x,
    "on a CPU": lambda x: x.cpu(),
}


_FEWER = ("empty", "a dimension less", "last element less")


def _indexed(op: Op) -> bool:
    return any(one.within for one in op.signature.inputs)


def hostile(case: Case) -> None:
    """All inputs, and each alone, are made hostile; where the formula refuses, so does it."""
    for workload in (case.small, case.op.workloads["edge"][2]):
        tensors, scalars = case.draw(workload)
        for name, change in HOSTILE.items():
            for which in ({*range(len(tensors))}, *({n} for n in range(len(tensors)))):
                if name in _FEWER and case.device == "cuda" and _indexed(case.op):
                    continue  # the framework's own assertion on the device would end the process
                given = [change(t) if n in which else t for n, t in enumerate(tensors)]
                # Torch's own attention ends the process of a GPU where an address is odd.
                plain = [t.clone() if name == ODD else t for t in given]
                part = f"{workload.name}, {name}, inputs {sorted(which)}"
                if part in case.fatal:
                    continue
                case.begins(part)
                if case.alone:  # twice, as where the library's operator has it as its formula
                    for _ in range(2):
                        with contextlib.suppress(*_REFUSED):
                            case.theirs(*given, scalars=scalars)
                    if part == case.alone:
                        return
                    continue
                try:
                    case.theirs(*plain, scalars=scalars)
                except _REFUSED:
                    _refuses(case, given, scalars, name)
                    continue
                try:
                    case.compare(plain, scalars, case.ours(*given, scalars=scalars))
                except Exception as error:
                    raise AssertionError(f"{name}, inputs {sorted(which)}: {error}") from error


def _refuses(case: Case, given: Sequence[Any], scalars: Sequence[Any], name: str) -> None:
    try:
        case.ours(*given, scalars=scalars)
    except _REFUSED:
        return
    raise AssertionError(f"{name}: the formula refuses it, the operator does not")


def sizes(case: Case) -> None:
    """Every workload of the op that fits in half a GiB, where kernels have another path each."""
    for several in case.op.workloads.values():
        for workload in several:
            elements = sum(_count(t.sizes(workload.dims)) for t in case.op.signature.inputs)
            if elements > 1 << 25:
                continue
            tensors, scalars = case.draw(workload)
            try:
                case.compare(tensors, scalars, case.ours(*tensors, scalars=scalars))
            except Exception as error:
                raise AssertionError(f"{workload.name}: {error}") from error


def _count(sizes: Sequence[int]) -> int:
    made = 1
    for one in sizes:
        made *= one
    return made


# ---- Where it is called


def graph(case: Case) -> None:
    """Captured at its first use, and behind one; replayed with other values."""
    for workload, warm in ((case.large, False), (case.large, True), (case.small, True)):
        tensors, scalars = case.draw(workload)
        if warm:
            case.ours(*tensors, scalars=scalars)
            torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            got = case.ours(*tensors, scalars=scalars)
        for seed in (2, 3):
            for kept, other in zip(tensors, case.draw(workload, seed)[0], strict=True):
                kept.copy_(other)
            made.replay()
            case.compare(tensors, scalars, got)


def stream(case: Case) -> None:
    """Behind what is still computed on another stream than the usual one."""
    tensors, scalars = case.draw(case.large)
    wanted = [t.clone() for t in tensors]
    for t in tensors:
        t.zero_()
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        for t, value in zip(tensors, wanted, strict=True):
            t.copy_(value)
        got = case.ours(*tensors, scalars=scalars)
    torch.cuda.current_stream().wait_stream(own)
    case.compare(wanted, scalars, got)


def streams(case: Case) -> None:
    """Two at once, in turns: what one needs in between is not the other's."""
    both = [case.draw(case.large, seed) for seed in (1, 2)]
    own = [torch.cuda.Stream() for _ in both]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    got: list[list[Any]] = [[], []]
    for _ in range(8):
        for place, (tensors, scalars) in enumerate(both):
            with torch.cuda.stream(own[place]):
                got[place].append(case.ours(*tensors, scalars=scalars))
    torch.cuda.synchronize()
    for place, (tensors, scalars) in enumerate(both):
        for made in got[place]:
            case.compare(tensors, scalars, made)


def threads(case: Case) -> None:
    """Eight, each with sizes that are new to all."""

    def one(number: int) -> None:
        tensors, scalars = case.draw(case.small, number)
        case.compare(tensors, scalars, case.ours(*tensors, scalars=scalars))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(32)))


def large(case: Case) -> None:
    """An input of 2**31 elements and more is left to the formula."""
    work = case.small
    dims = dict(work.dims)
    spec = case.op.signature.inputs[0]
    axis = next((one for one in spec.shape if isinstance(one, str)), None)
    if axis is None or case.op.derived or case.device == "cpu":
        return
    dims[axis] = -(-(2**31 + 8) // max(_count(spec.sizes({**dims, axis: 1})), 1))
    tensors = []
    for one in case.op.signature.inputs:
        if _count(one.sizes(dims)) > 2**32:
            return
        kind = getattr(torch, one.resolve("bfloat16"))
        tensors.append(torch.zeros(one.sizes(dims), dtype=kind, device=case.device))
    scalars = case.op.signature.scalar_values(work.scalars)
    said = case.lib.explain(case.op.name, *tensors, *scalars.values())
    assert said["kernel"] is None, said
    assert "2**31" in said["reason"] or "indices" in said["reason"], said["reason"]


def deterministic(case: Case) -> None:
    tensors, scalars = case.draw(case.small)
    torch.use_deterministic_algorithms(True)
    try:
        said = case.lib.explain(case.op.name, *tensors, *scalars)
    finally:
        torch.use_deterministic_algorithms(False)
    if case.device != "cpu":
        assert said["kernel"] is None and "deterministic" in said["reason"], said


# ---- Gradients, transforms, compilers


def _first(made: Any) -> torch.Tensor:
    one: torch.Tensor = made[0] if isinstance(made, tuple) else made
    return one


def gradients(case: Case) -> None:
    """Backward, functional and forward-mode, and over a batch."""
    tensors, scalars = case.draw(case.small)
    floats = [n for n, t in enumerate(tensors) if t.is_floating_point()]
    ways = [
        lambda *given, way=way: _first(way(*given, scalars=scalars))
        for way in (case.ours, case.theirs)
    ]
    stacked = [torch.stack([t, t]) for t in tensors]
    compare(torch.vmap(ways[0])(*stacked), torch.stack([ways[1](*tensors)] * 2))
    if not FORMULAS[case.op.name].differentiable:
        return
    whole = (
        lambda *given, way=way: way(*given, scalars=scalars) for way in (case.ours, case.theirs)
    )
    compare(*(_backward(way, tensors, floats) for way in whole))
    functional = [
        torch.func.grad(lambda *g, f=f: f(*g).square().sum(), argnums=tuple(floats))(*tensors)
        for f in ways
    ]
    compare(*functional)
    if len(floats) == len(tensors):
        tangents = tuple(torch.ones_like(t) for t in tensors)
        try:
            expected = torch.func.jvp(ways[1], tuple(tensors), tangents)
        except _REFUSED:
            return
        compare(torch.func.jvp(ways[0], tuple(tensors), tangents), expected)


def _backward(function: Any, tensors: list[torch.Tensor], floats: list[int]) -> Any:
    """The gradients of a sum of all outputs that have one, with weights that differ."""
    given = [t.clone().requires_grad_(n in floats) for n, t in enumerate(tensors)]
    made, total = function(*given), torch.zeros(())
    for one in made if isinstance(made, tuple) else (made,):
        if one.is_floating_point():
            weights = torch.linspace(-1, 1, max(one.numel(), 1), device=one.device)[: one.numel()]
            total = total.to(one.device) + (one * weights.view(one.shape)).sum()
    return torch.autograd.grad(total, [given[n] for n in floats])


def autocast(case: Case) -> None:
    tensors, scalars = case.draw(case.small)
    with torch.autocast(case.device, torch.bfloat16):
        made = (way(*tensors, scalars=scalars) for way in (case.ours, case.theirs))
        ours, theirs = map(_first, made)
    assert ours.dtype == theirs.dtype, f"{ours.dtype}, expected {theirs.dtype}"
    compare(ours, theirs)


INDUCTOR = ("softmax", "rmsnorm", "matmul", "topk", "conv2d")


def compiled(case: Case) -> None:
    """One whole graph; on a GPU some by the compiler itself."""
    tensors, scalars = case.draw(case.small)
    backend = "inductor" if case.device == "cuda" and case.op.name in INDUCTOR else "aot_eager"

    def function(*given: Any) -> Any:
        return _first(case.ours(*given, scalars=scalars)) * 2

    torch._dynamo.reset()  # of all operators' the function is one and the same
    call: Any = torch.compile(function, fullgraph=True, backend=backend)
    compare(call(*tensors), _first(case.theirs(*tensors, scalars=scalars)) * 2)


#: Torch itself ends with an error where a gradient of it is traced for all sizes at once.
NO_DYNAMIC_GRADIENT = ("cross_entropy",)


def opcheck(case: Case) -> None:
    """Torch's own checks of an operator, with gradients and without."""
    tensors, scalars = case.draw(case.small)
    for wanted in (False, True):
        given = [t.clone().requires_grad_(wanted and t.is_floating_point()) for t in tensors]
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        if not (wanted and case.op.name in NO_DYNAMIC_GRADIENT):
            tests.append("test_aot_dispatch_dynamic")
        torch.library.opcheck(case.call, (*given, *scalars), test_utils=tests)


ON_GPUS = {"graph": graph, "stream": stream, "streams": streams}
#: ``graph`` first: nothing of a kernel is loaded then.
CHECKS: dict[str, Callable[[Case], None]] = {
    **ON_GPUS,
    "sizes": sizes,
    "hostile": hostile,
    "gradients": gradients,
    "autocast": autocast,
    "opcheck": opcheck,
    "threads": threads,
    "large": large,
    "deterministic": deterministic,
    "compiled": compiled,
}
#: The checks that are made in half precision too: it has kernels of its own.
IN_ALL_DTYPES = ("graph", "streams", "sizes", "hostile")


# ---- Processes

_LATE = "not asked: the time is up"
Place = tuple[str, str, str]
_PART, _FATAL = "a part of", "fatal"


def worker(
    library: str, device: str, places: Sequence[Sequence[Any]], out: Path, alone: str = ""
) -> None:
    """Appends a line of what it begins, and one of how it ended, for each; a place names parts that
    are left out behind its check, operator and dtype. ``alone``: PyTorch's side, up to this
    part."""
    lib = importlib.import_module(library)
    lib._policy("always")
    torch.backends.cudnn.allow_tf32 = False  # kernels in float32 are held against float32
    with out.open("a", encoding="utf-8") as file:

        def say(*words: Any) -> None:
            file.write(json.dumps(words) + "\n")
            file.flush()

        for check, name, dtype, *fatal in places:
            say(check, name, dtype, None, 0.0)
            start, said = time.perf_counter(), "right"
            case = Case(lib, name, device, dtype)
            case.fatal, case.alone = fatal, alone
            case.begins = lambda part: say(_PART, part)
            try:
                CHECKS[check](case)
                if device == "cuda":
                    torch.cuda.synchronize()
            except Exception as error:  # noqa: BLE001 - the next ones are asked all the same
                lines = [one for one in str(error).splitlines() if one.strip()]
                said = f"{type(error).__name__}: {' '.join(lines[:6])[:400]}"
            say(check, name, dtype, said, round(time.perf_counter() - start, 3))
            if "CUDA error" in said or "AcceleratorError" in said:
                return  # nothing of this process can be believed now
        shapes = lib.receipt()["operators"]
        for name in sorted({place[1] for place in places}):
            calls = sum(one["calls"] for one in shapes[name]["shapes"] if one["kernel"])
            say("calls of a kernel", name, "", calls, 0.0)


def run(library: str, device: str, places: Sequence[Place], end: float) -> list[list[Any]]:
    """All places in one process, and in another from where it ended too early. A part that ends a
    process where PyTorch is alone is left out, and said."""
    left: list[list[Any]] = [[*one] for one in places]
    found = list[list[Any]]()
    while left:
        if time.monotonic() > end:
            return [*found, *([*one[:3], _LATE, 0.0] for one in left)]
        said, done = _asked(library, device, left, end)
        ended = {tuple(one[:3]): one for one in said if len(one) == 5 and one[3] is not None}
        found += ended.values()
        begun = [one[:3] for one in said if len(one) == 5 and tuple(one[:3]) not in ended]
        after = [one for one in left if tuple(one[:3]) not in ended and one[:3] not in begun]
        if len(after) == len(left):
            return [*found, ["", "", "", f"no process could be started: {done}", 0.0]]
        parts = [one[1] for one in said if one[0] == _PART]
        for place in (one for one in left if one[:3] in begun):
            if parts and (fatal := _fatal(library, device, place, parts[-1], end)):
                found.append([_FATAL, " ".join(place[:3]), fatal, "", 0.0])
                after.insert(0, [*place, fatal])
            else:
                last = f" in {parts[-1]}" if parts else ""
                found.append([*place[:3], f"the process ended: {done}{last}", 0.0])
        left = after
    return found


def _fatal(library: str, device: str, place: list[Any], part: str, end: float) -> str:
    """The part in which PyTorch alone ends the process by a signal, asked all that was asked until
    this one began: what it keeps of earlier ones may be the cause. Else nothing."""
    said, done = _asked(library, device, [place], end, part)
    begun = [one[1] for one in said if one[0] == _PART]
    ended = any(len(one) == 5 and one[3] is not None for one in said)
    return str(begun[-1]) if isinstance(done, int) and done < 0 and begun and not ended else ""


def _asked(
    library: str, device: str, places: Sequence[Sequence[Any]], end: float, alone: str = ""
) -> tuple[list[list[Any]], Any]:
    """The lines that a process left, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "said.jsonl"
        given = ["worker=" + library, "device=" + device, "out=" + str(out), "alone=" + alone]
        command = [sys.executable, "-m", "benchmarks.library_checks", *given]
        try:
            wait = max(end - time.monotonic(), 1)
            done: Any = subprocess.run(
                command, input=json.dumps(places), text=True, timeout=wait, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            done = "the time is up"
        lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
        return [json.loads(line) for line in lines], done


def main() -> int:
    known = ("library", "device", "workers", "seconds", "worker", "out", "alone")
    given = _script.words(known, __doc__)
    device = given.get("device", "cpu")
    if "worker" in given:
        places = json.load(sys.stdin)
        worker(given["worker"], device, places, Path(given["out"]), given.get("alone", ""))
        return 0
    library = given["library"]
    lib = importlib.import_module(library)
    names = [one["name"] for one in lib.TABLE["operators"]]
    checks = [one for one in CHECKS if device == "cuda" or one not in ON_GPUS]
    dtypes = ["float32", *(["float16", "bfloat16"] if device == "cuda" else [])]
    groups = [
        [
            (check, name, dtype)
            for check in checks
            for dtype in (dtypes if check in IN_ALL_DTYPES else dtypes[:1])
        ]
        for name in names
    ]
    count = int(given.get("workers", "2"))
    shares = [[one for group in groups[n::count] for one in group] for n in range(count)]
    for share in shares:
        share.sort(key=lambda place: checks.index(place[0]))
    end = time.monotonic() + float(given.get("seconds", "600"))
    with ThreadPoolExecutor(count) as pool:
        parts = pool.map(lambda share: run(library, device, share, end), shares)
        found = [one for several in parts for one in several]
    document = _document(lib, device, found)
    _script.write(f"library-checks-{device}.json", document)
    print(json.dumps(document, indent=1))
    return 0


def _document(lib: Any, device: str, found: Sequence[Sequence[Any]]) -> dict[str, Any]:
    calls = {name: said for check, name, _, said, _ in found if check == "calls of a kernel"}
    asked = [one for one in found if one[0] not in ("calls of a kernel", _FATAL)]
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else lib._names[0],
        "torch": torch.__version__,
        "library": lib.TABLE["version"],
        "operators": len(lib.TABLE["operators"]),
        "refused": lib.refused,
        "asked": len(asked),
        "right": sum(said == "right" for _, _, _, said, _ in asked),
        "seconds": {
            check: round(sum(one[4] for one in asked if one[0] == check), 1) for check in CHECKS
        },
        "calls of a kernel": calls,
        "PyTorch alone ends the process": [" ".join(one[1:3]) for one in found if one[0] == _FATAL],
        "not asked": sum(str(one[3]).startswith(_LATE) for one in asked),
        "wrong": [
            " ".join(map(str, one[:4]))
            for one in asked
            if one[3] != "right" and not str(one[3]).startswith(_LATE)
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
