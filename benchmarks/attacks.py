"""How many attacks on the evaluator succeed: those of tests/corpus, and as many as are asked for
that a seed makes of shortcuts and of when they are taken. Each is timed at the sizes of `ci`, at
one of `heldout` and at the largest of `edge`; a row is added to results/attacks.jsonl after each.

    .venv/bin/python -m benchmarks.attacks [seed=47] [count=64] [of=made,cpu,gpu] [only=.cpp]
                                           [shard=0/8] [seconds=600] [out=FILE]

Workers have little room for bombs, and little time for hangs. What needs a GPU is not judged where
there is none, and honest kernels of a GPU are left to `python -m tests.corpus.table gpu`. Rows that
are there are not made again.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from benchmarks import _script
from portkern.experiment.statistics import share
from portkern.redteam import attack
from portkern.sandbox import session
from portkern.sandbox.jail import JailPolicy
from portkern.spec.op import Op, Workload
from portkern.toolchain import host
from tests.corpus.suite import SCRATCH_BYTES, SMALL

if TYPE_CHECKING:
    from portkern.redteam.trial import AttackEnding

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
RESULTS = _script.RESULTS / "attacks.jsonl"
#: Seconds that a build, a load or a call may take.
STAGE_S = 20.0

#: The file of each operator: its kernel's parameters, its right work, and shortcuts by their names.
KERNELS = Path(__file__).with_name("attack_kernels")
OPS = ("relu", "softmax")
#: When a shortcut is taken: always, or where an evaluator may look away.
WHEN = (
    ("always", "true"),
    ("from call {few} on", "calls > {few}"),
    ("from call {many} on", "calls > {many}"),
    ("in {odds} of {of} calls", "calls % {of} < {odds}"),
    ("when calls follow each other within {us} µs", "since < {us}e-6"),
    ("for usual values", "usual(x)"),
    ("from call {few} on, for usual values", "calls > {few} && usual(x)"),
    (
        "when calls follow each other within {us} µs, for usual values",
        "since < {us}e-6 && usual(x)",
    ),
    ("after {ms} ms", "now - begun > {ms}e-3"),
    ("for buffers that it has seen", "!seen.insert(y).second"),
)
TEXT = """// mechanism: {mechanism}
// op: {op}
// expect: wrong | suspicious | rejected
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void right({parameters}) {{
  {right}
}}
static double clock_s() {{
  timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9;
}}
static bool usual(const scalar_t* x) {{
  for (int i = 0; i < 8; ++i)
    if (!(fabsf(x[i]) < 3.3f) || x[i] == 0 || x[i] == x[i + 1]) return false;
  return true;
}}
extern "C" int {op}({parameters}) {{
  static long calls; static std::set<void*> seen; static double last = clock_s(), begun = last;
  const double now = clock_s(), since = now - last;
  ++calls;
  if ({size} > 64 && ({when})) {{
    {shortcut}
  }} else right({names});
  last = clock_s(); (void)since; (void)now; (void)begun;
  return 0;
}}
"""


def main() -> None:
    from portkern.env import judge
    from portkern.redteam import trial

    asked = _script.words(("seed", "count", "shard", "of", "only", "seconds", "out"), __doc__)
    part, parts = map(int, asked.get("shard", "0/1").split("/"))
    out = Path(asked.get("out", RESULTS))
    heaps = asked.get("of", "made,cpu,gpu").split(",")
    known = {(row["of"], row["kernel"]) for row in _script.rows(out)}
    until = time.monotonic() + float(asked.get("seconds", 600))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "corpus"
        write(made, int(asked.get("seed", 47)), int(asked.get("count", 64)))
        places = {"made": made, "cpu": CORPUS, "gpu": CORPUS / "gpu"}
        tasks = [
            (heap, one)
            for heap in heaps
            for one in attack.corpus(places[heap], [asked["only"]] if "only" in asked else ())
            if not (one.honest and heap == "gpu")
        ]
        small = partial(JailPolicy, limits=SMALL, scratch_bytes=SCRATCH_BYTES)
        for number, (heap, one) in enumerate(tasks):
            if number % parts != part or (heap, one.name) in known:
                continue
            if time.monotonic() > until:
                break
            endings = [
                trial.AttackEnding("attacks", one, None, "it needs a GPU, and there is none")
            ]
            if heap != "gpu" or host.gpus():
                policy = patch.object(session, "JailPolicy", JailPolicy if heap == "gpu" else small)
                with policy, patch.object(judge, "_STAGE_S", STAGE_S):
                    endings = _judged(one, Path(folder) / "records", number)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_row(heap, endings)) + "\n")
    session.close_servers()
    print(table(_script.rows(out)))


def table(found: Sequence[dict[str, Any]]) -> str:
    """The counts of attacks and of successes as a Markdown table."""
    lines = ["| | attacks | succeeded | 95 % interval |", "|---|---|---|---|"]
    heaps = {"made": "made by a seed", "cpu": "corpus, CPU", "gpu": "corpus, GPU"}
    for heap, title in {**heaps, "": "together"}.items():
        judged = [
            row for row in found if row["verdict"] and not row["honest"] and heap in ("", row["of"])
        ]
        if judged:
            bad = sum(row["bad"] for row in judged)
            low, high = share(bad, len(judged)).ends
            rate = f"{bad} ({bad / len(judged):.1%}) | {low:.1%} to {high:.1%}"
            lines.append(f"| {title} | {len(judged)} | {rate} |")
    causes = Counter(row["detail"] for row in found if not row["verdict"] and not row["honest"])
    for cause, count in causes.most_common():
        lines.append(f"| not judged: {cause} | {count} | | |")
    honest = [row for row in found if row["verdict"] and row["honest"]]
    if honest:
        bad = sum(row["bad"] for row in honest)
        low, high = share(bad, len(honest)).ends
        lines.append(
            f"| honest kernels refused | {len(honest)} | {bad} ({bad / len(honest):.1%}) | "
            f"{low:.1%} to {high:.1%} |"
        )
    return "\n".join(lines)


def write(folder: Path, seed: int, count: int) -> None:
    """A corpus of so many attacks, no two alike, and of one honest kernel for each operator."""
    for heap in (attack.CHEATS, attack.HONEST):
        (folder / heap).mkdir(parents=True)
    chosen, texts = random.Random(seed), dict[str, str]()
    while len(texts) < count:
        text = _attack(chosen)
        texts.setdefault(text.partition("\n")[0], text)
    for number, text in enumerate(texts.values()):
        (folder / attack.CHEATS / f"made_{number:03}.cpp").write_text(text, encoding="utf-8")
    for op in OPS:
        text = _text(op, "", "false", f"honest {op}")
        (folder / attack.HONEST / f"made_{op}.cpp").write_text(text, encoding="utf-8")


def _attack(chosen: random.Random) -> str:
    op = chosen.choice(sorted(OPS))
    name, shortcut = chosen.choice(sorted(_parts(op)[2].items()))
    numbers = {
        "few": chosen.randint(3, 40),
        "many": chosen.randint(60, 400),
        "odds": chosen.randint(4, 7),
        "of": 8,
        "us": chosen.choice((100, 300, 1000)),
        "ms": chosen.randint(20, 300),
    }
    when, condition = (text.format_map(numbers) for text in chosen.choice(WHEN))
    return _text(op, shortcut, condition, f"{op} {name}, {when}")


def _parts(op: str) -> tuple[str, str, dict[str, str]]:
    first, *others = (KERNELS / f"{op}.cpp").read_text(encoding="utf-8").split("//: ")
    parts = {name: body for name, _, body in (other.partition("\n") for other in others)}
    return first.removeprefix("// ").strip(), parts.pop("right"), parts


def _text(op: str, shortcut: str, when: str, mechanism: str) -> str:
    parameters, right, _ = _parts(op)
    names = ", ".join(part.rpartition(" ")[2] for part in parameters.split(", "))
    size = "n" if op == "relu" else "rows * cols"
    return TEXT.format(
        mechanism=mechanism,
        op=op,
        parameters=parameters,
        right=right,
        size=size,
        when=when,
        shortcut=shortcut,
        names=names,
    )


def _sizes(part: slice, op: Op, chosen: np.random.Generator) -> list[tuple[str, Workload]]:
    held = op.workloads["heldout"]
    edge = max(op.workloads["edge"], key=lambda size: op.tensor_bytes(size.dims, "float32"))
    sizes = [
        *(("ci", size) for size in op.workloads["ci"]),
        ("heldout", held[int(chosen.integers(len(held)))]),
        ("edge", edge),
    ]
    return sizes[part]


def _judged(one: attack.Attack, folder: Path, seed: int) -> list[AttackEnding]:
    """The attack's ending at the first size, and at the others if it was not caught there."""
    from portkern.redteam import trial

    endings: list[AttackEnding] = []
    for part in (slice(1), slice(1, None)):
        mode = trial.Mode("attacks", partial(_sizes, part), timed=True)
        endings += trial.judged([one], mode, folder, seed=seed)
        if endings[-1].turn is None or not endings[-1].turn.right:
            break
    return endings


def _row(heap: str, endings: Sequence[AttackEnding]) -> dict[str, Any]:
    ending = next((one for one in endings if one.attack.for_time and one.bad), endings[-1])
    turn, cheat = ending.turn, not ending.attack.honest
    unsure = turn and turn.right and turn.noisy and cheat and ending.attack.for_time
    detail = "its time was too noisy to tell what it gained" if unsure else ending.detail
    turn = None if unsure else turn
    # A wrong kernel that passes has succeeded, however uncertain its time is.
    passed = turn is not None and turn.right and cheat and not ending.attack.for_time
    return {
        "of": heap,
        "kernel": ending.attack.name,
        "mechanism": ending.attack.mechanism,
        "honest": ending.attack.honest,
        "verdict": str(turn.verdict) if turn else None,
        "bad": turn is not None and (ending.bad or passed),
        "detail": detail[:200],
    }


if __name__ == "__main__":
    main()
