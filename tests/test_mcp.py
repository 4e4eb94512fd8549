"""Coding assistants' door, by the official client."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from portkern.errors import ConfigError
from portkern.records.record import Evidence, Speedup, Timing, Verdict
from tests.report_records import make

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")

from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

from portkern.cli.assistants import answers, commands, mcp_server  # noqa: E402
from portkern.cli.assistants.tools import Tools  # noqa: E402

RELU = """#include <cstdint>
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    return 0;
}
"""
TOOLS = [
    "describe_op",
    "targets",
    "guide",
    "check",
    "profile",
    "compare_with_baseline",
    "port_lint",
    "port_prove",
    "history",
]
TOKEN = "a-token-of-some-length"


def within(root: Path, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Runs ``work`` with a client of a server in this process."""

    async def run() -> Any:
        async with Client(mcp_server.server(Tools(root))) as client:
            return await work(client)

    return asyncio.run(run())


def called(root: Path, tool: str, **arguments: object) -> dict[str, Any]:
    result = within(root, lambda client: client.call_tool(tool, arguments))
    assert not result.is_error, result.content
    answer = result.structured_content
    assert isinstance(answer, dict)
    return answer


def refused(root: Path, tool: str, **arguments: object) -> str:
    result = within(root, lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    return str(result.content[0].text)


def test_the_tools_are_there_by_name_and_say_what_they_do(tmp_path: Path) -> None:
    listed = within(tmp_path, lambda client: client.list_tools()).tools
    assert [tool.name for tool in listed] == TOOLS
    assert all(tool.description for tool in listed)


def test_an_operator_is_described_and_a_guide_has_its_declaration(tmp_path: Path) -> None:
    said = called(tmp_path, "describe_op", op="softmax")
    assert "softmax" in said["reference"]
    assert set(said["workloads"]) >= {"ci", "heldout"}
    guide = called(tmp_path, "guide", backend="cpu", op="softmax")
    assert "softmax(" in guide["declaration"]
    assert len(guide["guide"]) > 200


def test_names_that_are_not_there_are_answered_with_the_closest_one(tmp_path: Path) -> None:
    assert "did you mean 'softmax'" in refused(tmp_path, "describe_op", op="softmaxx")
    assert "'cpu'" in refused(tmp_path, "guide", backend="cpuu")


@pytest.mark.parametrize("word", ["../secret.cpp", "/etc/passwd", "a/../../secret.cpp"])
def test_no_file_outside_of_the_root_is_read(tmp_path: Path, word: str) -> None:
    (tmp_path / "secret.cpp").write_text(RELU)
    root = tmp_path / "root"
    root.mkdir()
    said = refused(root, "check", op="relu", file=word, backend="cpu")
    assert "extern" not in said
    (tmp_path / "secret.py").write_text("class Model: ...")
    for op in (f"{word}.py", f"{word}.py:Model", f"{word}.py/"):
        assert "Model" not in refused(root, "describe_op", op=op).replace(op, "")
        assert refused(root, "check", op=op, source=RELU, backend="cpu")
    assert refused(root, "port_lint", path=word)
    assert not [*tmp_path.glob("*.op.yaml")]


def test_a_link_to_a_file_outside_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.cpp").write_text(RELU)
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine.cpp").symlink_to(tmp_path / "secret.cpp")
    assert refused(root, "check", op="relu", file="mine.cpp", backend="cpu")


def test_a_source_needs_its_backend_and_has_a_limit(tmp_path: Path) -> None:
    assert "backend" in refused(tmp_path, "check", op="relu", source=RELU)
    large = RELU + "/" * (2 << 20)
    assert "KiB" in refused(tmp_path, "check", op="relu", source=large, backend="cpu")
    assert "either" in refused(tmp_path, "check", op="relu", backend="cpu")


@pytest.mark.parametrize("value", ["a=b,c", "x' y=1", "[1,2]", "${oc.env:HOME}", "a\nb"])
def test_what_an_argument_holds_stays_its_value(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        commands.run("check", {"op": value, "source": ["f.cpp"], "backend": "cpu"}, tmp_path)
    assert "option" not in str(caught.value)
    assert str(Path.home()) not in str(caught.value)


@pytest.mark.full
def test_a_kernel_is_checked_by_its_text(tmp_path: Path) -> None:
    asked = {"op": "relu", "backend": "cpu", "target_name": "x86_64"}
    right = called(tmp_path, "check", source=RELU, **asked)
    assert right["verdict"] == "passed"
    assert "compare_with_baseline" in right["next"]
    wrong = called(tmp_path, "check", source=RELU.replace("i < n", "i < n - 1"), **asked)
    assert wrong["verdict"] == "wrong"
    assert wrong["cells"][0]["detail"]
    held = within(tmp_path, lambda client: client.read_resource("portkern://records/mcp"))
    assert '"verdict": "wrong"' in held.contents[0].text


@pytest.mark.full
def test_it_speaks_over_stdio(tmp_path: Path) -> None:
    async def run() -> Any:
        started = StdioServerParameters(
            command=sys.executable, args=["-m", "portkern.cli", "mcp", f"root={tmp_path}"]
        )
        async with Client(started) as client:
            return await client.call_tool("describe_op", {"op": "relu"})

    assert asyncio.run(run()).structured_content["op"] == "relu"


#: A server that waits three seconds for the head of a request.
IMPATIENT = """
import sys
from portkern.cli import main
from portkern.cli.assistants import mcp_server
mcp_server.REQUEST_S = 3.0
sys.exit(main.run(sys.argv[1:]))
"""


@pytest.mark.full
def test_it_speaks_over_http_to_those_who_have_the_token(tmp_path: Path) -> None:
    import httpx2

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["mcp", "http=true", f"port={port}", f"root={tmp_path}"]
    url = f"http://127.0.0.1:{port}/mcp"

    async def run() -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                return await client.call_tool("describe_op", {"op": "relu"})

    command = [sys.executable, "-c", IMPATIENT, *words]
    with subprocess.Popen(command, env=os.environ | {"PORTKERN_MCP_TOKEN": TOKEN}) as process:
        try:
            while not listens(port):
                assert process.poll() is None
                time.sleep(0.05)
            for token in ("", "Bearer wrong", f"Basic {TOKEN}"):
                answer = httpx2.post(url, headers={"Authorization": token}, json={}, timeout=60)
                assert answer.status_code == 401
                assert answer.headers["Connection"] == "close"
            with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
                slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: ")
                assert slow.recv(1) == b""
            for odd in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                signed = odd | {"Authorization": f"Bearer {TOKEN}"}
                assert httpx2.post(url, headers=signed, json={}, timeout=60).status_code in (
                    403,
                    421,
                )
            assert asyncio.run(run()).structured_content["op"] == "relu"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def test_prompts_and_resources_are_there(tmp_path: Path) -> None:
    async def work(client: Any) -> Any:
        arguments = {"op": "softmax", "backend": "cuda", "target_name": "sm_90"}
        prompt = await client.get_prompt("write_kernel", arguments)
        guide = await client.read_resource("portkern://guides/cpu")
        hints = await client.read_resource("portkern://hints/gfx942")
        return prompt.messages[0].content.text, guide.contents[0].text, hints.contents[0].text

    prompt, guide, hints = within(tmp_path, work)
    assert "softmax for sm_90" in prompt
    assert guide and hints.startswith("- ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("records/-x", "expected a folder name"),
        ("guides/cpuu", "No backend 'cpuu'"),
        ("hints/gfx9420", "No target 'gfx9420'"),
        ("records/..%2Fsecret", "Unknown resource"),
    ],
)
def test_a_resource_that_is_not_there_is_one_line(tmp_path: Path, name: str, said: str) -> None:
    async def work(client: Any) -> Any:
        with pytest.raises(MCPError, match=said):
            await client.read_resource(f"portkern://{name}")

    within(tmp_path, work)


def test_how_a_kernel_stands_goes_by_its_whole_interval() -> None:
    def record(low: float, high: float, noisy: str = "") -> Any:
        timing = Timing(
            median_us=1, p20_us=1, p80_us=1, n=1, samples=[1.0], method="test", noisy=noisy
        )
        return make(timing=timing, speedup={"eager": Speedup(value=low, ci95=(low, high))})

    def standings(*records: Any) -> list[str]:
        return [row["standing"] for row in answers.of_times(records)["workloads"]]

    assert standings(record(1.1, 1.2), record(0.8, 0.9)) == ["faster", "slower"]
    assert standings(record(0.9, 1.2), record(2, 3, "busy")) == ["not told apart", "noisy"]


@pytest.mark.parametrize(
    "verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASSED]
)
def test_every_verdict_says_what_to_do_next(verdict: Verdict) -> None:
    bad = make(
        verdict=verdict,
        evidence=Evidence.NONE,
        timing=None,
        speedup={},
        missing="why",
        detail="\n".join(map(str, range(1000))),
    )
    said = answers.of_records([bad] * 100)
    assert said["verdict"] == str(verdict)
    assert said["next"].endswith(".")
    assert len(str(said)) < 8_000
