"""How busy a generation run keeps its device while models write: one that takes 1 s for each
kernel, four kernels in flight.

.venv/bin/python -m benchmarks.overlap [op=softmax] [target=x86_64] [kernels=16] [delay_s=1.0]

The model is a server on this machine that hands out the catalogue's kernel with a remark of its
own, so that each is built, evaluated and timed as if it were new. Prints the share of the time from
the first candidate's turn on the device to the last one's end in which the device was in use, and
writes benchmarks/results/overlap.json.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks._script import words, write
from portkern.agent.bench import Bench
from portkern.agent.proposer.catalogue import shipped
from portkern.cli.verbs.generate import generate, plan_of, read
from portkern.records.record import Record
from portkern.spec.candidate import Candidate
from portkern.toolchain import host
from tests.llm_server import MODEL, Say, Server


class Watched(Bench):
    """Notes when the device was in use."""

    spans: list[tuple[float, float]] = []  # noqa: RUF012 - of the one bench that there is

    def evaluate(self, candidate: Candidate) -> list[Record]:
        start = time.perf_counter()
        try:
            return super().evaluate(candidate)
        finally:
            self.spans.append((start, time.perf_counter()))


def main() -> None:
    given = words({"op", "target", "kernels", "delay_s"}, __doc__)
    count, delay_s = int(given.get("kernels", 16)), float(given.get("delay_s", 1.0))
    shape = [
        f"op={given.get('op', 'softmax')}",
        f"target={given.get('target', 'x86_64')}",
        "final=[]",
        "strategy=best_of_n",
        f"strategy.n={count}",
        "proposer=direct",
        f"budget.attempts={count}",
        "track=false",
        "cache=false",
        "inflight=4",
        "seed=1",
    ]
    kernel = shipped(plan_of(read([*shape, "models.coder.model=x"])).task)
    assert kernel is not None

    def answer(asked: Mapping[str, Any], number: int) -> Say:
        return Say(f"```cpp\n// {number}\n{kernel.source}\n```", delay_s=delay_s)

    from portkern.agent import run

    run.Bench = Watched  # type: ignore[misc]
    with Server(answer) as server, tempfile.TemporaryDirectory() as reports:
        model = [f"models.coder.model={MODEL}", f"models.coder.api_base={server.url}"]
        generate(read([*shape, *model, f"reports={reports}"]))
    spans = Watched.spans[:count]
    busy = sum(end - start for start, end in spans)
    share = busy / (spans[-1][1] - spans[0][0])
    print(
        f"\nthe device was in use for {share:.1%} of the time, {busy / len(spans):.2f} s a kernel"
    )
    write(
        "overlap.json",
        {
            "host": host.machine(),
            "op": given.get("op", "softmax"),
            "kernels": len(spans),
            "model_s": delay_s,
            "device_s_each": busy / len(spans),
            "device_busy": share,
        },
    )


if __name__ == "__main__":
    main()
