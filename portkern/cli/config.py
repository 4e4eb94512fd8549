"""Hydra overrides into a verb's options dataclass; no DictConfig goes further."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from portkern.cli import ranges
from portkern.errors import ConfigError, no_such

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    #: What an option takes that is a name, or a list of them.
    Names = str | Sequence[str]
    #: A group of configuration.
    Group = Mapping[str, object]
else:  # OmegaConf has no unions of these: names() checks the first, who takes a group the second
    Names = Group = Any

#: The default of ``conf/<verb>.yaml``, as omegaconf.MISSING is one.
GIVEN: Any = None

Options = TypeVar("Options", bound="DataclassInstance")


def resolve(
    verb: str, schema: type[Options], overrides: Sequence[str], *, free: Sequence[str] = ()
) -> Options:
    """``conf/<verb>.yaml`` and the command line's ``key=value``, checked against ``schema``. Below
    the keys ``free`` anything may be set: who takes them checks them.

    Raises ConfigError in one line: an unknown key with the closest one, a value of another type,
    a number out of the option's range.
    """
    for override in overrides:
        _refuse_renamed(override)
        if "=" not in override:
            raise ConfigError(
                f"Got {override!r}, expected key=value; 'portkern {verb} --help' lists keys"
            )
    ConfigStore.instance().store(name=f"{verb}_schema", node=schema)
    known = [field.name for field in dataclasses.fields(schema)]
    options = _composed(verb, [_loosened(override, free) for override in overrides], known)
    assert isinstance(options, schema)
    for name in known:
        ranges.check(name, getattr(options, name))
    return options


def quoted(text: str) -> str:
    """The text quoted for Hydra, whatever it holds: ``=``, colons, quotes and what else its
    grammar has. What OmegaConf would look up, such as the environment's values, stays the text
    that it is."""
    plain = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)
    return str(QuotedString(plain, Quote.single).with_quotes())


def files_first(overrides: Sequence[str], key: str) -> list[str]:
    """Words that are no ``key=value`` are files, of which ``key`` has a list."""
    files = [text for text in overrides if "=" not in text and not text.startswith("-")]
    others = [text for text in overrides if text not in files]
    return [*([f"{key}=[{','.join(map(quoted, files))}]"] if files else []), *others]


#: What options were called before portkern 0.2, and are now.
_RENAMED = {
    "judge": "critic",
    "models.judge": "models.critic",
    "feedback.sensors": "feedback.sources",
}


def _refuse_renamed(override: str) -> None:
    """Raises ConfigError that names the option as it is called now."""
    key = override.lstrip("+~").partition("=")[0]
    for old, new in _RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            raise ConfigError(f"{old!r} is called {new!r} now; write {new}{override[len(old) :]}")


def group(name: str, choice: str, overrides: Sequence[str] = ()) -> dict[str, object]:
    """One option of a config group by itself, ``conf/<name>/<choice>.yaml``, with the overrides
    below its key. Raises ConfigError."""
    composed = _composed(f"{name}/{choice}", [f"++{override}" for override in overrides])
    return {str(key): value for key, value in composed[name].items()}


def _composed(config: str, overrides: Sequence[str], known: Sequence[str] = ()) -> Any:
    """``known`` are the options that an unknown one may have been meant for."""
    try:
        chosen = _set_alone(config, overrides, known)
        return OmegaConf.to_object(_compose(config, overrides) if chosen is None else chosen)
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # the last: list.x=1
        raise _explain(error, config, known) from error


def _compose(config: str, overrides: Sequence[str]) -> DictConfig:
    with initialize_config_module("portkern.conf", version_base="1.3"):
        return compose(config, overrides=list(overrides))


def _set_alone(config: str, overrides: Sequence[str], known: Sequence[str]) -> DictConfig | None:
    """Returns what Hydra would compose, where the overrides do nothing but set ``known`` options:
    it was composed once without them, which takes ten times as long. None for all else, such as a
    choice of a group, and for what cannot be set, of which Hydra says why."""
    bare = _BARE.get(config)
    if bare is None:
        return None
    options = copy.deepcopy(bare)
    try:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            key = override.key_or_group
            if key not in known or not _sets(override) or OmegaConf.is_dict(options[key]):
                return None
            OmegaConf.update(options, key, override.value(), merge=True)
    except (HydraException, OmegaConfBaseException):
        return None
    return options


def _sets(override: Override) -> bool:
    plain = override.type is OverrideType.CHANGE and override.package is None
    is_group = (files("portkern.conf") / override.key_or_group).is_dir()
    return plain and not override.is_sweep_override() and not is_group


#: What is composed of a verb's file without overrides, where :func:`compose_ahead` was called.
_BARE: dict[str, DictConfig] = {}
_OF_EACH_KIND = ["a=b", "a=b_1@c", "a=true", "a=1", "a=0.5", "a=[b,c]", "a=['b/c.d']", "a=''"]


def compose_ahead(verb: str, schema: type[DataclassInstance]) -> None:
    """Does most of what :func:`resolve` does for this verb, once for all calls that come later."""
    ConfigStore.instance().store(name=f"{verb}_schema", node=schema)
    _BARE[verb] = _compose(verb, [])
    OverridesParser.create().parse_overrides(_OF_EACH_KIND)  # its tables grow by what it reads


def _loosened(override: str, free: Sequence[str]) -> str:
    """Hydra takes new keys that are marked with ``++``: below a key, or in a mapping for it."""
    below = tuple(form for key in free for form in (f"{key}.", f"{key}={{"))
    return f"++{override}" if override.startswith(below) else override


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The jobs of a Hydra multirun, in its order: each combination of ``key=a,b``, ``choice()``,
    ``range()`` and ``glob()``. Raises ConfigError for what its grammar does not take."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    lists = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [text]
        for override, text in zip(parsed, overrides, strict=True)
    ]
    return [list(job) for job in itertools.product(*lists)]


def names(value: object) -> list[str]:
    """A name or a list of names, as options take them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return [str(item) for item in value]
    raise ConfigError(f"Got {value!r}, expected a name or a list of names such as [relu,softmax]")


