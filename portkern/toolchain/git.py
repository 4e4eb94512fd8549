"""Asks git about a checkout, whose own settings may be a stranger's: no command that these name is
started, nothing is fetched, and nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from portkern.errors import ToolError
from portkern.toolchain.run_tool import run_tool

#: Filters of contents, by whatever name.
_FILTERS = re.compile(r"filter\..*\.(clean|smudge|process|required)", re.DOTALL)
_OFF = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "log.showSignature": "false"}
#: A promised object that is not there is fetched by whatever the settings say.
_NOTHING_FETCHED = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}


def run_git(folder: Path, *words: str, timeout_s: float = 10.0) -> str:
    """The output of git in that folder. Raises ToolError where there is no git or no checkout, and
    for what git refuses, also for a git that is too old."""
    off = _OFF | {name: _empty(name) for name in _own_filters(folder, timeout_s)}
    return _run(folder, words, _settings(off), timeout_s)


def _own_filters(folder: Path, timeout_s: float) -> Iterator[str]:
    """The names of the settings of filters that the checkout itself has. Those of the user (git
    lfs) are left as they are."""
    asked = ("config", "--list", "--includes", "--show-scope", "--null", "--name-only")
    words = _run(folder, asked, _settings(_OFF), timeout_s).split("\0")
    names = set(zip(words[::2], words[1::2], strict=False))
    if ("command", "core.hookspath") not in names:
        raise ToolError(
            "git 2.31 or newer is needed: this one reads no settings from variables, so that what "
            "a checkout names as commands could not be switched off"
        )
    for scope, name in sorted(names):
        if scope not in ("system", "global") and _FILTERS.fullmatch(name):
            yield name


def _empty(name: str) -> str:
    return "false" if name.endswith(".required") else ""


def _settings(values: Mapping[str, str]) -> Mapping[str, str]:
    """The variables by which git takes settings before those of files; the user's own of this kind
    stay, and come first."""
    pairs = [*_of_the_user(), *values.items()]
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (name, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _of_the_user() -> Iterator[tuple[str, str]]:
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    for number in range(int(count) if count.isascii() and count.isdigit() else 0):
        name = os.environ.get(f"GIT_CONFIG_KEY_{number}")
        value = os.environ.get(f"GIT_CONFIG_VALUE_{number}")
        if name is None or value is None:  # git itself would refuse all of them
            return
        yield name, value


def _run(
    folder: Path, words: tuple[str, ...], settings: Mapping[str, str], timeout_s: float
) -> str:
    return run_tool(
        ["git", "-C", str(folder), *words],
        whose="own",
        timeout_s=timeout_s,
        env={**_NOTHING_FETCHED, **settings},
        error=ToolError,
        keeps_warnings=False,
    )
