"""Whether a library's choices hold: at sizes that it has records of, near them, and anywhere.

    python -m benchmarks.library_study library=NAME [device=cuda] [seconds=30] [seed=7] [rows=FILE]

For each drawn shape every kernel of the library and PyTorch's own are timed in turns, and what is
chosen by the evidence alone, with each of several ``min_speedup``, and after a race is held against
the fastest. Goes on until the seconds are used up; operators, dtypes and kinds of shapes take
turns. Writes results/library-study-DEVICE.json, and each shape as a line of the file ``rows``.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import _script
from benchmarks.library_checks import Case
from portkern.deploy.operators import Operator
from portkern.spec.op import Workload

KINDS = ("measured", "near", "anywhere")
#: Sizes that no record has.
HELD_OUT = ("near", "anywhere")
#: Rounds by which a choice is judged, of so many seconds each at least.
_ROUNDS, _ROUND_S = 15, {"cpu": 50e-6, "cuda": 300e-6}
#: Elements of a drawn shape's lengths, as powers of 2, and operations at most.
_ELEMENTS, _OPERATIONS = {"cpu": (10, 19), "cuda": (10, 24)}, {"cpu": 2**27, "cuda": 2**34}
#: The most elements of one tensor.
_MOST = 2**27
_SHOWN = 12
#: What the lower end of an interval has to exceed, by the way of choosing: the library's own first.
MARGINS = {"never": 0.0, **{f"never, {m}": m for m in (1.0, 1.05, 1.1, 1.2, 1.5)}}
WAYS = (*MARGINS, "online")


@dataclass(frozen=True)
class Judged:
    """``chosen`` has by the way of choosing what it was slower by than the operator with PyTorch's
    formula, which took ``eager_us``, and ``best`` is that of the fastest: all are called by the one
    door, and what the door itself costs is ``benchmarks.library``'s to say. ``record`` is the
    nearest one, if it says anything."""

    what: str
    kind: str
    best: float
    chosen: Mapping[str, float]
    race_ms: float
    eager_us: float
    record: Mapping[str, Any]

    def behind(self, tune: str) -> float:
        return self.chosen[tune] / self.best

    def row(self) -> dict[str, Any]:
        ratios = {tune: round(self.chosen[tune], 3) for tune in ("never", "online")}
        return {"what": f"{self.what} ({self.kind})", "best": round(self.best, 3), **ratios}


class Study:
    """Judges the choices that one library makes on one device."""

    def __init__(self, lib: Any, device: str, seed: int) -> None:
        self.lib, self.device, self.draw = lib, device, random.Random(seed)
        self.slot = 0 if device == "cpu" else 1

    def places(self) -> list[tuple[int, int, str]]:
        """Number of the operator, of its dtype, and kind of shape; those with a kernel here."""
        found = []
        for number, dtype in sorted(
            (n, d) for n, slot, d in self.lib._kernels if slot == self.slot
        ):
            op = Case(self.lib, self.name(number), self.device).op
            if self.device == "cuda" and any(t.within for t in op.signature.inputs):
                continue  # left to the framework
            derived = bool(Operator.of(op, 0, "x").form.derived)
            found += [(number, dtype, kind) for kind in KINDS if kind != "anywhere" or not derived]
        return found

    def name(self, number: int) -> str:
        return str(self.lib.TABLE["operators"][number]["name"])

    def workload(self, number: int, dtype: int, kind: str) -> Workload:
        case = Case(self.lib, self.name(number), self.device)
        operator = Operator.of(case.op, 0, "x")
        if kind == "anywhere":
            dims, scalars = self._anywhere(case.op.signature.axes), {}
        else:
            table = self.lib.TABLE
            cells = [
                dict(zip(table["operators"][number]["key"], cell["key"], strict=True))
                for cell in table["cells"]
                if table["kernels"][cell["kernel"]]["op"] == number
                and table["kernels"][cell["kernel"]]["dtype"] == self.lib.DTYPES[dtype]
            ]
            cell = self.draw.choice(cells)
            scalars = {name: cell.pop(name) for name in operator.whole}
            dims = cell if kind == "measured" else {a: self._near(n) for a, n in cell.items()}
        known = case.op.signature.scalar_values(scalars)
        for axis, said in operator.form.derived.items():
            dims[axis] = int(said({**dims, **known}))
        return Workload(kind, dims, scalars)

    def _near(self, length: int) -> int:
        """Within a factor of 2; windows stay as they are."""
        return length if length < 8 else round(length * 2 ** self.draw.uniform(-1, 1))

    def _anywhere(self, axes: Sequence[str]) -> dict[str, int]:
        total = self.draw.uniform(*_ELEMENTS[self.device])
        parts = [self.draw.random() + 0.1 for _ in axes]
        if len(axes) > 2:  # operands have two or three of them
            total *= 1.3
        return {
            axis: max(1, round(2 ** (total * part / sum(parts))))
            for axis, part in zip(axes, parts, strict=True)
        }

    def judge(self, number: int, dtype: int, kind: str) -> Judged | None:
        """Compares the library's choice with the fastest; None for a shape that nobody would draw
        twice."""
        work = self.workload(number, dtype, kind)
        operations = 1
        for length in work.dims.values():
            operations *= max(length, 1)
        case = Case(self.lib, self.name(number), self.device, self.lib.DTYPES[dtype])
        specs = (*case.op.signature.inputs, *case.op.signature.outputs)
        most = max(math.prod(spec.sizes(work.dims)) for spec in specs)
        if operations > _OPERATIONS[self.device] or not 0 < most <= _MOST:
            return None
        tensors, scalars = case.draw(work)
        try:
            case.theirs(*tensors, scalars=scalars)
        except RuntimeError:  # sizes of which the operator has no answer
            return None
        chosen: dict[str, int] = {}
        record: dict[str, Any] = {}
        race_ms = 0.0
        for way in WAYS:
            margin = {"min_speedup": MARGINS[way]} if MARGINS.get(way) else {}
            self.lib.configure(tune="online" if way == "online" else "never", **margin)
            if way != "online":
                record = self.lib.explain(case.op.name, *tensors, *scalars).get("record", record)
            start = time.perf_counter()
            case.ours(*tensors, scalars=scalars)
            self._wait()
            race_ms = (time.perf_counter() - start) * 1e3
            chosen[way] = self._chosen(number, dtype)
        key = self._key(number, dtype)
        self.lib._policy("evidence")
        call = lambda: case.ours(*tensors, scalars=scalars)  # noqa: E731
        able = self.able(number, dtype, key)
        times = self._times(call, able, lambda k: self._know(number, dtype, key, k))
        ratios = {kernel: one / times[-1] for kernel, one in times.items()}
        return Judged(
            f"{case.op.name} {case.dtype} {work.dims} {work.scalars}",
            kind,
            min(ratios.values()),
            {tune: ratios[kernel] for tune, kernel in chosen.items()},
            race_ms,
            times[-1] * 1e6,
            {name: record[name] for name in ("workload", "speedup") if name in record},
        )

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _known(self, number: int, dtype: int) -> tuple[list[int], int]:
        """The key of the one decision that was taken, and the kernel."""
        key, calls = (ctypes.c_int64 * 16)(), ctypes.c_int64()
        kernel, why, cell = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        told = [ctypes.byref(one) for one in (kernel, why, cell, ctypes.c_double(), calls)]
        count = self.lib._c.pk_known(number, self.slot, dtype, 0, key, *told)
        if count < 0:
            raise SystemExit(f"{self.name(number)}: no kernel could take what was drawn")
        return key[:count], kernel.value

    def _chosen(self, number: int, dtype: int) -> int:
        return self._known(number, dtype)[1]

    def _key(self, number: int, dtype: int) -> list[int]:
        return self._known(number, dtype)[0]

    def _know(self, number: int, dtype: int, key: Sequence[int], kernel: int) -> None:
        values = (ctypes.c_int64 * len(key))(*key)
        self.lib._c.pk_know(number, self.slot, dtype, values, len(key), kernel, 0)

    def able(self, number: int, dtype: int, key: Sequence[int]) -> list[int]:
        """The kernels that take these sizes. One with a plan has launches for its cells alone: in
        its place the operator would call the formula."""
        found = []
        for place, kernel in enumerate(self.lib._kernels[number, self.slot, dtype]):
            if kernel["binaries"]:
                plan = json.loads((self.lib.HERE / kernel["file"]).read_text(encoding="utf-8"))
                if [*key] not in [cell["key"] for cell in plan["cells"]]:
                    continue
            found.append(place)
        return found

    def _times(
        self, call: Callable[[], Any], kernels: Sequence[int], know: Callable[[int], None]
    ) -> dict[int, float]:
        """Medians of these kernels, and of the formula, which is -1."""
        know(-1)
        once = self._timed(call, 2)
        calls = max(1, min(50, round(_ROUND_S[self.device] / once)))
        times: dict[int, list[float]] = {kernel: [] for kernel in (-1, *kernels)}
        for round_ in range(_ROUNDS + 1):
            for kernel, own in times.items():
                know(kernel)
                taken = self._timed(call, calls)
                if round_:
                    own.append(taken)
        return {kernel: statistics.median(own) for kernel, own in times.items()}

    def _timed(self, call: Callable[[], Any], calls: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        self._wait()
        return (time.perf_counter() - start) / calls

    def run(self, seconds: float) -> Iterator[Judged]:
        end = time.monotonic() + seconds
        places = self.places()
        while True:
            self.draw.shuffle(places)
            for place in places:
                if time.monotonic() > end:
                    return
                if (judged := self.judge(*place)) is not None:
                    yield judged


def summary(found: Sequence[Judged], tune: str) -> dict[str, Any]:
    """Shares of the shapes; ``ours`` is how often a kernel was taken, ``gain`` the geometric mean
    of what was won against PyTorch."""
    count = max(len(found), 1)
    slower = [one.chosen[tune] for one in found]
    return {
        "shapes": len(found),
        "ours": round(sum(one != 1.0 for one in slower) / count, 4),
        "within 5 % of the best": round(sum(one.behind(tune) <= 1.05 for one in found) / count, 4),
        "slower than eager by 5 %": round(sum(one > 1.05 for one in slower) / count, 4),
        "worst against eager": round(max(slower, default=1.0), 3),
        "gain": round(statistics.geometric_mean(1 / one for one in slower), 3) if found else 1.0,
        "best gain": round(statistics.geometric_mean(1 / one.best for one in found), 3)
        if found
        else 1.0,
    }


def main() -> int:
    known = ("library", "device", "seconds", "seed", "rows")
    given = _script.words(known, __doc__, ("library",))
    device, lib = given.get("device", "cpu"), importlib.import_module(given["library"])
    study = Study(lib, device, int(given.get("seed", "7")))
    with torch.no_grad():
        found = list(study.run(float(given.get("seconds", "30"))))
    lib.configure()
    behind = sorted(found, key=lambda one: -one.behind("online"))
    slower = sorted(found, key=lambda one: -max(one.chosen["never"], one.chosen["online"]))
    if "rows" in given:
        lines = [json.dumps(dataclasses.asdict(one)) + "\n" for one in found]
        Path(given["rows"]).write_text("".join(lines), encoding="utf-8")
    document = {
        "device": torch.cuda.get_device_name() if device == "cuda" else lib._names[0],
        "torch": torch.__version__,
        "library": lib.TABLE["version"],
        "seed": given.get("seed", "7"),
        "race ms, median": round(statistics.median(one.race_ms for one in found), 2),
        "choices": {
            tune: {
                kind: summary([one for one in found if one.kind in kinds], tune)
                for kind, kinds in {"held out": HELD_OUT, **{k: (k,) for k in KINDS}}.items()
            }
            for tune in WAYS
        },
        "farthest from the best after a race": [one.row() for one in behind[:_SHOWN]],
        "slowest against eager": [one.row() for one in slower[:_SHOWN]],
    }
    _script.write(f"library-study-{device}.json", document)
    for tune, kinds in document["choices"].items():
        for kind, said in kinds.items():
            print(f"{tune:7s} {kind:9s} {said}")
    print(*document["farthest from the best after a race"], sep="\n")
    print(*document["slowest against eager"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
