"""API keys: named in the configuration, read where they are used, told to nobody else."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from portkern.errors import ConfigError

#: Variables whose values are taken for secrets, whoever set them.
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)
#: A shorter value is likelier to be a word of the text that it would be taken out of.
_SHORTEST = 8
#: A key as services repeat it in their errors, with stars in it or not.
_ECHOED = re.compile(r"(?i)\b(bearer\s+|sk-|api[-_ ]?key\s*[\"':=]+\s*)[\w.*~+/-]{6,}=*")


def lookup(variable: str) -> str:
    """Raises ConfigError where it is not set."""
    value = os.environ.get(variable, "")
    if not value:
        raise ConfigError(
            f"The environment variable {variable!r} is not set, which a model's api_key_env names; "
            f"export {variable}=…"
        )
    return value


def redact(text: str, also: Collection[str] = ()) -> str:
    """The text with the variables' names in place of the values of secrets; ``also`` names
    further variables."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and (name in also or _SECRET.search(name)):
            text = text.replace(value, f"[{name}]")
    return text


def redact_error(text: str, also: Collection[str] = ()) -> str:
    """A service's error message without keys: the service may repeat a key in part."""
    return _ECHOED.sub(lambda match: f"{match[1]}[…]", redact(text, also))
