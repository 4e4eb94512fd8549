"""The tools, resources and prompts as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import MCPServerError, ResourceError, ToolError

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
#: Connections at once, and seconds in which the head of a request must have come.
MOST_CONNECTIONS, REQUEST_S = 128, 30.0
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
P = ParamSpec("P")
T = TypeVar("T")
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
        made.tool(name=tool.__name__)(_told(tool, ToolError))
    return made


def _told(work: Callable[P, T], kind: type[MCPServerError]) -> Callable[P, T]:
    """Errors of the asker's become answers that say so, of the server's ``kind``."""

    @functools.wraps(work)
    def asked(*args: P.args, **named: P.kwargs) -> T:
        try:
            return work(*args, **named)
        except PortkernError as error:
            raise kind(printable(str(error))) from error

    return asked


def _add_resources(made: MCPServer[Any], tools: Tools) -> None:
    told = functools.partial(_told, kind=ResourceError)

    @made.resource("portkern://guides/{backend}", mime_type="text/markdown")
    @told
    def guide(backend: str) -> str:
        """How kernels of a backend are written."""
        return str(tools.guide(backend)["guide"])

    @made.resource("portkern://hints/{name}", mime_type="text/markdown")
    @told
    def hints(name: str) -> str:
        """Facts worth knowing about a target, with sources."""
        return "\n".join(f"- {hint.text}" for hint in target.load(name).hints)

    @made.resource("portkern://records/{run}", mime_type="application/json")
    @told
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
            # what follows from somebody unknown is not read
            closing = [(b"connection", b"close")]
            head = {"type": "http.response.start", "status": 401, "headers": closing}
            await send(head)
            await send({"type": "http.response.body", "body": b"Expected the server's token"})
            return
        await app(scope, receive, send)

    return call


def serve_http(made: MCPServer[Any], *, host: str, port: int, token: str) -> None:
    """Serves over HTTP until it is interrupted. Raises ConfigError for a port that is taken."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Lets a connection go whose first request does not come: else whoever is on the machine
        keeps all that there may be."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(REQUEST_S, self._let_go)

        def _let_go(self) -> None:
            if self.cycle is None:
                self.transport.close()

    config = uvicorn.Config(
        guarded(made.streamable_http_app(host=host), token),
        host=host,
        port=port,
        log_level="error",
        http=Impatient,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
    )
    try:
        uvicorn.Server(config).run()
    except SystemExit as error:
        raise ConfigError(f"Cannot listen at {host}:{port}; choose another port=") from error
