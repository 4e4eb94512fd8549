"""One request to a model through litellm, and what came of it."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol

from portkern.agent.axes import PromptMessage
from portkern.agent.llm import keys, parts
from portkern.errors import ConfigError

#: Statuses below 500 after which the same request may succeed.
_PASSING = (408, 409, 425, 429)
#: litellm repeats the class of an error, and whose it is, before what the service said.
_PREFIX = re.compile(r"^(litellm\.)?(\w+(Error|Exception|Timeout)( Error)?( ?[:-] )\s*)+")
_LONGEST_REASON = 300
#: What a reply without an answer ended with, as litellm says it.
REFUSED, TOOL_CALLS = "content_filter", "tool_calls"
#: The words of llama.cpp and others, which litellm does not know.
_TOO_LONG = re.compile(r"(?i)context (length|size|window)")


@dataclass(frozen=True)
class Endpoint:
    """The place of a model: an address and the variable of its key, each empty for what litellm
    takes by itself. ``role`` is the one that it is configured in."""

    model: str
    role: str
    api_base: str = ""
    api_key_env: str = ""


@dataclass(frozen=True)
class Completion:
    """Tokens are None where the service did not count them; ``usd`` is litellm's idea."""

    text: str
    reasoning: str
    finish: str
    snapshot: str
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    seconds: float


@dataclass(frozen=True)
class CompletionFailure:
    """``again``: the same request may succeed later, not before ``after_s`` where the service said
    so. ``lost``: it may have been served and charged all the same. ``down``: the service said so or
    said nothing, so that this request is not at fault. ``final``: see ModelError."""

    reason: str
    remedy: str = ""
    again: bool = False
    after_s: float | None = None
    lost: bool = False
    down: bool = False
    final: bool = False


class Complete(Protocol):
    """Sends a request once, as :func:`complete` does."""

    async def __call__(
        self,
        place: Endpoint,
        messages: Sequence[PromptMessage],
        params: Mapping[str, object],
        *,
        timeout_s: float,
    ) -> Completion | CompletionFailure: ...


