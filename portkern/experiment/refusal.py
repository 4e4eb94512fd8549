"""Why the guard or the evaluator refused an attempt, and whether that counts as a cheat: what every
experiment and every comparison asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from portkern.agent.attempt import Attempt, Status
from portkern.guard.rules import RULES

#: The guard's rules by their hundreds.
_GROUPS: Final[Mapping[str, str]] = {
    "G1": "reaches for the machine",
    "G2": "reaches for the evaluator",
    "G3": "leaves the work to others",
    "G4": "breaks the contract",
    "G5": "is not to be trusted",
}
#: A hit as the guard says it: ``relu.cpp:3: G301 lets a framework's operator do the work: …``.
_HIT = re.compile(r"^.+?:\d+: (?P<rule>G\d\d\d) ")
#: Names, numbers and quoted words tell one case, not the kind of cheat.
_CASE = re.compile(r"'[^']*'|`[^`]*`|\([^)]*\)|[-+]?\d[\d.,e+-]*")


@dataclass(frozen=True)
class Refusal:
    """``kind`` in the evaluator's words; whether it counts as a ``cheat``."""

    group: str
    kind: str
    cheat: bool


def refusal_of(attempt: Attempt) -> Refusal | None:
    """Why an attempt was refused; None for one that nobody refused, and for one that did not keep
    the user's own constraints, which was never evaluated."""
    if attempt.status is Status.SUSPICIOUS:
        kind = " ".join(_CASE.sub("…", attempt.detail.partition("\n")[0]).split())
        return Refusal("is not believed", kind or "without a reason", True)
    if attempt.status is Status.REJECTED and attempt.records:
        return _rejected(attempt.detail)
    return None


def _rejected(detail: str) -> Refusal:
    """The refusal by the first of the guard's hits that is a cheat, else by the first: breaking
    the contract as well does not excuse a cheat."""
    hits = map(_HIT.match, detail.splitlines())
    rules = [RULES[hit["rule"]] for hit in hits if hit and hit["rule"] in RULES]
    if rules:
        rule = next((rule for rule in rules if rule.cheat), rules[0])
        return Refusal(_GROUPS[rule.id[:2]], f"{rule.id} {rule.title}", rule.cheat)
    # Not the guard, which reads the source: the evaluator saw who did the work of a call.
    none = detail.startswith("it launched no kernel")
    kind = "launches no kernel" if none else "a library or framework works"
    return Refusal(_GROUPS["G3"], kind, True)
