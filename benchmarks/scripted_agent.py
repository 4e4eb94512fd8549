"""A coding agent of the least kind, for comparisons that need no language model of the world's.

It asks a model for a kernel (a chat-completions server, its only thought), has portkern judge it
over MCP, and asks again with what was wrong, until the kernel is right or it has asked four times.
It is started by ``portkern compare``, in a box of its own, as
``agent:PYTHON scripted_agent.py API_BASE MODEL FILE``, and needs Python's own library alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

MOST_ASKED = 4
_BLOCK = re.compile(r"^```\w*\S*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Tools:
    """portkern's server, over MCP's streamable HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._count = url, 0
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        told = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "scripted", "version": "1"},
        }
        self._send("initialize", told)
        self._send("notifications/initialized", {}, answered=False)

    def call(self, name: str, **arguments: str) -> dict[str, Any]:
        """The answer of a tool. Raises RuntimeError for one that it refuses."""
        result = self._send("tools/call", {"name": name, "arguments": arguments})
        text = "".join(str(part.get("text", "")) for part in result.get("content", ()))
        if result.get("isError"):
            raise RuntimeError(text)
        document: dict[str, Any] = json.loads(text)
        return document

    def _send(self, method: str, params: object, *, answered: bool = True) -> dict[str, Any]:
        self._count += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if answered:
            message["id"] = self._count
        request = urllib.request.Request(
            self._url, json.dumps(message).encode(), self._headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=1800) as response:
            session = response.headers.get("mcp-session-id")
            body = response.read().decode()
        if session:
            self._headers["mcp-session-id"] = session
        if not answered:
            return {}
        lines = [line.removeprefix("data:") for line in body.splitlines()]
        found = [json.loads(line) for line in lines if line.strip().startswith("{")]
        result: dict[str, Any] = found[-1]["result"]
        return result


def asked(api_base: str, model: str, messages: list[dict[str, str]], seed: int) -> dict[str, Any]:
    body = json.dumps({"model": model, "messages": messages, "seed": seed}).encode()
    request = urllib.request.Request(
        f"{api_base}/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        completion: dict[str, Any] = json.load(response)
    return completion


def main() -> None:
    api_base, model, file = sys.argv[1:]
    tools = Tools(os.environ["PORTKERN_MCP_URL"], os.environ["PORTKERN_MCP_TOKEN"])
    task = tools.call("task")
    print(f"task: {task['op']} by {task['backend']} on {task['target']}", flush=True)
    messages = [{"role": "user", "content": Path("prompt.md").read_text(encoding="utf-8")}]
    used = {"input_tokens": 0, "output_tokens": 0}
    for seed in range(MOST_ASKED):
        completion = asked(api_base, model, messages, seed)
        used["input_tokens"] += completion["usage"]["prompt_tokens"]
        used["output_tokens"] += completion["usage"]["completion_tokens"]
        reply = completion["choices"][0]["message"]["content"]
        block = _BLOCK.search(reply)
        if block is None:
            print(f"{seed}: no code", flush=True)
            continue
        Path(file).write_text(block[1], encoding="utf-8")
        told = tools.call("check", source=block[1])
        print(f"{seed}: {told['verdict']}; {told['next']}", flush=True)
        if told["verdict"] == "passed":
            break
        messages = [*messages[:1], {"role": "user", "content": f"It is {told['verdict']}."}]
    print(json.dumps({"usage": used}), flush=True)


if __name__ == "__main__":
    main()
