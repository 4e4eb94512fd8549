"""Looks by which rule honest float32 kernels pass and dishonest ones do not, over many operators.

    .venv/bin/python -m benchmarks.tolerances [seeds=20] [ops=matmul,softmax]

Writes results/tolerances.json; with ``ops`` the rows of others stay. Each operator is
evaluated as one that declares nothing, in float32 and bfloat16, on inputs of one distribution and
size per seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import _script
from benchmarks.tolerance_kernels import DISHONEST, HONEST, Arithmetic, Kernel, half, tf32
from benchmarks.tolerance_ops import FIRST, OPERATORS, Ids, Operator
from portkern.evaluator.compare import compare
from portkern.evaluator.reference import Case, answer
from portkern.spec.op import Op, Signature, TensorSpec, Workload
from portkern.toolchain import host

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
DISTRIBUTIONS: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "normal": lambda shape, g: torch.randn(shape, generator=g),
    "uniform": lambda shape, g: torch.rand(shape, generator=g),
    "near 2": lambda shape, g: torch.randn(shape, generator=g) * 0.25 + 2.0,
    "near 100": lambda shape, g: torch.randn(shape, generator=g) + 100.0,
    "few bits": lambda shape, g: (torch.rand(shape, generator=g) * 8 - 4).round() * 0.5,
    "small": lambda shape, g: torch.randn(shape, generator=g) * 1e-3,
    "heavy": lambda shape, g: (
        torch.randn(shape, generator=g) * torch.randn(shape, generator=g).exp()
    ),
    "cancelling": lambda shape, g: _cancelling(torch.randn(shape, generator=g)),
}


def _cancelling(x: Tensor) -> Tensor:
    """The second half of each row takes back the first."""
    n = x.shape[-1] // 2
    return torch.cat([x[..., :n], -x[..., :n].flip(-1), x[..., 2 * n :]], -1)


@dataclass
class Count:
    """Counts judgements: all of them, and those that each rule called ``wrong``."""

    all: int = 0
    tight: int = 0
    derived: int = 0

    def add(self, tight: bool, derived: bool) -> None:
        self.all, self.tight, self.derived = (
            self.all + 1,
            self.tight + tight,
            self.derived + derived,
        )

    def plus(self, other: Count) -> Count:
        return Count(self.all + other.all, self.tight + other.tight, self.derived + other.derived)

    def row(self) -> list[int]:
        return [self.all, self.tight, self.derived]


def undeclared(operator: Operator, shapes: Sequence[Any], outputs: Sequence[Tensor]) -> Op:
    """The operator as an import makes it: with tensors of fixed sizes, and nothing said of its
    sums."""
    inputs = [
        TensorSpec(
            f"x{i}", s.shape if isinstance(s, Ids) else s, "int64" if isinstance(s, Ids) else "cell"
        )
        for i, s in enumerate(shapes)
    ]
    made = [TensorSpec(f"y{i}", tuple(out.shape)) for i, out in enumerate(outputs)]
    return Op(
        Signature(operator.name, (), tuple(inputs), tuple(made)),
        operator.reference,
        flops=lambda _: 0.0,
        workloads={},
        reference_source=operator.name,
    )


def make_case(operator: Operator, dtype: str, seed: int) -> Case:
    """The same for the same seed."""
    chosen = random.Random(f"{operator.name}/{dtype}/{seed}")
    shapes, distribution = chosen.choice(operator.sizes), chosen.choice(list(DISTRIBUTIONS))
    generator = torch.Generator().manual_seed(chosen.getrandbits(62))
    inputs = [
        torch.randint(s.bound, s.shape, generator=generator)
        if isinstance(s, Ids)
        else DISTRIBUTIONS[distribution](s, generator).to(DTYPES[dtype])
        for s in shapes
    ]
    outputs = _tuple(operator.reference(*inputs))
    op = undeclared(operator, shapes, outputs)
    case = answer(op, Workload("w", {}), distribution, inputs)
    assert case.derivation is not None
    return replace(case, derivation=replace(case.derivation, seed=chosen.getrandbits(62)))


def wrong(case: Case, outputs: Sequence[Tensor]) -> tuple[bool, bool]:
    """Whether the outputs are wrong by the tight rule, and by the derived one."""
    rounded = [out.to(own.dtype) for out, own in zip(outputs, case.own, strict=True)]
    if not compare(actual=rounded, case=replace(case, derivation=None)).problem:
        return False, False
    return True, bool(compare(actual=rounded, case=case).problem)


def run(operator: Operator, arithmetic: Arithmetic, inputs: Sequence[Tensor]) -> tuple[Any, bool]:
    """The operator's outputs at float32, and whether this arithmetic had a part in them."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Kernel(arithmetic) as kernel:
        outputs = operator.reference(*inputs)
    took_part = kernel.sums if arithmetic.factors is None else kernel.products
    return _tuple(outputs), bool(took_part)


