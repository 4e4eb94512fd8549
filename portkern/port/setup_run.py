"""The extensions of a ``setup.py`` that no reading of it finds: it is run in the jail, where it
builds nothing, and tells what it lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from portkern.errors import ConfigError
from portkern.evaluator.jailed_process import JailedProcesses, readable
from portkern.port.setup_script import Module
from portkern.sandbox import message
from portkern.simt.torch_extension import setup
from portkern.simt.torch_extension.setup import MARK, ListedSources
from portkern.spec.foreign_text import json_value
from portkern.spec.safe_name import MOST_PATH, inside
from portkern.spec.target import Target
from portkern.worker.protocol import Execute

#: Extensions and files of one that are read.
_MOST = 1000
#: Bytes of a part of a path: file systems end there.
_MOST_NAME = 255


def modules(root: Path, target: Target, timeout_s: float) -> list[Module]:
    """The extensions that the library's own script makes on a machine with this GPU: none where it
    has no script, or that fails before. Raises WorkerError and ConfigError."""
    if not (root / "setup.py").is_file():
        return []
    with readable(root) as seen, JailedProcesses([seen]) as processes:
        argv = (sys.executable, "-P", "-m", setup.__name__, str(target))
        asked = Execute(argv, str(seen), str(target), "cuda", (), timeout_s)
        said = processes.run(asked).program.output
    return [_module(one, root) for one in _told(said)]


def _told(output: str) -> Iterator[ListedSources]:
    count = 0
    for line in output.split("\n"):
        _, mark, text = line.partition(MARK)
        try:
            known = message.read(ListedSources, json_value(text)) if mark else None
        except (ValueError, RecursionError):
            continue
        if known is not None and _fits(known) and count < _MOST:
            count += 1
            yield known


def _fits(known: ListedSources) -> bool:
    return max(len(known.sources), len(known.include)) <= _MOST and all(
        len(path) <= MOST_PATH and all(_bytes(part) <= _MOST_NAME for part in path.split("/"))
        for path in (known.name, *known.sources, *known.include)
    )


def _bytes(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def _module(known: ListedSources, root: Path) -> Module:
    """The extension, with those files and folders that lie in the library."""
    sources, include = (tuple(_below(root, paths)) for paths in (known.sources, known.include))
    return Module(known.name, sources, include, known.defines)


def _below(root: Path, paths: Iterable[str]) -> Iterator[Path]:
    for path in paths:
        if path == ".":
            yield root
        with suppress(ConfigError):
            yield inside(root, path)
