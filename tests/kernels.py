"""relu kernels that misbehave, in C++: what the judge must survive."""

from __future__ import annotations

from portkern.candidate import Candidate

HEAD = "#include <unistd.h>\n#include <stdlib.h>\n#include <signal.h>\n#include <thread>\n"
BODY = 'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {{ {body} }}'
RIGHT = "for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i]; return 0;"


def relu(body: str) -> Candidate:
    """A float32 relu for the cpu backend with this function body."""
    return Candidate("relu", "cpu", "c++", HEAD + BODY.format(body=body), "relu", author="test")
