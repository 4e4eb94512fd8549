"""The cheats that today's evaluator lets pass, each with what it would take to catch it.

A case whose verdict changes leaves this table, and its header then names the reason given.
"""

from __future__ import annotations

_FRESH = "timed calls get the data of the last judged call: refill the buffers, judge the outputs"
_JUDGED = "outputs of timed calls are never looked at: judge some, chosen afterwards"
_OUTSIDE = "times are the worker's word: compare with the judge's own clock over the same calls"
_WATCHED = "the worker's functions can be replaced: look again at what was captured before import"
_LIBRARY = "nobody looks for library routines: trace torch's dispatch, scan the source"
_FORM = "strides and storage of an output are not looked at: contiguous, of its own"
_STATE = "global state is not compared before and after (the baseline has a process of its own)"
_IDLE = "nobody looks at threads, processes and CPU time after the return"

NOT_YET: dict[str, str] = {
    "cache_by_identity.py": _FRESH,
    "cache_by_pointer.py": _FRESH,
    "calls_torch.py": _LIBRARY,
    "calls_torch_by_name.py": _LIBRARY,
    "decoy_kernel.py": _LIBRARY,
    "failing_kernel.py": _LIBRARY,
    "forged_samples.py": _OUTSIDE,
    "full_memo.py": _FRESH,
    "global_dtype.py": _STATE,
    "global_flush.py": _STATE,
    "global_threads.py": _STATE,
    "instance_override.py": "an output's own attributes are believed: its __dict__ must be empty",
    "lazy_mode.py": "a function mode that is left on is not noticed: compare the stacks of modes",
    "library_from_native.cpp": _LIBRARY + "; for native code, a profile or torch kept out of reach",
    "no_maximum.cpp": "no distribution has large logits: add one, such as 100 times normal",
    "patched_clock.py": _OUTSIDE,
    "patched_download.py": _WATCHED,
    "patched_timer.cpp": _OUTSIDE,
    "patched_timer.py": _OUTSIDE,
    "phase_by_stack.py": _JUDGED,
    "repeat_counting.cpp": _JUDGED,
    "results_on_disk.py": _FRESH,
    "slow_baseline.py": _WATCHED,
    "slow_first_calls.py": _FRESH,
    "sparse_fingerprint.py": _FRESH,
    "spinning_threads.cpp": _IDLE,
    "static_buffer.py": "a result is not looked at again after a later call",
    "static_map.cpp": _FRESH,
    "survivor.py": _IDLE,
    "view_of_input.py": _FORM,
    "works_in_the_pause.cpp": _FRESH,
    "wrong_strides.py": _FORM,
}

#: Of ``gpu/cheats``, on a GPU.
NOT_YET_ON_GPU: dict[str, str] = {
    "persisting_cache.cu": "what persists in L2 outlives the flush: reset it before each call",
}
