"""How many tokens a reply may have: what is sent with a request, and what is put aside for it.

A cap that is too small cuts a reasoning model off in the midst of its thoughts, and one that is
larger than a model takes is refused: it follows the model where nobody sets one.
"""

from __future__ import annotations

from typing import Final

from portkern.agent.llm.prices import listing
from portkern.agent.llm.role import Role

#: The cap of a model that no list knows; a server of one's own may have no room for more.
UNKNOWN: Final = 8192
#: Put aside for a reply without a cap where no list knows the model.
_WITHOUT: Final = 131_072
#: A list may say that a model writes a million.
_MOST: Final = 65_536


def sent(role: Role) -> int | None:
    """The cap that goes along with a request. None for a model with its own sampling
    (``temperature: null``), whose reply ends where the model or its server ends it."""
    if role.max_tokens is not None or role.own_sampling:
        return role.max_tokens
    return min(_listed(role, role.model) or UNKNOWN, _MOST)


def at_most(role: Role, model: str) -> int:
    """The most tokens that a reply can have, as far as that is known."""
    cap = sent(role)
    return cap if cap is not None else _listed(role, model) or _WITHOUT


def _listed(role: Role, model: str) -> int:
    """The most tokens that a model writes, as litellm's list has it; 0 where it does not."""
    most = listing(model, role.place(model)[0]).get("max_output_tokens")
    return most if isinstance(most, int) and most > 0 else 0
