"""Judges by name: who interprets what was measured, with a model or without.

===================== ==============================================================================
``none``              nobody
``rules``             thresholds and remedies from ``rules.yaml``; no model is asked
``bottleneck``        the one defect or the one bottleneck, and the one thing to do
``reflector``         what went wrong or limits it, and lessons for later attempts
``critic``            raw feedback in words that help, or instructions for the next attempt
``prefilter``         verifiers vote on kernels before any is run
``reward_checker``    whether a large speedup is plausible
``chain``             several of these
===================== ==============================================================================

A model sees the code of the attempt that it judges and what was measured of that very code.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from portkern.agent.axes import Judge
from portkern.errors import ConfigError, no_such

_KINDS = {
    "bottleneck": "bottleneck:OneBottleneck",
    "chain": "chain:Chain",
    "critic": "critic:Critic",
    "none": "silent:Silent",
    "prefilter": "prefilter:Prefilter",
    "reflector": "reflector:Reflector",
    "reward_checker": "reward_checker:RewardChecker",
    "rules": "rules:Rules",
}


def names() -> list[str]:
    return sorted(_KINDS)


def load(options: Mapping[str, Any]) -> Judge:
    """``options`` are the group ``judge``'s. Raises ConfigError."""
    kind = options.get("kind", "")
    if kind not in _KINDS:
        raise no_such("judge", str(kind), _KINDS)
    module, _, name = _KINDS[kind].partition(":")
    made = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    unknown = set(options) - set(made.options_type.model_fields)
    if unknown:
        raise no_such(f"option of judge {kind}", min(unknown), made.options_type.model_fields)
    try:
        chosen = made.options_type(**options)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"judge.{field}: got {first['input']!r}; {first['msg']}") from error
    if kind != "chain":
        judge: Judge = made(chosen)
        return judge
    members = [{"kind": one} if isinstance(one, str) else one for one in chosen.chain]
    chain: Judge = made(chosen, [load(one) for one in members])
    return chain
