"""Variables of build files, put in where they are named."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: A variable may be of others, and of itself.
_ROUNDS = 8
#: Characters of a line with its variables put in: a few lines can ask for all memory there is.
MOST_CHARACTERS = 100_000


def expanded(text: str, variable: re.Pattern[str], variables: Mapping[str, str]) -> str:
    """The text with its variables put in; ``variable`` matches one, whose name is its first group.
    Unknown ones stay, as does what would become too long."""
    for _ in range(_ROUNDS):
        found = [match[1] for match in variable.finditer(text) if match[1] in variables]
        if not found or len(text) + sum(len(variables[name]) for name in found) > MOST_CHARACTERS:
            break
        text = variable.sub(lambda match: variables.get(match[1], match[0]), text)
    return text
