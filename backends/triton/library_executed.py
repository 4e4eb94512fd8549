"""Runs what Triton compiles ``@triton.jit`` functions of somebody's library to, on AMD's GPUs, in
the executor of AMD instructions, with what launches of the library's own tests were given.

Run as a process of its own, in the jail, for it imports the library:
``python -m portkern.backends.triton.library_executed REQUESTS.json``. It prints a line of JSON
before and after each.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portkern.isa import venue
from portkern.spec import target as targets

from .library_functions import answer_all, as_on, constant_of, function_of, plain, resources
from .library_interpreter import launched


def main() -> int:
    os.environ.pop("TRITON_INTERPRET", None)
    return answer_all(Path(sys.argv[1]), _executed)


def _executed(root: str, request: Mapping[str, Any], each_s: float) -> dict[str, object]:
    from .objects import Objects

    target, recorded = targets.load(request["target"]), request["recorded"]
    launches = venue.Launched()
    with as_on(target), Objects(target, launches).launching():
        function = plain(function_of(root, request))
        memory = launched(function, recorded, request["seed"])
        constants = {name: constant_of(value) for name, value in request["constants"].items()}
        arguments = {**memory.pointers, **recorded["scalars"], **constants}
        signal.setitimer(signal.ITIMER_PROF, each_s)
        made = function[tuple(request["grid"])](**arguments, **request["knobs"])
    if not launches.launches:
        raise RuntimeError("Triton compiled nothing that was launched")
    return {"whole": memory.whole(), "resources": resources(made, target)}


if __name__ == "__main__":
    sys.exit(main())
