"""Environments behind the doors of official packages, where these are installed.

None of them is in the extra ``dev``: each brings a hundred packages. docs/learn.md says with which
versions these tests have passed."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from portkern.learn.rewards import Unavailable

pytestmark = pytest.mark.full

RIGHT = """```cpp
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
  return 0;
}
```"""
WRONG = RIGHT.replace(": x[i]", ": -x[i]")
PLACE = "cpu@x86_64"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def broken(self: object, cells: object) -> None:
    raise Unavailable("No reward: there is no memory left")


# verifiers


def test_verifiers_loads_the_taskset_by_its_modules_name_and_scores_replies(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    from verifiers.v1.utils.loaders import load_taskset, taskset_class

    from portkern.env.judge import Judge
    from portkern.env.verifiers_taskset import KernelConfig, KernelTaskset

    example = Path(__file__).parents[1] / "examples" / "verifiers_taskset"
    monkeypatch.syspath_prepend(str(example))
    assert taskset_class("portkern-taskset") is KernelTaskset
    taskset = load_taskset(KernelConfig(id="portkern-taskset", ops=("relu",), places=(PLACE,)))
    (task,) = taskset
    assert "relu" in task.data.prompt and task.data.idx == 0

    def rewards(reply: str) -> dict[str, Any]:
        trace = trace_of(vf, task, reply)
        asyncio.run(task.score(trace))
        return dict(trace.rewards)

    assert rewards(RIGHT)["kernel"].value > 0
    assert rewards(WRONG)["kernel"].value == 0
    assert rewards("I would rather not.")["kernel"].value == 0
    assert asyncio.run(task.validate(None))
    monkeypatch.setattr(Judge, "records", broken)
    with pytest.raises(vf.TaskError, match="no memory left"):
        rewards(RIGHT)


def trace_of(vf: Any, task: Any, reply: str) -> Any:
    """A trace of one reply, as an agent leaves it."""
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    told = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = AgentInfo(config=vf.AgentConfig())
    return Trace(task=told, agent=agent, root_reply=reply)


# OpenEnv


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of the application's server."""
    import uvicorn

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def test_an_openenv_client_plays_an_episode_on_an_openenv_server(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openenv.core", reason="openenv is not installed")
    from portkern.env.judge import Judge
    from portkern.env.openenv_client import KernelClient
    from portkern.env.openenv_server import app
    from portkern.env.openenv_types import KernelAction

    with serving(app(["relu", "softmax"], [PLACE], turns=2)) as address:
        with KernelClient(base_url=address).sync() as client:
            begun = client.reset(seed=1, op="relu")
            assert "relu" in begun.observation.text and not begun.done
            wrong = client.step(KernelAction(reply=WRONG))
            assert (wrong.reward, wrong.done) == (0, False)
            assert wrong.observation.verdicts == {PLACE: "wrong"}
            right = client.step(KernelAction(reply=RIGHT))
            assert right.reward > 0 and right.done
            state = client.state()
            assert (state.op, state.step_count, state.places) == ("relu", 2, (PLACE,))
            with pytest.raises(RuntimeError, match="reset the environment first"):
                client.step(KernelAction(reply=RIGHT))
            assert client.reset(index=1).observation.text.count("softmax")
            monkeypatch.setattr(Judge, "records", broken)
            with pytest.raises(RuntimeError, match="no memory left"):
                client.step(KernelAction(reply=RIGHT))


# TRL


@pytest.mark.filterwarnings("default")  # of what TRL itself does
def test_trl_trains_on_the_reward_and_leaves_out_what_has_no_verdict(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    from portkern.env import KernelEnv, trl_reward

    letters = [chr(n) for n in range(32, 127)]
    words = Tokenizer(models.WordLevel({c: k for k, c in enumerate(["?", *letters])}, "?"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="?", eos_token=" ")
    tiny = Qwen2Config(
        vocab_size=len(letters) + 1,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
    )
    own = trl_reward(KernelEnv(["relu"], [PLACE], run="trl"))
    seen: list[list[float | None]] = []

    def reward(completions: list[str], **columns: Any) -> list[float | None]:
        """The first of a group answers as an expert would, the second is not evaluated."""
        given = own(prompts=[], completions=[RIGHT, *completions[1:]], op=columns["op"])
        seen.append([given[0], None, *given[2:]])
        return seen[-1]

    trainer = trl.GRPOTrainer(
        model=Qwen2ForCausalLM(tiny),
        processing_class=tokenizer,
        reward_funcs=reward,
        args=trl.GRPOConfig(
            output_dir=str(here / "out"),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            max_steps=1,
            report_to=[],
            use_cpu=True,
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list([{"prompt": "Write relu. ", "op": "relu"}] * 4),
    )
    trainer.train()
    ((right, out, *others),) = seen
    assert right and right > 0 and out is None and others == [0.0, 0.0]
    mean = trainer.state.log_history[0]["rewards/reward/mean"]
    assert mean == pytest.approx(right / 3, rel=1e-3)
