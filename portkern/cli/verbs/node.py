"""``portkern node``: this machine as a node of a Ray cluster that matrices run on."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.cli import json_output, plain_options
from portkern.errors import BackendUnavailable, no_such
from portkern.execution import needed


@dataclass
class NodeOptions:
    address: str = ""
    targets: str = ""
    start: bool = True
    json: bool = False


def main(arguments: Sequence[str]) -> int:
    own, rest = list(arguments), list[str]()
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    options = plain_options.resolve("node", NodeOptions, own)
    needed.check()
    from portkern.execution import node

    here = node.resources()
    asked = [name for name in options.targets.strip("[]").split(",") if name]
    for name in asked:
        if name not in here:
            raise no_such("target of this machine", name, set(here) - {node.OWNER})
    advertised = {name: n for name, n in here.items() if not asked or name in (*asked, node.OWNER)}
    command = [*node.ray_start(options.address, advertised), *rest]
    if options.json:
        json_output.show({"resources": advertised, "command": command, "exit_code": 0})
    else:
        print(shlex.join(command), flush=True)
    return _become(command) if options.start and not options.json else 0


def _become(command: Sequence[str]) -> int:
    """Ends with the node, in its place. Raises BackendUnavailable without Ray."""
    program = str(Path(sys.executable).parent / command[0])
    found = program if Path(program).exists() else shutil.which(command[0])
    if found is None:
        raise BackendUnavailable("Ray is not installed; pip install 'portkern[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.execv(found, list(command))