#: How OmegaConf ends what it says of a value of another type, and what is expected.
_EXPECTED = {
    "converted to Integer": "a whole number",
    "converted to Float": "a number",
    "not a valid bool": "true or false",
}


def _explain(error: Exception, config: str, known: Sequence[str]) -> ConfigError:
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        name, _, choice = error.missing_cfg_file.partition("/")
        return no_such(name, choice, error.options)
    text = " ".join(str(error).split())
    cause = " ".join(str(error.__cause__ or "").split())
    unknown = re.search(r"Key '([^']+)' (?:is )?not in", f"{text} {cause}")
    if unknown:
        return no_such("option", unknown[1], known)
    missing = re.search(r"missing mandatory value: (\w+)", f"{text} {cause}")
    if missing:
        help_ = f"portkern {config.partition('/')[0]} --help"
        return ConfigError(f"{missing[1]}= is required; '{help_}' says what it takes")
    if isinstance(error, OverrideParseException):
        return _unread(error.override, error.message or "")
    for end, expected in _EXPECTED.items():
        form = rf"override (\S+?)=.*? Value '(.*?)' .*{end}"
        if merged := re.search(form, f"{text} {cause}"):
            got = f"{merged[1].lstrip('+')}={merged[2]}"
            return ConfigError(f"Got {got}, expected {expected}")
    several = re.search(r"Ambiguous value for argument '([^=']+)=(.*?)' 1\. ", text)
    if several:
        return _unread(f"{several[1]}={several[2]}", "a comma outside of brackets and quotes")
    return ConfigError(f"{text} {cause}".strip().partition(" full_key")[0])


def _unread(override: str, why: str) -> ConfigError:
    """The error of an option whose value the grammar does not take."""
    key, _, value = override.lstrip("+").partition("=")
    cause = " ".join(why.partition("See https")[0].split())
    return ConfigError(
        f"Cannot read {override!r}: {cause}; a list is {key}=[a,b], and a text with blanks, "
        "commas, brackets or quotes is quoted for the shell and for portkern: "
        f'"{key}={quoted(value.strip(chr(39)))}"'
    )
