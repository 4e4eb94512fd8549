"""Proposers by name: what becomes of one slot, in calls of models or without any."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from portkern.agent.axes import Proposer
from portkern.errors import ConfigError, no_such

_KINDS = {
    "catalogue": "catalogue:Catalogue",
    "contrastive": "direct:Contrastive",
    "direct": "direct:Direct",
    "evolve": "evolve:Evolve",
    "ideas_then_code": "ideas:IdeasThenCode",
    "macro_micro": "planned:MacroMicro",
    "plan_code_debug": "planned:PlanCodeDebug",
    "tool_agent": "tool_agent:ToolAgent",
    "translate": "direct:Translate",
    "universal": "direct:Universal",
}


def names() -> list[str]:
    return sorted(_KINDS)


def load(options: Mapping[str, Any]) -> Proposer:
    """``options`` are the group ``proposer``'s. Raises ConfigError."""
    kind = options.get("kind", "")
    if kind not in _KINDS:
        raise no_such("proposer", str(kind), _KINDS)
    module, _, name = _KINDS[kind].partition(":")
    made = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    unknown = set(options) - set(made.options_type.model_fields)
    if unknown:
        raise no_such(f"option of proposer {kind}", min(unknown), made.options_type.model_fields)
    try:
        proposer: Proposer = made(made.options_type(**options))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"proposer.{field}: got {first['input']!r}; {reason}") from error
    return proposer
