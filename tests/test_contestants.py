"""Coding agents in the place of models: what they can reach, what they leave, and how it ends."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from portkern.agent.budget import Meter
from portkern.agent.llm.calls import Calls
from portkern.agent.llm.prices import Prices
from portkern.agent.llm.role import Role
from portkern.agent.llm.service import Service
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.experiment.compare import contestant
from portkern.records.record import RecordFile
from portkern.sandbox import tenant
from portkern.sandbox.tenant import Gone, Tenant
from tests.llm_server import Server

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "benchmarks" / "scripted_agent.py"
PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
RIGHT = """extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
  return 0;
}
"""
WRONG = RIGHT.replace(": x[i]", ": -x[i]")


def box(script: str, *, timeout_s: float = 30.0, sees: tuple[str, ...] = ()) -> Gone:
    files = {"prompt.md": "Write a kernel."}
    environment = {"PATH": "/usr/bin:/bin"}
    asked = Tenant(("/bin/sh", "-c", script), environment, files, "kernel.cpp", timeout_s, sees)
    gone = tenant.run(asked, 10_000)
    if "no box" in gone.problem:
        pytest.skip(gone.problem)
    return gone


def test_an_agent_sees_its_folder_and_what_it_was_given_and_leaves_one_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # as root, it has another user
    (tmp_path / "given").write_text("given")
    secret = tmp_path.parent / "secret"
    secret.write_text("secret")
    gone = box(
        f"cat prompt.md {tmp_path}/given > kernel.cpp; cat {secret} {__file__} $HOME/../secret;"
        "ls /proc | grep -c '^[0-9]'; touch /usr/x /etc/x; env | grep -c SECRET",
        sees=(str(tmp_path),),
    )
    assert gone.kept == b"Write a kernel.given"
    said = gone.output.decode()
    assert said.count("No such file") == 3 and said.count("Read-only") == 2
    assert int(re.findall(r"^\d+$", said, re.MULTILINE)[0]) < 12  # its own processes


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("echo kernel > kernel.cpp; (sleep 600 &) ; sleep 600", b"kernel\n"),  # hangs
        ("echo kernel > kernel.cpp; (setsid sleep 600 &)", b"kernel\n"),  # leaves others behind
        ("f() { f | f & }; f; echo kernel > kernel.cpp; sleep 600", b"kernel\n"),  # forks
        ("echo kernel > kernel.cpp; yes > big; cat big big > more; true", b"kernel\n"),  # fills
        ("ln -s /etc/passwd kernel.cpp", None),
        ("mkfifo kernel.cpp", None),
        ("mkdir kernel.cpp", None),
        ("echo kernel > kernel.cpp; kill -9 -1; sleep 1", None),  # its own keeper
        ("yes | head -c 100000; echo kernel > kernel.cpp", b"kernel\n"),
    ],
)
@pytest.mark.sampled("script", quick=4)
def test_whatever_an_agent_does_its_box_ends_and_costs_nobody_else(
    script: str, kept: bytes | None
) -> None:
    gone = box(script, timeout_s=3.0)
    assert (gone.kept, gone.problem) == (kept, "")
    assert len(gone.output) <= 10_000
    assert gone.late == ("sleep 600;" in script or script.endswith("sleep 600"))


def test_a_command_that_does_not_exist_is_not_a_sample() -> None:
    gone = tenant.run(Tenant(("no-such-agent",), {"PATH": "/bin"}, {}, "kernel.cpp", 5.0))
    assert "no-such-agent" in gone.problem or "no box" in gone.problem


@pytest.mark.parametrize(
    ("transcript", "usd", "tokens"),
    [
        ('done\n{"total_cost_usd": 0.25, "usage": {"input_tokens": 5, "output_tokens": 7}}\n',
         0.25, (5, 7)),
        ('{"total_cost_usd": true, "usage": {"input_tokens": -1, "output_tokens": 1e9}}',
         None, (None, None)),
        ('{"total_cost_usd": NaN}', None, (None, None)),
        ("{not json", None, (None, None)),
        ('{"total_cost_usd": 1}\n' + "more words\n" * 30, None, (None, None)),
    ],
)  # fmt: skip
def test_an_agents_cost_is_what_it_says_last_if_that_is_a_number(
    transcript: str, usd: float | None, tokens: tuple[int | None, int | None]
) -> None:
    said = contestant._cost(transcript)
    assert contestant._usd(said.get("total_cost_usd")) == usd
    usage = said.get("usage")
    found = [contestant._count(usage, f"{name}_tokens") for name in ("input", "output")]
    assert tuple(found) == tokens


def test_within_a_budget_of_usd_an_agent_needs_an_allowance() -> None:
    def service(**more: Any) -> Service:
        role = Role.of("coder", {"model": "agent:any", **more})
        meter = Meter(role.budget, name="models.coder", within=Meter())
        return Service("coder", role, prices=Prices(), meter=meter)

    service().check_prices()
    service(usd=2).check_prices()
    limited = service(usd=2)
    limited.role = Role.of("coder", "agent:any")
    with pytest.raises(ConfigError, match="give it usd="):
        limited.check_prices()


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"env": 5}, "'env' of an agent: expected a list"),
        ({"sees": ["/opt", 1]}, "'sees' of an agent: expected a list"),
        ({"environment": ["HOME"]}, "'environment' is not sent to an agent"),
    ],
)
def test_what_an_agent_gets_is_named_in_lists(extra: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        Role.of("coder", {"model": "agent:any", "extra": extra})
    if "env" in extra:
        with pytest.raises(ConfigError, match=r"models\.coder\.extra"):
            Role.of("coder", {"model": "a/b", "fallbacks": ["agent:any"], "extra": extra})
    assert Role.of("coder", {"model": "a/b", "extra": extra}).extra == extra
    known = {"env": "HOME", "sees": ["/opt"]}
    assert Role.of("coder", {"model": "agent:any", "extra": known}).extra == known


@pytest.mark.full
def test_an_agent_asks_its_model_and_portkern_and_is_compared_with_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed")
    monkeypatch.setenv("SECRET_TOKEN", "do not tell anybody")

    def reply(body: Any, number: int) -> str:
        first = body["messages"][-1]["content"].startswith("You") or body["model"] == "plain"
        return f"```cpp\n{WRONG if first else RIGHT}```"

    with Server(reply) as server:
        agent = f"{PYTHON} -I {AGENT} {server.url} thinking kernel.cpp"
        models = (
            f"models={{plain: {{model: openai/plain, api_base: '{server.url}'}}, "
            f"coder: {{model: 'agent:{agent}', extra: {{sees: [{sys.base_prefix}, {AGENT}]}}}}, "
            f"gone: {{model: 'agent:no-such-agent'}}}}"
        )
        code = main.run(
            ["compare", models, "ops=relu", "targets=x86_64", "backends=cpu", "n=1", "run=c",
             "workloads=ci", "final=heldout", "rounds=1", "budget_s=0", "track=false",
             f"reports={tmp_path}"]
        )  # fmt: skip
        prompts = server.prompts
    said = capsys.readouterr()
    assert code == 1, said.err  # the one that is not there has no sample
    rows = {
        row["model"]: row
        for row in map(json.loads, (tmp_path / "c/samples.jsonl").read_text().splitlines())
    }
    assert [rows[name]["status"] for name in ("plain", "coder", "gone")] == [
        "wrong",
        "passed",
        None,
    ]
    assert "no-such-agent" in rows["gone"]["detail"] + said.out
    assert rows["coder"]["heldout"] is True
    assert rows["coder"]["tokens_out"] > 0
    assert any("MCP server" in prompt for prompt in prompts)
    (call,) = Calls(tmp_path / "c" / rows["coder"]["path"] / "calls.jsonl")
    assert "0: wrong" in call.reasoning and "1: passed" in call.reasoning
    assert RIGHT.strip() in call.reply
    (kept,) = {
        r.author
        for r in RecordFile(tmp_path / "c" / rows["coder"]["path"] / "records.jsonl").read()[0]
    }
    assert "agent:" in kept
    assert "do not tell" not in "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    )
    assert os.environ["SECRET_TOKEN"]
