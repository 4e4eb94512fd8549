"""The models that ``portkern compare`` is asked about: who they are, and how each is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from portkern.agent.budget import Meter
from portkern.agent.llm.completion import litellm
from portkern.agent.llm.models import Models
from portkern.agent.llm.prices import Prices
from portkern.agent.llm.role import DEFAULT, Role
from portkern.agent.llm.role import roles as roles_of
from portkern.agent.run import named
from portkern.cli.config import group
from portkern.cli.verbs import generate
from portkern.cli.verbs.generate import AXES, GenerateOptions
from portkern.errors import ConfigError, no_such
from portkern.experiment.baseline import TEMPERATURE
from portkern.experiment.compare.task import ComparedModel

SETTINGS = "settings"
#: Strategies of one kernel: their samples are single requests.
ONE_SHOT = ("single", "best_of_n")


def read(models: object) -> dict[str, dict[str, object]]:
    """The options of each model by its name, as ``models=`` gives them. Raises ConfigError."""
    if isinstance(models, str) and models:
        models = [models]
    if isinstance(models, Mapping):
        found = {str(name): _options(str(name), given) for name, given in models.items()}
    elif isinstance(models, list) and all(isinstance(name, str) for name in models):
        twice = next((name for name, count in Counter(models).items() if count > 1), None)
        if twice:
            raise ConfigError(
                f"models= has {twice!r} twice; name each once, or give them names of their own: "
                f"models={{first: {twice}, second: {{model: {twice}, temperature: 0.2}}}}"
            )
        found = {name: {"model": name} for name in models}
    else:
        found = {}
    if not found:
        raise ConfigError(
            f"Got models={models!r}, expected models such as [openai/gpt-5,ollama/qwen3], or "
            "{NAME: {model: openai/x, api_base: …}}"
        )
    return found


def _options(name: str, given: object) -> dict[str, object]:
    if isinstance(given, str):
        return {"model": given}
    if given is None or isinstance(given, Mapping):
        return {"model": name, **(given or {})}
    raise ConfigError(f"Got {given!r} as model {name!r}, expected a litellm id or its options")


#: The parts of a mapping on the command line: what nests, what is quoted, and what divides.
_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|[{}\[\](),:]|[^'"{}\[\](),:]+""")


def named_twice(override: str) -> str:
    """The name that stands twice in ``models={NAME: …, NAME: …}``, of which Hydra would keep the
    last; empty where none does."""
    names: list[str] = []
    depth, name, named = 0, "", True
    for token in _TOKEN.findall(override.partition("=")[2]):
        depth += (token in "{[(") - (token in "}])")
        if depth == 1 and token in "{,":
            name, named = "", False
        elif depth == 1 and token == ":" and not named:
            names.append(name.strip())
            named = True
        elif depth == 1 and not named:
            name += token.strip("'\"")
    return next((one for one, count in Counter(names).items() if count > 1), "")


def settings(
    overrides: Sequence[str], known: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """The settings ``settings.NAME.KEY=VALUE`` by model: options of its role, and overrides of
    its axes. Raises ConfigError."""
    roles: dict[str, dict[str, str]] = {name: {} for name in known}
    axes: dict[str, list[str]] = {name: [] for name in known}
    for override in overrides:
        path, equals, value = override.removeprefix(f"{SETTINGS}.").partition("=")
        # Names of models have dots of their own.
        fitting = [name for name in known if path.startswith(f"{name}.")]
        if not fitting or not equals:
            raise no_such("model", path.rpartition(".")[0] or path, known)
        name = max(fitting, key=len)
        key = path.removeprefix(f"{name}.")
        if key in Role.model_fields:
            roles[name][key] = value
        elif key.partition(".")[0] in AXES:
            axes[name].append(f"{key}={value}")
        else:
            raise no_such(f"setting of {name}", key, [*Role.model_fields, *AXES])
    return roles, axes


def compared(
    name: str,
    own: Mapping[str, object],
    options: GenerateOptions,
    *,
    donor: str,
    n: int,
    at_once: int,
) -> ComparedModel:
    """``own`` are the options of its role, over those of ``options``. Raises ConfigError."""
    axes = {axis: dict(getattr(options, axis) or {}) for axis in AXES}
    if donor:
        axes["proposer"] = group("proposer", "translate", [f"proposer.donor={donor}"])
    if axes["proposer"]["kind"] == "catalogue":
        raise ConfigError("proposer=catalogue asks no model, so that there is nothing to compare")
    if axes["strategy"]["kind"] in ONE_SHOT:
        # Whatever comes back is the sample: a second question would be another one.
        axes["proposer"]["asks"] = 1
    roles = dict(options.models or {})
    coder = {**_plain(roles.get(DEFAULT)), **own}
    of_its_own = "temperature" in coder and coder["temperature"] is None  # as it was trained
    if n > 1 and not coder.get("temperature") and "temperature" not in own and not of_its_own:
        coder["temperature"] = TEMPERATURE
    at_once = int(coder.pop("concurrency", at_once))
    model = ComparedModel(name, {**roles, DEFAULT: coder}, axes, at_once)
    _check(model)
    return model


def _plain(role: object) -> dict[str, Any]:
    return dict(role) if isinstance(role, Mapping) else {}


def _check(model: ComparedModel) -> None:
    """Raises ConfigError for a model of no known provider, and for one that others answer for."""
    library = litellm()
    for role in roles_of(named(model.roles)).values():
        if role.fallbacks:
            raise ConfigError(
                f"{model.name} has fallbacks={[*role.fallbacks]}, which would answer in its name; "
                "compare them as models of their own"
            )
        if role.is_agent:
            continue
        try:
            known = library.get_llm_provider(role.model)[0]
        except library.BadRequestError:
            known = ""
        if not known:
            raise ConfigError(
                f"No provider of the model {role.model!r} is known; expected litellm's "
                "PROVIDER/MODEL, such as openai/gpt-5 or ollama/qwen3"
            )


def check_payable(model: ComparedModel, meter: Meter, prices: Mapping[str, object]) -> None:
    """Raises ConfigError for a key that is not set, and for a price that a budget needs."""
    Models(roles_of(named(model.roles)), meter=Meter(within=meter), prices=Prices.of(prices))


def options_of(preset: str, op: str, given: Sequence[str], axes: Sequence[str]) -> GenerateOptions:
    """The options that ``portkern generate`` would read. Raises ConfigError."""
    folder = files("portkern.conf") / "preset"
    known = [file.name.removesuffix(".yaml") for file in folder.iterdir()]
    if preset not in known:
        raise no_such("preset", preset, known)
    return generate.read([f"preset={preset}", f"op={op}", *given, *axes])
