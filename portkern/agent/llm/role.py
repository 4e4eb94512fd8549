"""Which model plays a role, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from portkern.agent.budget import GenerationBudget
from portkern.errors import ConfigError, no_such
from portkern.spec.foreign_text import place_of

#: Plays every role that has no model of its own.
DEFAULT: Final = "coder"
#: Begins what is not a model's id but the command of a coding agent.
AGENT: Final = "agent:"
#: What ``extra`` has for one: variables and files of this machine that it gets.
OF_AGENTS: Final = ("env", "sees")
#: What ``extra`` cannot set, since it has its own option or would change what a call is.
_OWN = (
    "model messages api_base base_url timeout request_timeout num_retries max_retries seed "
    "temperature top_p max_tokens stream n drop_params fallbacks"
).split()
_SECRET = re.compile(r"(?i)api[-_]?key|authorization|password|secret|(^|[-_])token$")


class Role(BaseModel):
    """``model`` is litellm's id, ``api_base`` the service's address where it is not the provider's
    own, ``api_key_env`` the name of the environment variable that holds the key; without it litellm
    takes the provider's usual one. A service at an ``api_base`` is only sent a key that was named.

    ``fallbacks`` are asked in turn when ``retries`` repetitions brought no answer; those of the
    same provider at the same ``api_base``. ``max_tokens`` follows the model where it is not given,
    see :mod:`.caps`. ``timeout_s`` is for one request, ``backoff_s`` the
    longest first pause before a repetition. ``tokens`` and ``usd`` limit this role within the run's
    budget; ``extra`` is sent along (``{reasoning_effort: high}``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1)
    api_base: str = ""
    api_key_env: str = ""
    temperature: float | None = Field(default=0.7, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    timeout_s: float = Field(default=300.0, gt=0)
    concurrency: int = Field(default=4, gt=0)
    retries: int = Field(default=4, ge=0)
    backoff_s: float = Field(default=2.0, ge=0)
    fallbacks: tuple[str, ...] = ()
    tokens: int | None = Field(default=None, ge=0)
    usd: float | None = Field(default=None, ge=0)
    extra: dict[str, object] = {}

    @field_validator("extra")
    @classmethod
    def _no_secrets(cls, extra: dict[str, object]) -> dict[str, object]:
        for name in _names(extra):
            if _SECRET.search(name):
                raise ValueError(f"{name!r} looks like a key; name its variable in api_key_env")
        taken = sorted(set(_OWN) & set(extra))
        if taken:
            raise ValueError(f"{taken[0]!r} cannot be sent along: portkern sets it")
        return extra

    @field_validator("extra")
    @classmethod
    def _of_agents(cls, extra: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        """Checks an agent's extra: it names in lists all that the agent gets."""
        model = str(info.data.get("model", ""))
        if not any(one.startswith(AGENT) for one in (model, *info.data.get("fallbacks", ()))):
            return extra
        for name in sorted(set(extra) & set(OF_AGENTS)):
            value = extra[name]
            listed = [value] if isinstance(value, str) else value
            if not isinstance(listed, list | tuple) or not all(
                isinstance(one, str) for one in listed
            ):
                raise ValueError(f"{name!r} of an agent: expected a list of texts")
        unknown = sorted(set(extra) - set(OF_AGENTS))
        if unknown and model.startswith(AGENT):
            raise ValueError(f"{unknown[0]!r} is not sent to an agent; expected env or sees")
        return extra

    @classmethod
    def of(cls, name: str, value: str | Mapping[str, object]) -> Self:
        """``value`` as configured: options, or just the model. Raises ConfigError."""
        options = {"model": value} if isinstance(value, str) else dict(value)
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            first = error.errors()[0]
            field = place_of(first["loc"])
            if first["type"] == "extra_forbidden":
                raise no_such(f"option of models.{name}", field, cls.model_fields) from None
            # Not the value itself: what was given by mistake may be a key.
            reason = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"models.{name}.{field}: {reason}") from None

    @property
    def budget(self) -> GenerationBudget:
        return GenerationBudget(tokens=self.tokens, usd=self.usd)

    @property
    def is_agent(self) -> bool:
        """Whether a coding agent plays it, which ``usd`` allows so much for each request."""
        return self.model.startswith(AGENT)

    @property
    def own_sampling(self) -> bool:
        """Whether the model samples as its own server has it."""
        return self.temperature is None

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model, *self.fallbacks)

    def place(self, model: str) -> tuple[str, str]:
        """``api_base`` and ``api_key_env`` for this model: a fallback at another provider has its
        own."""
        same = model.partition("/")[0] == self.model.partition("/")[0]
        return (self.api_base, self.api_key_env) if same else ("", "")


def roles(options: Mapping[str, str | Mapping[str, object] | None]) -> dict[str, Role]:
    """Reads roles as ``models`` of a configuration holds them. Raises ConfigError."""
    return {name: Role.of(name, value) for name, value in options.items() if value}


def _names(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names(inner)
