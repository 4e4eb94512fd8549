"""relu kernels that misbehave, in C++: what the evaluator must survive."""

from __future__ import annotations

from portkern.spec.candidate import Candidate

HEADERS = ("atomic", "signal.h", "stdlib.h", "string.h", "sys/mman.h", "thread", "unistd.h")
HEAD = "".join(f"#include <{name}>\n" for name in HEADERS)
BODY = 'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {{ {body} }}'
RIGHT = "for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i]; return 0;"


def relu(body: str) -> Candidate:
    """A float32 relu for the cpu backend with this function body."""
    return Candidate("relu", "cpu", "c++", HEAD + BODY.format(body=body), "relu", author="test")
