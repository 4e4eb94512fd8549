"""Runs as data sets: what goes in, what stays out, and what trainers' own tools say of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portkern.agent.attempt import Attempt, Status
from portkern.agent.axes import PromptMessage
from portkern.agent.llm.calls import ModelCall
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.learn import dataset, near
from portkern.learn.dataset import DataOptions, DataSet
from portkern.learn.families import family_of
from portkern.learn.near import ComparedText
from portkern.learn.sample import Collected
from portkern.ops import load, names
from portkern.records.jsonl import LineFile
from portkern.records.record import Record, RecordFile, Verdict
from portkern.spec.candidate import Candidate
from tests.report_records import make

pytest.importorskip("datasketch", reason="the package datasketch is not installed")


@dataclass(frozen=True)
class Tried:
    """How an attempt ended: ``fast`` are the ends of its speedup, () where it is wrong."""

    source: str
    fast: Sequence[float] = ()
    verdict: Verdict = Verdict.PASSED
    parents: tuple[str, ...] = ()
    op: str = "relu"
    target: str = "h200"
    backend: str = "cuda"
    reply: str | None = None
    noisy: str = ""


def kernel(*words: str, op: str = "relu") -> str:
    """A source that has little in common with one of other words."""
    body = "\n".join(f"  {w} = {w}_{w}({w}, {w}[{w}]) * {w}{w};" for w in words)
    return f'extern "C" int {op}() {{\n{body}\n  return 0;\n}}\n'


def attempt_of(number: int, tried: Tried, calls: tuple[str, ...]) -> Attempt:
    candidate = Candidate(tried.op, tried.backend, "cuda", tried.source, entry=tried.op)
    return Attempt(
        id=f"{number}.0",
        slot=number,
        number=0,
        turn=1 + len(tried.parents),
        parents=tried.parents,
        op=tried.op,
        target=tried.target,
        backend=tried.backend,
        language="cuda",
        author="openai/x" if tried.reply else "catalogue",
        source=tried.source,
        digest=candidate.digest,
        status=Status(str(tried.verdict)),
        records=(f"r{number}",),
        calls=calls,
    )


def record_of(number: int, tried: Tried) -> Record:
    common = {"id": f"r{number}", "op": tried.op, "target": tried.target}
    if not tried.fast:
        return make(
            **common,
            verdict=tried.verdict,
            evidence="verified" if tried.verdict is Verdict.PASSED else "none",
            timing=None,
            speedup={},
            baselines={},
            missing="why",
        )
    low, high = tried.fast
    timed = make().timing
    assert timed is not None
    return make(
        **common,
        timing=timed.model_copy(update={"noisy": tried.noisy}),
        speedup={"eager": {"value": low, "ci95": (low, high)}},
    )


def run(tmp_path: Path, name: str, *several: Tried) -> Path:
    folder = tmp_path / name
    attempts, calls = [], []
    for number, tried in enumerate(several):
        ids: tuple[str, ...] = ()
        if tried.reply is not None:
            ids = (f"{number}/coder#1",)
            asked = (PromptMessage("user", f"write {tried.op}"),)
            calls.append(
                ModelCall(
                    id=ids[0],
                    digest="d",
                    role="coder",
                    model="openai/x",
                    messages=asked,
                    reply=tried.reply,
                )
            )
        attempts.append(attempt_of(number, tried, ids))
    LineFile(folder / "attempts.jsonl", Attempt.from_json).append(attempts)
    LineFile(folder / "calls.jsonl", ModelCall.from_json).append(calls)
    RecordFile(folder / "records.jsonl").append(record_of(*one) for one in enumerate(several))
    return folder


def built(form: str, *folders: Path, **options: Any) -> DataSet:
    collected = Collected()
    for folder in folders:
        collected.read(folder)
    return dataset.build(collected, DataOptions(form, **options))


A, B, C, D = (kernel(*words) for words in ("abc", "def", "ghi", "jkl"))


def test_chats_are_of_right_kernels_with_the_models_own_words(tmp_path: Path) -> None:
    reply = f"I made it so.\n```cuda\n{A}```\n"
    folder = run(
        tmp_path,
        "one",
        Tried(A, (2, 3), reply=reply),
        Tried(B, verdict=Verdict.WRONG),
        Tried(C, (2, 3), noisy="busy"),
        Tried(D, verdict=Verdict.UNAVAILABLE),
    )
    made = built("sft", folder)
    [row] = made.train
    assert row["messages"] == [
        {"role": "user", "content": "write relu"},
        {"role": "assistant", "content": reply},
    ]
    assert (row["reward"], row["speedup_low"], row["license"]) == (2.3, 2, "outputs of openai/x")
    assert made.left_out["a workload could not be evaluated"] == 1


def test_an_author_that_is_not_a_model_gets_the_prompt_that_a_model_would(tmp_path: Path) -> None:
    [row] = built("sft", run(tmp_path, "one", Tried(A, (2, 3)))).train
    messages: Any = row["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert "relu" in messages[1]["content"]
    assert messages[2]["content"] == f"```cuda\n{A}```"
    assert row["license"] == "Apache-2.0"


def test_a_pair_is_better_beyond_doubt(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        "one",
        Tried(A, (2.0, 2.2)),
        Tried(B, (1.0, 1.1)),
        Tried(C, (1.05, 2.1)),
        Tried(D, verdict=Verdict.WRONG),
    )
    pairs = {(r["attempt"], r["why"], r["rejected_verdict"]) for r in built("dpo", folder).train}
    assert pairs == {
        ("0.0", "faster", "passed"),
        ("0.0", "right", "wrong"),
        ("1.0", "right", "wrong"),
        ("2.0", "right", "wrong"),
    }


def test_a_pair_of_a_source_that_is_right_elsewhere_says_so(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        "one",
        Tried(A, (2, 3), target="h200", backend="cuda"),
        Tried(A, verdict=Verdict.WRONG, target="gfx942", backend="cuda"),
        Tried(B, (1, 2), target="gfx942", backend="cuda"),
    )
    [row] = built("dpo", folder).train
    assert (row["why"], row["rejected_right_on"]) == ("cross_target", ["h200"])


def test_pairs_are_of_one_task(tmp_path: Path) -> None:
    one = Tried(A, (2, 3))
    other = Tried(kernel("mno", op="gelu"), verdict=Verdict.WRONG, op="gelu")
    assert not built("dpo", run(tmp_path, "one", one, other)).train


def test_a_turn_is_credited_with_what_it_led_to(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        "one",
        Tried(A, verdict=Verdict.WRONG),
        Tried(B, (2.0, 2.0), parents=("0.0",)),
        Tried(C, verdict=Verdict.WRONG, parents=("0.0",)),
        Tried(D, (1.0, 1.0), parents=("0.0", "1.0")),
    )
    rows = {str(r["attempt"]): r for r in built("rl", folder).train}
    assert [rows[f"{n}.0"]["reward"] for n in range(4)] == [0, 2.3, 0, 1.3]
    assert rows["0.0"]["return"] == pytest.approx(0.4 * 2.3)
    assert rows["1.0"]["return"] == 2.3
    assert len({r["group"] for r in rows.values()}) == 1


def test_concur_keeps_a_task_whose_shortest_answer_is_its_fastest(tmp_path: Path) -> None:
    def tried(*lengths: int) -> list[Tried]:
        sources = [kernel("w" * (n + 2)) for n in range(len(lengths))]
        return [
            Tried(source, (n + 1, n + 1), reply="." * length + f"\n```cuda\n{source}```\n")
            for n, (source, length) in enumerate(zip(sources, lengths, strict=True))
        ]

    lengths = (900, 800, 700, 600, 1)
    kept = built("sft", run(tmp_path, "kept", *tried(*lengths)), select="concur").train
    assert [row["attempt"] for row in kept] == ["4.0"]
    assert not built("sft", run(tmp_path, "slow", *tried(*lengths[::-1])), select="concur").train
    assert not built("sft", run(tmp_path, "few", *tried(*lengths[1:])), select="concur").train


@pytest.mark.parametrize(("how", "kept"), [("all", 3), ("best", 1), ("faster", 2)])
def test_selections_say_which_right_kernels_are_taught(tmp_path: Path, how: str, kept: int) -> None:
    folder = run(tmp_path, "one", Tried(A, (2, 3)), Tried(B, (1.1, 2)), Tried(C, (0.9, 2)))
    made = built("sft", folder, select=how)
    assert len(made.train) == kept
    with pytest.raises(ConfigError, match="did you mean 'concur'"):
        built("sft", folder, select="concurr")
    with pytest.raises(ConfigError, match="of sft alone"):
        built("rl", folder, select="best")


def test_nearly_the_same_source_is_taught_once_and_the_fastest_is_kept(tmp_path: Path) -> None:
    words = [f"v{n}" for n in range(40)]
    first, near_first = kernel(*words), kernel(*words[:-1], "other") + "// a comment\n"
    folder = run(tmp_path, "one", Tried(first, (1, 2)), Tried(near_first, (3, 4)), Tried(A, (1, 2)))
    assert [row["attempt"] for row in built("sft", folder).train] == ["1.0", "2.0"]
    assert len(built("rl", folder).train) == 3
    again = run(tmp_path, "two", Tried(first, (1, 2)))
    assert len(built("rl", folder, again).train) == 3


def test_rows_for_tests_are_of_families_and_targets_and_do_not_leak(tmp_path: Path) -> None:
    words = [f"v{n}" for n in range(40)]
    mine = Tried(kernel(*words), (2, 3))
    held = Tried(kernel(*words, op="softmax"), (2, 3), op="softmax")
    folder = run(tmp_path, "one", mine, held, Tried(A, (2, 3)))
    made = built("sft", folder, test=("normalisation",))
    assert [row["op"] for row in made.test] == ["softmax"]
    assert [row["attempt"] for row in made.train] == ["2.0"]
    assert made.left_out["too like a row for tests"] == 1
    assert made.nearest < dataset.LEAKS
    with pytest.raises(ConfigError, match="No rows of 'attention'"):
        built("sft", folder, test=("attention",))


def test_rows_of_a_benchmarks_operators_are_marked_or_left_out(tmp_path: Path) -> None:
    problems = tmp_path / "bench" / "level1"
    problems.mkdir(parents=True)
    (problems / "19_Re_LU.py").write_text("class Model: ...\n")
    (problems / "3_other.py").write_text(kernel(*[f"v{n}" for n in range(40)]))
    like = Tried(kernel(*[f"v{n}" for n in range(40)], op="gelu"), (2, 3), op="gelu")
    free = Tried(kernel("xyz", op="add"), (2, 3), op="add")
    folder = run(tmp_path, "one", Tried(A, (2, 3)), like, free)
    against = tmp_path / "bench"
    marked = built("sft", folder, against=against)
    assert [row["overlaps"] for row in marked.train] == [
        ["level1/19_Re_LU.py"],
        ["level1/3_other.py"],
        [],
    ]
    assert "level1/19_Re_LU.py" in dataset.card(marked)
    left = built("sft", folder, against=against, drop_overlaps=True)
    assert [row["op"] for row in left.train] == ["add"]
    with pytest.raises(ConfigError, match="expected a folder"):
        built("sft", folder, against=tmp_path / "nothing")


def test_families_put_like_operators_together() -> None:
    families = {name: family_of(name, load(name).reference_source) for name in names()}
    for family, some in {
        "matmul": "matmul bmm int8_matmul",
        "normalisation": "softmax layernorm rmsnorm",
        "elementwise": "relu gelu add",
        "convolution": "conv2d conv2d_relu_maxpool",
        "attention": "attention",
    }.items():
        assert {families[name] for name in some.split()} == {family}


def test_comments_and_spaces_make_no_source_another() -> None:
    plain = ComparedText("int a = f(b);\nint c = '/' + \"// no comment\";")
    for same in (
        "int a=f(b); // why\nint c = '/' + \"// no comment\";",
        "/* what */ int a = f( b );\n\n int c='/'+\"// no comment\";",
    ):
        assert ComparedText(same).likeness(plain) == 1
    assert ComparedText("").likeness(ComparedText("")) <= 1
    assert near.kept_of({"a": plain, "b": plain}, least=0.9) == (["a"], {"b": "a"})


@pytest.mark.parametrize("form", ["sft", "dpo", "rl"])
def test_what_is_written_loads_in_datasets(tmp_path: Path, form: str) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    odd = kernel("naïve") + "// \u2028 \x00 漢字\n"
    run(
        tmp_path / "reports",
        "one",
        Tried(odd, (2, 3), reply=f"Said \u2028 so.\n```cuda\n{odd}```\n"),
        Tried(B, verdict=Verdict.WRONG),
        Tried(kernel("softly", op="softmax"), (2, 3), op="softmax"),
        Tried(C, (0.5, 0.6)),
    )
    reports, out = f"reports={tmp_path / 'reports'}", tmp_path / "out"
    assert main.run(["export", form, "one", reports, f"out={out}"]) == 0
    told = datasets.load_dataset(
        str(out), cache_dir=str(tmp_path / "cache"), download_mode="force_redownload"
    )["train"]
    lines = [json.loads(line) for line in (out / "train.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert told.to_list() == lines
    chats = {"sft": "messages", "dpo": "chosen", "rl": "completion"}
    assert lines[0][chats[form]][-1]["role"] == "assistant"


def test_a_run_without_attempts_says_what_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["export", "sft", "no-such-run", f"reports={tmp_path}"]) == 2
    assert "'portkern generate' writes them" in capsys.readouterr().err
    assert main.run(["export", "sft", f"reports={tmp_path}"]) == 2


def test_a_comment_that_never_ends_takes_no_time() -> None:
    begun = time.process_time()
    assert ComparedText("/* " * 300_000).grams is not None
    assert time.process_time() - begun < 5
