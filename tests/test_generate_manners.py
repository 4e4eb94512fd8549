"""How `portkern generate` behaves to whoever gives the command: options as the docs write them,
what it says and when, and what it charges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.cli.verbs.generate import plan_of, read
from tests.llm_server import Server
from tests.test_generate import GOOD, QUICK, code


def command(reports: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """As a shell gives it."""
    argv = [sys.executable, "-m", "portkern.cli", "generate", *QUICK, f"reports={reports}", *given]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


# ---- options as the docs write them


@pytest.mark.full
def test_models_and_prices_are_taken_as_mappings(tmp_path: Path) -> None:
    """Tokens of the reply are those that the server counts; the price is what they cost."""
    with Server([code(GOOD % "a")]) as server:
        ran = command(
            tmp_path,
            "strategy=single",
            "proposer=direct",
            "budget.usd=1",
            "run=one",
            f"models={{coder: {{model: openai/x, api_base: '{server.url}', temperature: 0}}}}",
            "prices={openai/x: {input: 1, output: 2}}",
        )
    assert ran.returncode == 0, ran.stderr
    assert server.requests[0].body["temperature"] == 0
    cost = json.loads((tmp_path / "one" / "summary.json").read_text())["cost"]
    assert cost["usd"] == pytest.approx((cost["tokens_in"] + 2 * cost["tokens_out"]) / 1e6)


def plan(*given: str) -> Any:
    return plan_of(read([*QUICK, *given]))


def test_a_mapping_adds_to_what_single_keys_say() -> None:
    made = plan(
        "models={coder: {model: openai/x}, critic: openai/y}",
        "models.coder.temperature=0",
        "budget={attempts: 3, usd: 2}",
        "prices={openai/x: {input: 1, output: 2}}",
    )
    assert made.models == {"coder": {"model": "openai/x", "temperature": 0}, "critic": "openai/y"}
    assert (made.budget.attempts, made.budget.usd) == (3, 2)
    assert made.prices == {"openai/x": {"input": 1, "output": 2}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("models=openai/x", "Got models='openai/x', expected a mapping: 'models={coder: "),
        ("models={coder: 3}", "Got 3 for models.coder, expected a model's litellm id"),
        ("models={coder: {modl: x}}", "asks a model, and none is named"),
        ("prices=3", "Got prices=3, expected a mapping: 'prices={openai/x: "),
        ("prices={openai/x: 3}", "Got 3 as the price of 'openai/x'"),
        ("budget=3", "Got budget=3, expected a mapping"),
        ("budget={attempt: 3}", "No option of budget 'attempt'; did you mean 'attempts'?"),
    ],
)
def test_a_mapping_that_is_none_is_told_in_one_line(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*QUICK, f"reports={tmp_path}", "strategy=single", "proposer=direct", given]
    if not given.startswith("models"):
        options.append("models.coder.model=openai/x")
    assert main.run(["generate", *options]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
