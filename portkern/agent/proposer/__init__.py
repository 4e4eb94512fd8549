"""Proposers by name: what becomes of one slot, in calls of models or without any."""

from __future__ import annotations

from collections.abc import Mapping

from portkern.agent import choice
from portkern.agent.axes import Proposer

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


def load(options: Mapping[str, object]) -> Proposer:
    """``options`` are the group ``proposer``'s. Raises ConfigError."""
    made = choice.find("proposer", options, _KINDS, __name__)
    proposer: Proposer = made(choice.checked("proposer", made.options_type, options))
    return proposer
