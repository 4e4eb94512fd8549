"""``portkern mcp``: tools for coding assistants."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.errors import BackendUnavailable, ConfigError

TOKEN = "PORTKERN_MCP_TOKEN"
_LEAST_TOKEN = 16


@dataclass
class McpOptions:
    root: str = "."
    http: bool = False
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("mcp", McpOptions, overrides)
    root = Path(options.root).absolute()
    if not root.is_dir():
        raise ConfigError(f"Got root={options.root}, expected a folder")
    if options.json:
        command = {"command": sys.executable, "args": ["-m", "portkern.cli", "mcp", f"root={root}"]}
        json_output.show({"mcpServers": {"portkern": command}, "exit_code": 0})
        return 0
    if find_spec("mcp") is None:
        raise BackendUnavailable("The package mcp is not installed; pip install 'portkern[mcp]'")
    from portkern.cli.assistants import mcp_server
    from portkern.cli.assistants.tools import Tools

    server = mcp_server.server(Tools(root))
    if not options.http:
        server.run("stdio")
        return 0
    if options.token:
        raise ConfigError(
            f"Others see token= in the list of processes; expected {TOKEN} to have it"
        )
    given = os.environ.get(TOKEN, "")
    token = given or secrets.token_urlsafe(32)
    if len(token) < _LEAST_TOKEN or not token.isascii():
        raise ConfigError(
            f"Got a token of {len(token)} characters, expected {_LEAST_TOKEN} at least"
        )
    where = f"http://{options.host}:{options.port}/mcp"
    print(f"portkern mcp at {where}", file=sys.stderr, flush=True)
    if not given:
        print(f"token: {token}", file=sys.stderr, flush=True)
    mcp_server.serve_http(server, host=options.host, port=options.port, token=token)
    return 0
