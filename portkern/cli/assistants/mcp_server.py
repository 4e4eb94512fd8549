"""The tools, resources and prompts as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import functools
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from portkern.cli.assistants.tools import Tools
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError, PortkernError
from portkern.printable import printable
from portkern.spec import target

INSTRUCTIONS = (
    "portkern evaluates GPU and CPU kernels of PyTorch operators: right on fresh inputs, and how "
    "fast, on hardware or in emulators of it. Its verdicts cannot be influenced by a kernel. Work "
    "in this order: describe_op, targets, guide, write the file, check until it passes, "
    "compare_with_baseline, profile, change one thing, again. For CUDA code that is to run on AMD: "
    "port_lint, then port_prove. Each answer says what to do next."
)
_MOST_RECORDS = 20
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def server(tools: Tools, *, level: str = "WARNING") -> MCPServer[Any]:
    """An MCP server with all that assistants may ask for."""
    every = (
        tools.describe_op,
        tools.targets,
        tools.guide,
        tools.check,
        tools.profile,
        tools.compare_with_baseline,
        tools.port_lint,
        tools.port_prove,
        tools.history,
    )
    made = with_tools(every, INSTRUCTIONS, level=level)
    _add_resources(made, tools)
    _add_prompts(made)
    return made


def with_tools(
    tools: Iterable[Callable[..., dict[str, Any]]], instructions: str, *, level: str = "WARNING"
) -> MCPServer[Any]:
    """An MCP server with these tools, by the names of their functions, and nothing else."""
    made: MCPServer[Any] = MCPServer(
        "portkern",
        instructions=instructions,
        log_level="WARNING" if level == "WARNING" else "ERROR",
    )
    for tool in tools:
        made.tool(name=tool.__name__)(_told(tool))
    return made


def _told(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Errors of the asker's become answers that say so."""

    @functools.wraps(tool)
    def asked(*args: Any, **named: Any) -> dict[str, Any]:
        try:
            return tool(*args, **named)
        except PortkernError as error:
            raise ToolError(printable(str(error))) from error

    return asked


def _add_resources(made: MCPServer[Any], tools: Tools) -> None:
    @made.resource("portkern://guides/{backend}", mime_type="text/markdown")
    def guide(backend: str) -> str:
        """How kernels of a backend are written."""
        return str(tools.guide(backend)["guide"])

    @made.resource("portkern://hints/{name}", mime_type="text/markdown")
    def hints(name: str) -> str:
        """Facts worth knowing about a target, with sources."""
        return "\n".join(f"- {hint.text}" for hint in target.load(name).hints)

    @made.resource("portkern://records/{run}", mime_type="application/json")
    def records(run: str) -> str:
        """The newest records of a run that is kept here."""
        folder = run_folder.run_folder(str(tools.root / "reports"), run)
        latest = run_folder.latest(folder)[-_MOST_RECORDS:]
        return json.dumps([record.document() for record in latest])


def _add_prompts(made: MCPServer[Any]) -> None:
    @made.prompt()
    def write_kernel(op: str, backend: str, target_name: str) -> str:
        """A kernel of one operator, right first and fast then."""
        return (
            f"Write a {backend} kernel of {op} for {target_name}. Ask portkern's describe_op and "
            "guide first. Write the simplest kernel, check it until it passes, then make it faster "
            "one change at a time with compare_with_baseline and profile. Keep what is faster by "
            "its whole interval. Check workloads edge and heldout before you say that it is done."
        )

    @made.prompt()
    def port_library(path: str, to: str = "gfx942") -> str:
        """CUDA sources to another GPU, with proof."""
        return (
            f"Port the CUDA sources in {path} to {to}. Run port_lint and read each hazard, then "
            "port_prove. For each kernel that is not proven, mend the source by what its "
            "counterexample shows, and prove again. Report what is proven and what is not."
        )


def guarded(app: App, token: str) -> App:
    """An ASGI application that answers nobody without ``Authorization: Bearer TOKEN``."""
    expected = f"Bearer {token}".encode()

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] != "lifespan" and not hmac.compare_digest(given, expected):
            head = {"type": "http.response.start", "status": 401, "headers": []}
            await send(head)
            await send({"type": "http.response.body", "body": b"Expected the server's token"})
            return
        await app(scope, receive, send)

    return call


def serve_http(made: MCPServer[Any], *, host: str, port: int, token: str) -> None:
    """Serves over HTTP until it is interrupted. Raises ConfigError for a port that is taken."""
    import uvicorn

    app = made.streamable_http_app(host=host)
    config = uvicorn.Config(guarded(app, token), host=host, port=port, log_level="error")
    try:
        uvicorn.Server(config).run()
    except SystemExit as error:
        raise ConfigError(f"Cannot listen at {host}:{port}; choose another port=") from error
