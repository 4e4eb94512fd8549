"""The cheats that today's evaluator lets pass, each with what it would take to catch it.

A case whose verdict changes leaves this table, and its header then names the reason given.
"""

from __future__ import annotations

_WATCHED = "the worker's functions can be replaced: look again at what was captured before import"
_STATE = "global state is not compared before and after (the baseline has a process of its own)"

NOT_YET: dict[str, str] = {
    "global_dtype.py": _STATE,
    "global_flush.py": _STATE,
    "global_threads.py": _STATE,
    "instance_override.py": "an output's own attributes are believed: its __dict__ must be empty",
    "lazy_mode.py": "a function mode that is left on is not noticed: compare the stacks of modes",
    "patched_download.py": _WATCHED,
    "slow_baseline.py": _WATCHED,
}

#: Of ``gpu/cheats``, on a GPU.
NOT_YET_ON_GPU: dict[str, str] = {
    "persisting_cache.cu": "what persists in L2 outlives the flush: reset it before each call",
}
