"""Asks git about a checkout, whose own settings may be a stranger's: no command that these name is
started, nothing is fetched, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from portkern.errors import ToolError
from portkern.toolchain.run_tool import run_tool

#: Filters of contents, by whatever name.
_FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
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
    for what git refuses."""
    off = _OFF | {name: _empty(name) for name in _own_filters(folder, timeout_s)}
    return _run(folder, words, _settings(off), timeout_s)


def _own_filters(folder: Path, timeout_s: float) -> Iterator[str]:
    """The names of the settings of filters that the checkout itself has. Those of the user (git
    lfs) are left as they are."""
    asked = ("config", "--includes", "--show-scope", "--null", "--name-only", "--get-regexp")
    try:
        said = _run(folder, (*asked, _FILTERS), _settings(_OFF), timeout_s)
    except ToolError:  # there are none
        return
    words = said.split("\0")
    for scope, name in zip(words[::2], words[1::2], strict=False):
        if scope not in ("system", "global"):
            yield name


def _empty(name: str) -> str:
    return "false" if name.endswith(".required") else ""


def _settings(values: Mapping[str, str]) -> Mapping[str, str]:
    """The variables by which git takes settings before all others."""
    variables = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (name, value) in enumerate(values.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _run(
    folder: Path, words: tuple[str, ...], settings: Mapping[str, str], timeout_s: float
) -> str:
    return run_tool(
        ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],
        whose="own",
        timeout_s=timeout_s,
        env={**_NOTHING_FETCHED, **settings},
        error=ToolError,
    )
