"""Kernels in Python compute on a block of elements what C computes on one."""

from __future__ import annotations

import numpy as np
import pytest

from portkern.worker.lowering.jax_lanes import HELPERS, JaxLanes
from portkern.worker.lowering.lanes import LoweredLanes, Term
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.triton_lanes import TritonLanes

X = np.array([-2.5, -0.0, 1.5, np.nan, np.inf, 3.0, -np.inf, 0.5], np.float32)


def computed(statements: str, result: str) -> np.ndarray:
    """The results of eight lanes that have an element ``x`` each and their number ``row``, n being
    5."""
    jax = pytest.importorskip("jax")
    lanes = JaxLanes(
        {
            "x": Term("x", "float"),
            "row": Term("row", "int64_t"),
            "n": Term("n", "int64_t", "number"),
        },
        {},
        {},
        indent=0,
    )
    lanes.write(statements.splitlines())
    known = {
        "jax": jax,
        "jnp": jax.numpy,
        "BLOCK": 8,
        "n": 5,
        "x": jax.numpy.array(X),
        "row": jax.numpy.arange(8),
        "zero": jax.numpy.zeros(8, jax.numpy.int32),
        "live": jax.numpy.ones(8, bool),
    }
    exec(
        "\n".join([*(HELPERS[name] for name in sorted(lanes.called & {*HELPERS})), *lanes.lines]),
        known,
    )
    return np.asarray(known[result])


def test_a_condition_changes_its_lanes_alone() -> None:
    text = "float a = 1.0f;\nif (row >= 2 && row < n) {\nif (x > 0) {\na = x;\n}\n}"
    assert computed(text, "a").tolist() == [1, 1, 1.5, 1, np.inf, 1, 1, 1]


def test_loops_carry_what_they_change() -> None:
    text = (
        "int64_t a = 0;\nfor (int64_t r = 0; r < n; ++r) {\n"
        "for (int64_t s = 0; s < 2; ++s) {\nif (r < row) {\na += r * 10 + s;\n}\n}\n}"
    )
    expected = [sum(r * 10 + s for r in range(min(5, row)) for s in range(2)) for row in range(8)]
    assert computed(text, "a").tolist() == expected


def test_integers_are_divided_as_c_does() -> None:
    text = "const int64_t a = (row - 4) / 3;\nconst int64_t b = (row - 4) % 3;"
    assert computed(text, "a").tolist() == [-1, -1, 0, 0, 0, 0, 0, 1]
    assert computed(text, "b").tolist() == [-1, 0, -2, -1, 0, 1, 2, 0]


def test_booleans_are_numbers_in_arithmetic() -> None:
    text = "const float a = ((x > 0) - (x < 0));"
    assert computed(text, "a").tolist() == [-1, 0, 1, 0, 1, 1, -1, 1]


def test_the_first_operand_decides_about_nan() -> None:
    text = "const float a = (x != x || x > 1.0f ? x : 1.0f);"
    expected = np.where(np.isnan(X), X, np.fmax(X, 1))
    assert np.array_equal(computed(text, "a"), expected, equal_nan=True)


def test_a_sum_of_doubles_keeps_what_a_float_would_round_off() -> None:
    text = "double a = 16777216;\nfor (int64_t r = 0; r < 1000; ++r) {\na = a + 1.0f;\n}"
    assert computed(text, "a").tolist() == [16777216 + 1000] * 8


@pytest.mark.parametrize("lanes", [TritonLanes, JaxLanes])
def test_a_function_that_a_language_lacks_is_named(lanes: type[LoweredLanes]) -> None:
    with pytest.raises(Unwritable, match=f"lgamma in {lanes.language}"):
        lanes({"x": Term("x", "float")}, {}, {}).number("lgammaf(x)")


def test_a_loop_whose_length_differs_by_element_is_refused() -> None:
    with pytest.raises(Unwritable, match="differs by element"):
        computed("for (int64_t r = 0; r < row; ++r) {\n}", "row")
