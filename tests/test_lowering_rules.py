"""C code computes by each rule of single elements what the framework computes, for each kind."""

from __future__ import annotations

import ctypes
import subprocess
from typing import NamedTuple

import pytest
import torch

from portkern.worker.lowering import pointwise
from portkern.worker.lowering.body import Kind

DTYPES: dict[Kind, torch.dtype] = {
    "float": torch.float32,
    "double": torch.float64,
    "int64_t": torch.int64,
    "bool": torch.bool,
}
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-3, 1e30, -1e30, 2.0, 7.0, 100.0, -88.0, 0.1]
_FLOATS += [float("inf"), float("-inf"), float("nan")]
VALUES: dict[Kind, list[float]] = {
    "float": _FLOATS,
    "double": _FLOATS,
    "int64_t": [0, 1, -1, 2, -2, 3, 7, -7, 62, 2**40, -(2**40), 5],
    "bool": [False, True],
}
NAMES = sorted({*pointwise.UNARY, *pointwise.BINARY, "remainder"})


class Rule(NamedTuple):
    """One operation, computed in ``within``; its result has elements of ``made``."""

    name: str
    kind: Kind
    within: Kind
    made: Kind

    @property
    def operands(self) -> int:
        return 1 if self.name in pointwise.UNARY else 2

    @property
    def function(self) -> str:
        return f"of_{self.kind}_{self.name}"

    def text(self) -> str | None:
        return pointwise.written(self.name, ["a", "b"][: self.operands], self.within)

    def given(self) -> list[torch.Tensor]:
        """Each value beside each other one, without what C leaves undefined."""
        values = torch.tensor(VALUES[self.kind], dtype=DTYPES[self.kind])
        if self.operands == 1:
            return [values]
        a, b = (part.flatten() for part in torch.meshgrid(values, values, indexing="ij"))
        defined = torch.ones_like(a, dtype=torch.bool)
        if self.kind == "int64_t" and self.name in ("remainder", "fmod", "div"):
            defined = b != 0
        if "shift" in self.name:
            defined = (b >= 0) & (b < 63)
        return [a[defined].contiguous(), b[defined].contiguous()]

    def wanted(self, given: list[torch.Tensor]) -> torch.Tensor | None:
        """The framework's result; None where it has no such operation, or computes it in another
        kind."""
        try:
            result: torch.Tensor = getattr(torch.ops.aten, self.name)(*given)
        except RuntimeError:
            return None
        return result if result.dtype == DTYPES[self.made] else None


def _rules() -> list[Rule]:
    rules = []
    for kind in DTYPES:
        for name in NAMES:
            within: Kind = "bool" if name.startswith("logical_") else kind
            made: Kind = "bool" if name in pointwise.COMPARING else within
            rule = Rule(name, kind, within, made)
            if rule.text() is not None and rule.wanted(rule.given()) is not None:
                rules.append(rule)
    return rules


RULES = _rules()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("rules")
    lines = ["#include <math.h>", "#include <stdint.h>"]
    for rule in RULES:
        lines.append(
            f'extern "C" void {rule.function}(const {rule.kind}* x, const {rule.kind}* y, '
            f"{rule.made}* z, int64_t n) {{ for (int64_t i = 0; i < n; ++i) {{ "
            f"const {rule.within} a = x[i], b = y[i]; z[i] = {rule.text()}; }} }}"
        )
    (folder / "rules.cpp").write_text("\n".join(lines))
    library = folder / "rules.so"
    flags = ["-O1", "-w", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(["g++", *flags, str(folder / "rules.cpp")], check=True, timeout=120)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("kind", DTYPES)
def test_c_computes_what_the_framework_computes(kind: Kind, compiled: ctypes.CDLL) -> None:
    wrong = [problem for rule in RULES if rule.kind == kind for problem in _differs(rule, compiled)]
    assert wrong == []
    assert sum(rule.kind == kind for rule in RULES) >= 12


def _differs(rule: Rule, compiled: ctypes.CDLL) -> list[str]:
    given = rule.given()
    wanted = rule.wanted(given)
    assert wanted is not None
    got = torch.empty_like(wanted)
    pointers = [ctypes.c_void_p(one.data_ptr()) for one in (given[0], given[-1], got)]
    getattr(compiled, rule.function)(*pointers, ctypes.c_int64(len(got)))
    if wanted.is_floating_point():
        near = 1e-5 if rule.kind == "float" else 1e-9
        same = torch.isclose(got, wanted, rtol=near, atol=0, equal_nan=True)
    else:
        same = got == wanted
    return [
        f"{rule.name} of {[one[place].item() for one in given]} is {got[place].item()}, "
        f"expected {wanted[place].item()}"
        for place in (~same).nonzero()[:3, 0]
    ]


def test_a_result_may_be_read_as_a_truth() -> None:
    """The complement of a truth is not a truth: C's ``~`` of 1 is -2."""
    assert pointwise.written("bitwise_not", ["a"], "bool") == "!a"
    assert pointwise.written("bitwise_not", ["a"], "int64_t") == "~a"
