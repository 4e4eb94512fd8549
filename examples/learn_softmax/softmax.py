"""A softmax in C++ as seven decisions, of whose 1,296 programs about one in twenty is right."""

from __future__ import annotations

from collections.abc import Mapping

from portkern.env import Decisions

CHOICES = {
    "shift": ("0.0f", "x[r * cols]", "maximum"),
    "sum": ("float", "double"),
    "end": ("cols", "cols - 1", "cols & ~(int64_t)7"),
    "division": ("reciprocal", "y[at] / s", "y[at] / (s + 1e-3f)"),
    "exponential": (
        "std::exp(v)",
        "1 + v + v * v / 2",
        "exp2f(v * 1.44269504f)",
        "std::exp(v) * 0.9999f",
    ),
    "threads": (
        "",
        "#pragma omp parallel for if (rows * cols > 1000000)",
        "#pragma omp parallel for",
    ),
    "vectors": ("", "#pragma omp simd reduction(+ : s)"),
}
MAXIMUM = """float m = -INFINITY;
    for (int64_t j = 0; j < cols; ++j) m = x[r * cols + j] > m ? x[r * cols + j] : m;"""


def source(chosen: Mapping[str, str]) -> str:
    shift, division = chosen["shift"], chosen["division"]
    scaled = "y[at] * inverse" if division == "reciprocal" else division
    return f"""#include <cmath>
#include <cstdint>
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {{
  {chosen["threads"]}
  for (int64_t r = 0; r < rows; ++r) {{
    {MAXIMUM if shift == "maximum" else f"const float m = {shift};"}
    {chosen["sum"]} s = 0;
    {chosen["vectors"]}
    for (int64_t j = 0; j < {chosen["end"]}; ++j) {{
      const float v = x[r * cols + j] - m;
      const float e = {chosen["exponential"]};
      y[r * cols + j] = e;
      s += e;
    }}
    const float inverse = 1.0f / (float)s;
    for (int64_t j = 0; j < cols; ++j) {{
      const int64_t at = r * cols + j;
      y[at] = {scaled};
    }}
  }}
  return 0;
}}
"""


DECISIONS = Decisions(CHOICES, source)