@lru_cache
def litellm() -> ModuleType:
    """The library, which prints nothing. Raises ConfigError where it is not installed.

    :mod:`portkern` has set the variables that it reads at its import.
    """
    try:
        with warnings.catch_warnings():  # pydantic's, of litellm's own types
            warnings.simplefilter("ignore")
            import litellm as library

            library.ModelResponse()  # they are built when the first response is
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Asking a model needs {error.name}, which is not installed; "
            "pip install 'portkern[llm]'"
        ) from error
    library.suppress_debug_info = True  # it prints to stdout
    library.telemetry = False
    parts.put_aside(library.Message)
    # The SDK serializes what a service sent, whether or not it has the types that it should have.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # httpx tells each URL at level INFO, and some providers take the key as a part of it.
    for name in ("httpx", "httpcore", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return library


async def complete(
    place: Endpoint,
    messages: Sequence[PromptMessage],
    params: Mapping[str, object],
    *,
    timeout_s: float,
) -> Completion | CompletionFailure:
    """Sent once. Raises ConfigError for a key that is not set."""
    library = litellm()
    from openai import OpenAIError  # of which all of litellm's are

    start = time.perf_counter()
    try:
        # litellm's own timeout is one of silence: a service that trickles would go on for ever.
        async with asyncio.timeout(timeout_s):
            response = await library.acompletion(
                model=place.model,
                messages=[
                    {"role": message.role, "content": message.content} for message in messages
                ],
                timeout=timeout_s,
                num_retries=0,
                max_retries=0,
                drop_params=True,
                **_address(place),
                **params,
            )
    except (OpenAIError, TimeoutError) as error:
        return _failure(error, place, timeout_s)
    return _answer(response, place, time.perf_counter() - start)


def _address(place: Endpoint) -> dict[str, str]:
    arguments = {"api_base": place.api_base} if place.api_base else {}
    if place.api_key_env:
        return {**arguments, "api_key": keys.lookup(place.api_key_env)}
    # Otherwise litellm sends the provider's key to whatever server this is.
    return {**arguments, "api_key": "none"} if arguments else {}


def _answer(response: Any, place: Endpoint, seconds: float) -> Completion:
    choice = response.choices[0] if response.choices else None
    message = choice.message if choice else None
    content, reasoning, tools = (
        getattr(message, name, None) for name in ("content", "reasoning_content", "tool_calls")
    )
    finish = str(choice.finish_reason or "") if choice else ""
    sent = parts.of(message)
    content, reasoning = content or sent.text, reasoning or sent.reasoning
    refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    refusal, tools = refusal or sent.refusal, tools or sent.tools
    if not content and (refusal or tools):
        finish = REFUSED if refusal else TOOL_CALLS
    # litellm counts 0 where the service sent no usage.
    usage = getattr(response, "usage", None)
    counted = usage if usage and usage.prompt_tokens else None
    return Completion(
        text=_text(content or refusal, place),
        reasoning=_text(reasoning, place),
        finish=finish,
        snapshot=str(response.model or ""),
        tokens_in=counted.prompt_tokens if counted else None,
        tokens_out=counted.completion_tokens if counted else None,
        usd=response._hidden_params.get("response_cost"),
        seconds=round(seconds, 6),
    )


def _text(value: object, place: Endpoint) -> str:
    """The text of a model without keys and without halves of characters: a model may repeat what
    it should not have been told."""
    text = value if isinstance(value, str) else ""
    return keys.redact(text.encode(errors="replace").decode(), (place.api_key_env,))


# ---- what went wrong


def _failure(error: Exception, place: Endpoint, timeout_s: float) -> CompletionFailure:
    library, model, name = litellm(), place.model, f"models.{place.role}"
    status = getattr(error, "status_code", None) or 0
    headers = getattr(error, "litellm_response_headers", None)
    silent = headers is None
    if isinstance(error, TimeoutError) or (silent and isinstance(error, library.Timeout)):
        return CompletionFailure(
            f"{model}: no answer within {round(timeout_s, 1):g} s",
            f"raise {name}.timeout_s",
            again=True,
            lost=True,
            down=True,
        )
    reason = f"{model}: {_reason(error, place)}"
    missing = _missing_keys(place)
    if missing or status in (401, 403):
        variable = place.api_key_env or " or ".join(missing)
        remedy = (
            f"set the environment variable {variable} to a key that this model takes"
            if variable
            else f"name the environment variable that holds its key in {name}.api_key_env"
        )
        return CompletionFailure(reason, remedy, final=True)
    too_long = isinstance(error, library.ContextWindowExceededError)
    if too_long or (status == 400 and _TOO_LONG.search(reason)):
        remedy = f"show it less, or set {name}.model to one with a larger context window"
        return CompletionFailure(f"{reason} (the prompt is longer than its context window)", remedy)
    if status == 404:
        remedy = f"check {name}.model={model} and its api_base"
        return CompletionFailure(reason, remedy, final=True)
    if status < 500 and status not in _PASSING:
        return CompletionFailure(reason, f"check {name}.model={model} and what is set beside it")
    after_s = _retry_after(headers or {})
    if after_s is not None:
        reason += f" (it asks to wait {round(after_s, 1):g} s)"
    lost = silent and status >= 500 and not _never_sent(error)
    return CompletionFailure(
        reason, again=True, after_s=after_s, lost=lost, down=not silent or _is_of_http(error)
    )


def _reason(error: Exception, place: Endpoint) -> str:
    text = str(error).partition("\nTraceback (most recent call last)")[0]
    text = " ".join(keys.redact_error(text, (place.api_key_env,)).split())
    said = _PREFIX.sub("", text)[:_LONGEST_REASON]
    status = getattr(error, "status_code", None)
    return f"{type(error).__name__}{f' {status}' if status else ''}: {said}"


def _missing_keys(place: Endpoint) -> list[str]:
    """Variables of which one should be set: without a key, some providers' modules raise what
    looks like a fault of the service."""
    if place.api_base or place.api_key_env:
        return []
    missing: list[str] = litellm().validate_environment(model=place.model)["missing_keys"]
    return missing if all(name.endswith("_API_KEY") for name in missing) else []


def _never_sent(error: BaseException) -> bool:
    import httpx

    return any(
        isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout) for cause in _chain(error)
    )


def _is_of_http(error: BaseException) -> bool:
    """A response that cannot be read is not: the same request may always be answered by it."""
    import httpx

    return any(isinstance(cause, httpx.HTTPError) for cause in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait, from a header that holds them or a date; None without either."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max((date.astimezone(UTC) - datetime.now(UTC)).total_seconds(), 0.0)