def honest(operator: Operator, case: Case) -> Iterator[tuple[str, Sequence[Tensor]]]:
    inputs = [x.float() if x.is_floating_point() else x for x in case.inputs]
    for name, arithmetic in HONEST.items():
        outputs, took_part = run(operator, arithmetic, inputs)
        if took_part or name == "serial":
            yield name, outputs
    yield "other layout", _tuple(operator.reference(*map(_strided, inputs)))
    for name, kernel in operator.kernels.items():
        yield name, _tuple(kernel(*inputs))


def dishonest(operator: Operator, case: Case) -> Iterator[tuple[str, Sequence[Tensor]]]:
    """Yields dishonest kernels of float32 cases; a result of 16 bits hides most of what is tried
    here."""
    if case.own[0].dtype != torch.float32:
        return
    for name, arithmetic in DISHONEST.items():
        outputs, took_part = run(operator, arithmetic, case.inputs)
        if took_part:
            yield name, outputs
    yield "bfloat16 result", [out.bfloat16() for out in case.own]
    yield "fp16 result", [half(out) for out in case.own]
    yield "last element wrong", [_without_last(out) for out in case.own]
    rounded = [tf32(x) if x.is_floating_point() else x for x in case.inputs]
    yield "TF32 inputs", _tuple(operator.reference(*rounded))


def _without_last(out: Tensor) -> Tensor:
    kept = out.clone()
    kept.view(-1)[-1] = 0.0
    return kept


def _strided(x: Tensor) -> Tensor:
    """Equal values, another layout."""
    return x.mT.contiguous().mT if x.ndim > 1 and x.is_floating_point() else x


