"""Critics by name: who interprets what was measured, with a model or without.

===================== ==============================================================================
``none``              nobody
``rules``             thresholds and remedies from ``rules.yaml``; no model is asked
``bottleneck``        the one defect or the one bottleneck, and the one thing to do
``reflector``         what went wrong or limits it, and lessons for later attempts
``critic``            raw feedback in words that help, or instructions for the next attempt
``prefilter``         verifiers vote on kernels before any is run
``reward_checker``    whether a large speedup is plausible
``supervisor``        where else to look when a run stands still
``chain``             several of these
===================== ==============================================================================

A model sees the code of the attempt that it reads and what was measured of that very code.
"""

from __future__ import annotations

from collections.abc import Mapping

from portkern.agent import choice
from portkern.agent.axes import Critic

_KINDS = {
    "bottleneck": "bottleneck:OneBottleneck",
    "chain": "chain:CriticChain",
    "critic": "critic:FeedbackCritic",
    "none": "silent:Silent",
    "prefilter": "prefilter:Prefilter",
    "reflector": "reflector:Reflector",
    "reward_checker": "reward_checker:RewardChecker",
    "rules": "rules:RuleCritic",
    "supervisor": "supervisor:Supervisor",
}


def names() -> list[str]:
    return sorted(_KINDS)


def load(options: Mapping[str, object]) -> Critic:
    """``options`` are the group ``critic``'s. Raises ConfigError."""
    made = choice.find("critic", options, _KINDS, __name__)
    chosen = choice.checked("critic", made.options_type, options)
    if chosen.kind != "chain":
        critic: Critic = made(chosen)
        return critic
    members = [{"kind": member} if isinstance(member, str) else member for member in chosen.chain]
    chain: Critic = made(chosen, [load(member) for member in members])
    return chain
