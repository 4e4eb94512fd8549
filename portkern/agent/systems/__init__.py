"""Parts that one published system alone needs, a module for each, which its preset puts together.

Only its preset names them: they have no file in ``conf/strategy`` and its neighbours, and their
options stand in ``conf/preset``. A part that two presets use is a kind of its axis and lives there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

#: The kinds by axis (of the memory, by option), and where each is: ``module:name`` in this package.
PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "strategy": {
        "accelopt": "accelopt:PlanBeam",
        "adaexplore": "adaexplore:Steps",
        "autokernel": "autokernel:KeepOrRevert",
        "cupilot": "cupilot:StrategyEvolution",
        "geak_v4": "geak_v4:TeamRounds",
        "kernelfoundry": "kernelfoundry:Foundry",
        "kernelskill": "kernelskill:SkillRounds",
        "ksearch": "ksearch:WorldSearch",
    },
    "proposer": {
        "adaexplore": "adaexplore:Stepper",
        "cuda_agent": "cuda_agent:MilestoneAgent",
        "cupilot": "cupilot:Strategist",
        "geak_v4": "geak_v4:Team",
        "kernel_scientist": "kernel_scientist:Scientist",
        "kernelblaster": "kernelblaster:Blaster",
        "kernelskill": "kernelskill:Skilled",
    },
    "critic": {
        "accelopt": "accelopt:Pairs",
        "adaexplore": "adaexplore:Ruling",
        "cupilot": "cupilot:Alignment",
        "kernelfoundry": "kernelfoundry:Prompter",
        "ksearch": "ksearch:Keeper",
        "swizzleperf": "swizzleperf:Locality",
    },
    "history": {
        "accelopt": "accelopt:experience",
        "geak_v4": "geak_v4:ledger",
        "kernel_scientist": "kernel_scientist:table",
        "kernelfoundry": "kernelfoundry:guidance",
        "ksearch": "ksearch:world",
        "swizzleperf": "swizzleperf:tries",
    },
    "knowledge": {
        "adaexplore": "adaexplore:FailureRules",
        "kernelblaster": "kernelblaster:KnowledgeBase",
        "swizzleperf": "swizzleperf:Topology",
    },
}


def find(axis: str, kind: str) -> Any:
    """Imports a part. Raises KeyError for one that is not of the axis."""
    module, _, name = PARTS[axis][kind].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