def _tuple(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def study(operator: Operator, seeds: Sequence[int]) -> dict[str, Any]:
    """Studies one operator: judgements by dtype and kernel, and the operations that no rule
    knows."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, dict[str, Count]]] = {}
    unruled: set[str] = set()
    for dtype in operator.dtypes:
        kinds = found.setdefault(dtype, {"honest": {}, "dishonest": {}})
        for seed in seeds:
            case = make_case(operator, dtype, seed)
            for kind, kernels in (("honest", honest), ("dishonest", dishonest)):
                for name, outputs in kernels(operator, case):
                    kinds[kind].setdefault(name, Count()).add(*wrong(case, outputs))
            if case.derived is not None:
                unruled |= {*case.derived.source.unruled}
                assert not case.derived.source.problem, case.derived.source.problem
    return {
        "op": operator.name,
        "later": operator not in FIRST,
        "unruled": sorted(unruled),
        **{
            dtype: {
                kind: {name: count.row() for name, count in kernels.items()}
                for kind, kernels in kinds.items()
            }
            for dtype, kinds in found.items()
        },
    }


def totals(rows: Sequence[dict[str, Any]], dtype: str) -> dict[str, Any]:
    """Judgements of honest kernels that were wrong, and of dishonest ones by what they do."""
    rows = [row for row in rows if dtype in row]
    good = [Count(*c) for row in rows for c in row[dtype]["honest"].values()]
    bad: dict[str, list[Count]] = {}
    for row in rows:
        for name, count in row[dtype]["dishonest"].items():
            bad.setdefault(name, []).append(Count(*count))
    return {
        "honest": _plus(good).row(),
        "honest_kernels_wrong": [sum(c.tight > 0 for c in good), sum(c.derived > 0 for c in good)],
        "honest_kernels": len(good),
        "dishonest": {name: _plus(counts).row() for name, counts in bad.items()},
        "dishonest_kernels": {
            name: [
                len(counts),
                sum(c.tight > 0 for c in counts),
                sum(c.derived > 0 for c in counts),
            ]
            for name, counts in bad.items()
        },
    }


def _plus(counts: Sequence[Count]) -> Count:
    total = Count()
    for count in counts:
        total = total.plus(count)
    return total


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sets = {"all": list(rows), "later": [row for row in rows if row["later"]]}
    return {
        name: {"operators": len(some)} | {dtype: totals(some, dtype) for dtype in DTYPES}
        for name, some in sets.items()
    }


def results() -> dict[str, Any]:
    """The committed ones."""
    path = _script.RESULTS / "tolerances.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def table(document: dict[str, Any]) -> str:
    """The summary in Markdown: of honest kernels what was wrong, of dishonest what was caught."""
    some = document["summary"]
    head = ["", "all", "by the tight rule", "with what is derived"]
    rows = [head, ["---"] * len(head)]
    for name, about in some.items():
        which = f"{about['operators']} operators" + (", drawn up later" if name == "later" else "")
        for dtype in DTYPES:
            judged, *wrong = about[dtype]["honest"]
            rows.append([f"{which}: honest, {dtype}, wrong", str(judged), *map(str, wrong)])
    for cheat, (kernels, *caught) in some["all"]["float32"]["dishonest_kernels"].items():
        judged, *cases = some["all"]["float32"]["dishonest"][cheat]
        told = [f"{c} ({k} of {kernels} kernels)" for c, k in zip(cases, caught, strict=True)]
        rows.append([f"dishonest, float32, caught: {cheat}", str(judged), *told])
    counts = some["all"]["float32"]["dishonest"].values()
    total = [sum(count[i] for count in counts) for i in range(3)]
    rows.append(["dishonest, float32, caught: together", *map(str, total)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    given = _script.words(("seeds", "ops"), __doc__)
    seeds = range(int(given.get("seeds", 20)))
    names = [operator.name for operator in OPERATORS]
    wanted = given["ops"].split(",") if "ops" in given else names
    machine = {"host": host.machine(), "torch": str(torch.__version__), "seeds": len(seeds)}
    rows = {row["op"]: row for row in _script.earlier("tolerances.json", machine, wanted, "op")}
    with ProcessPoolExecutor(2) as pool:
        for row in pool.map(partial(_named, seeds=seeds), wanted):
            rows[row["op"]] = row
            _print(row)
            ordered = [rows[name] for name in names if name in rows]
            document = {"machine": machine, "summary": summary(ordered), "rows": ordered}
            _script.write("tolerances.json", document)
    print(table(document))


def _named(name: str, seeds: Sequence[int]) -> dict[str, Any]:
    return study(next(o for o in OPERATORS if o.name == name), seeds)


def _print(row: dict[str, Any]) -> None:
    print(f"{row['op']:24}", " ".join(row["unruled"]), flush=True)
    for dtype in filter(row.__contains__, DTYPES):
        for kind, kernels in row[dtype].items():
            told = ", ".join(f"{name} {'/'.join(map(str, c))}" for name, c in kernels.items())
            print(f"    {dtype:9}{kind:10} {told}", flush=True)


if __name__ == "__main__":
    main()
