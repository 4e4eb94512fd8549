"""Whatever stands in a document of others, each reader ends with a value or with portkern's own
error in a line, and nothing outside of the folder that it was given is written."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from portkern.agent import replies
from portkern.agent.constraints import Constraints
from portkern.agent.llm.calls import Calls
from portkern.agent.log import Log
from portkern.agent.memory.graph import MethodGraph
from portkern.cells.selection import Selection
from portkern.errors import PortkernError
from portkern.evaluator.problem_import import ProblemImport
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.execution.returned import Returned
from portkern.execution.slices import Slice
from portkern.execution.slurm_fleet import SlurmCluster
from portkern.experiment.compare import public, suite
from portkern.experiment.compare.page.exchange import Exchanges
from portkern.experiment.compare.sample import Sample
from portkern.formats import (
    backendbench,
    flashinfer_solutions,
    gpu_mode,
    kernelbench_runs,
    robust_kbench,
    trace_set,
    tritonbench,
)
from portkern.formats.kernelbench_baseline import KernelBenchBaseline
from portkern.formats.problem import Item, Problem, distinct
from portkern.formats.table import ImportRow
from portkern.port import build_files, tree
from portkern.port.proof.case import read_cases
from portkern.project import project
from portkern.records import atomic_write
from portkern.records.record import RecordFile
from portkern.regression import document as changes
from portkern.regression.decisions import NightDecisions
from portkern.spec import flashinfer
from portkern.spec.candidate import Candidate
from portkern.spec.from_torch import sheet
from tests import tiers
from tests.report_records import make
from tests.test_strangers_files import DEFINITION, HOST, put, tensors, work
from tests.watch import run_later, watched

#: Cases of `make test` and of `make test-full`.
FEW, MANY = 300, 10_000
#: Documents that are not bombs, and more than that many characters, tell nothing new.
LONG = 10_000


@dataclass(frozen=True)
class Entry:
    """``document`` is a sound one; ``read`` puts a text where it belongs and reads it. ``lines``:
    one JSON document each."""

    document: Any
    read: Callable[[Path, str], object]
    lines: bool = False


# ---- odd words


def word(draw: random.Random, user: Path) -> Any:
    """A word that somebody may write for a name, a path, a number or anything else."""
    up = "../" * draw.randrange(1, 5)
    target = draw.choice([".bashrc", "secret.txt", "new", "weights.safetensors", ""])
    return draw.choice(
        [
            f"{up}user/{target}",
            f"{user}/{target}",
            f"link/{target}",
            f"a/{up}user/{target}",
            f"./{up}{target}",
            "..",
            ".",
            "",
            "/",
            "//etc/passwd",
            "/dev/zero",
            "/proc/self/environ",
            "~/x",
            "-rf",
            "@args",
            "CON",
            "nul.json",
            "a\0b",
            "a\nportkern: note: b",
            "a\x1b[2J",
            "a\\..\\b",
            "\u202egpj",
            "\ud800",
            "日本/語",
            "x" * LONG,
            "9**9**9",
            "1<<10**9",
            "{" * 300,
            "$(id)",
            "`id`",
            "%s%n{0}",
            10**300,
            -1,
            1e308,
            float("nan"),
            float("inf"),
            True,
            None,
            [],
            {},
            [[]],
            {"": ""},
            ["..", {"..": ".."}],
        ]
    )


def mutated(draw: random.Random, value: Any, user: Path, rate: float) -> Any:
    """The value with odd words for some of its parts, whole ones and keys too."""
    if draw.random() < rate:
        return word(draw, user)
    if isinstance(value, dict):
        changed = {}
        for key, inner in value.items():
            name = word(draw, user) if draw.random() < rate else key
            kept = name if isinstance(name, str) else key
            changed[kept] = mutated(draw, inner, user, rate)
        return changed
    if isinstance(value, list):
        return [mutated(draw, inner, user, rate) for inner in value]
    return value


def damaged(draw: random.Random, text: str) -> str:
    """The text itself, sometimes cut, doubled, or with a character that does not belong."""
    at = draw.randrange(len(text) + 1)
    return draw.choice(
        [text] * 12
        + [
            text[:at],
            text + text,
            text[:at] + draw.choice("\0\n\t\"'[]{}&*!,:\ud800\ufeff") + text[at:],
            text[:at] + "[" * LONG,
        ]
    )


# ---- readers


def _imported(items: list[Item], folder: Path) -> None:
    """Imports the items as far as an import writes before it runs anything."""
    work_ = ProblemImport(folder / "out")
    for item in distinct(items):
        if isinstance(item, Problem):
            path = work_.path_of(item)
            atomic_write.write(path, item.data)
            for suffix, data in item.beside.items():
                atomic_write.write(path.with_suffix(suffix), data)
            if item.suffix == ".json":
                flashinfer.load(path)


def _plan(folder: Path, text: str) -> None:
    plan = ExecutionPlan.from_json(text)
    plan = plan.model_copy(update={"id": plan._digest()})
    ExecutionPlan.parse(plan.to_json(), "plan").load_cells(folder / "ops")


def _trace_set(folder: Path, text: str) -> None:
    put(folder / "definitions/x/a.json", text)
    put(folder / "workloads/x/a.jsonl", work("w.safetensors") + f"\n{text}\n")
    _imported(trace_set.read(folder), folder)


def _workloads(folder: Path, text: str) -> None:
    put(folder / "definitions/x/a.json", json.dumps(DEFINITION))
    put(folder / "workloads/x/a.jsonl", text)
    _imported(trace_set.read(folder), folder)


def _solutions(folder: Path, text: str) -> None:
    put(folder / "definitions/x/scaled.json", json.dumps(DEFINITION))
    put(folder / "solutions/a/b.json", text)
    put(folder / "traces/a.jsonl", text)
    flashinfer_solutions.project(folder, folder).write(folder / "out", "x")


def _notes(folder: Path, text: str) -> None:
    (folder / "library").mkdir()
    put(folder / "library/k.cu", "__global__ void k() {}\n")
    put(folder / "notes" / tree.MANIFEST, text)
    tree.write(
        folder / "library", [], folder / "ported", notes=folder / "notes", avoid=(), fresh=True
    )


def _samples(folder: Path, text: str) -> None:
    place = Exchanges(folder)
    for line in text.splitlines():
        place.of(Sample.from_json(line))


def _suite(folder: Path, text: str) -> None:
    put(folder / "rows.jsonl", text)
    for one in suite.expand([str(folder)]):
        assert Path(one.source).resolve().is_relative_to(folder)


def _reply(folder: Path, text: str) -> None:
    said = _said(text).decode()
    for block in replies.blocks(said)[0]:
        Candidate("relu", "cpu", "c++", block.code, "relu").turn({})
    for value in replies.objects(said):
        json.dumps(value)


def _rows(folder: Path, text: str) -> None:
    _imported(tritonbench.read(put(folder / "r.jsonl", text)), folder)


def _results(folder: Path, text: str) -> None:
    put(folder / "eval_results.json", text)
    kernelbench_runs.project(kernelbench_runs.read(folder), folder).write(folder / "out", "x")


def _cluster(folder: Path, text: str) -> None:
    for one in SlurmCluster.read(put(folder / "cluster.yaml", text)).partitions:
        assert (folder / one.name).parent == folder


@cache
def _asked() -> Slice:
    cells = Selection(["relu"], [HOST], ["cpu"], ["ci"], ["float32"]).cells()
    return Slice("night", tuple(cells[:1]), TrialOptions())


def _answer(folder: Path, text: str) -> None:
    """Reads the answer of a node that was asked for one cell."""
    try:
        _asked().records(text.splitlines())
    except ValueError as error:
        assert "expected" in str(error)


def _said(text: str) -> bytes:
    """The texts of a document, a line each."""
    return "\n".join(map(str, _leaves(json.loads(text)))).encode("utf-8", "replace")


def _build_file(name: str) -> Callable[[Path, str], object]:
    def read(folder: Path, text: str) -> object:
        return build_files.read(put(folder / name, _said(text)), folder)

    return read


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value


def _file(name: str, read: Callable[[Path], object]) -> Callable[[Path, str], object]:
    return lambda folder, text: read(put(folder / name, text))


def _sheet(folder: Path, text: str) -> None:
    sheet.read(text, "x.op.yaml").op("def f(x):\n    return x\n")


SHEET = {
    "name": "f",
    "file": "x.py",
    "operator": "f",
    "kind": "function",
    "traced": "all sizes",
    "axes": {"n": 4},
    "derived": {"m": "n * 2"},
    "requires": ["n % 2 == 0"],
    "inputs": {"x": {"shape": ["n"]}},
    "outputs": {"y": {"shape": ["m"]}},
    "arguments": ["x"],
    "dtypes": ["float32"],
    "flops": "n",
    "workloads": {"ci": [{"n": 4}]},
    "file_sha256": "0",
}
SOLUTION = {
    "name": "s",
    "definition": "scaled",
    "spec": {"language": "triton", "entry_point": "m.py::run", "destination_passing_style": True},
    "sources": [{"path": "m.py", "content": "def run(x):\n    return x\n"}],
    "solution": "s",
    "evaluation": {"status": "PASSED"},
}
ROW = {
    "name": "relu",
    "file": "x.py",
    "torch_code": "def relu(x):\n    return x\n",
    "example": "relu(1)",
}
PROJECT = {
    "kernels": [
        {"source": "k.cpp", "op": "relu", "include": ["a"], "defines": ["A=1"], "variant": "v"}
    ],
    "ops": ["x.json"],
    "include": ["a"],
    "expect": [{"op": "relu", "backend": "cpu", "target": HOST}],
}
CLUSTER = {
    "cluster": "local",
    "folder": "jobs",
    "partitions": [{"name": "a", "targets": [HOST], "jobs": 2, "submit": {"timeout_min": 5}}],
}
CASE = {"kernel": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "shared": 0, "template": ["4"]}
CASE |= {"arguments": [{"name": "n", "kind": "scalar", "dtype": "int32", "value": 4}]}
GRAPH = {"nodes": [{"name": "a", "text": "b"}], "steps": [{"source": "", "to": "a"}]}
LISTED = {
    "sources": ["set(a x)", "include_directories(${a} ../x)", "I = -I../x", "all:", "\tnvcc $(I)"]
}
REPLY = ["```cpp", "#define B 4  // knob: 4 8", "```", '{"ideas":', "[1,]", "}"]
ATTEMPT = {"schema": 1, "id": "a"}
CALL = {"schema": 1, "id": "a", "digest": "d", "role": "coder", "model": "m", "messages": []}
SETUP = ["from x import *", "a = ['k.cu']", "Extension('x', a, include_dirs=['a', '../x'])"]


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Entry]:
    home = tmp_path_factory.mktemp("sound")
    _asked()  # looks at this machine
    put(home / "scaled.json", json.dumps(DEFINITION))
    put(home / "scaled.jsonl", work("w.safetensors"))
    put(home / "w.safetensors", tensors())
    asked = Selection([str(home / "scaled.json")], [HOST], ["cpu"], ["ci"], ["float32"])
    plan = ExecutionPlan.of(replace(asked, elsewhere=True).cells(), TrialOptions(), "night")
    record = json.loads(make(run="night#0123456789abcdef").to_json())
    sample = Sample(
        model="m", op="relu", backend="cpu", target=HOST, index=0, status=None, path="a#b"
    )
    row = ImportRow(name="x", group="g", place="p", file="x.py", traced="all sizes")
    good = json.loads(row.to_json()) | {
        "answered": [{"dims": {}, "elements": 1, "finite": True, "seconds": 0.1}]
    }
    results = {"1": [{"sample_id": 0, "compiled": True, "correctness": True, "runtime": 1.0}]}
    return {
        "plan": Entry(json.loads(plan.to_json()), _plan),
        "definition": Entry(DEFINITION, _file("x.json", flashinfer.load)),
        "trace set": Entry(DEFINITION, _trace_set),
        "workloads": Entry([json.loads(work("w.safetensors"))] * 2, _workloads, lines=True),
        "solutions": Entry(SOLUTION, _solutions),
        "rows": Entry([ROW] * 2, _rows, lines=True),
        "task": Entry(
            {"files": [{"name": "reference.py", "source": "../r.py"}], "tests": [{"n": 1}]},
            lambda f, t: _imported(gpu_mode.read(_set(f, "task.yml", t)), f),
        ),
        "robust": Entry(
            {"single_input_configs": [{"n": 1}], "single_shared_configs": [{}]},
            lambda f, t: _imported(robust_kbench.read(_set(f, "config_forward.json", t)), f),
        ),
        "operator trace": Entry(
            ["Operator: aten.relu.default", "cnt: 1, ((T([2], f32),), {})"],
            lambda f, t: _imported(backendbench.read(put(f / "t.txt", _said(t))), f),
        ),
        "results": Entry(results, _results),
        "public": Entry(results, _file("eval_results.json", lambda p: public.load([str(p)]))),
        "baseline": Entry(
            {"level1": {"1_a.py": {"mean": 1.0}}}, _file("b.json", KernelBenchBaseline.read)
        ),
        "sheet": Entry(SHEET, _sheet),
        "project": Entry(PROJECT, _file("portkern.yaml", lambda p: project.find(str(p), ""))),
        "rows of an import": Entry([good], _suite, lines=True),
        "records": Entry([record], _file("r.jsonl", lambda p: RecordFile(p).read()), lines=True),
        "returned": Entry([record], _file("r.jsonl", Returned.read), lines=True),
        "cluster": Entry(CLUSTER, _cluster),
        "answer of a node": Entry([record], _answer, lines=True),
        "samples": Entry([json.loads(sample.to_json())], _samples, lines=True),
        "attempts": Entry([ATTEMPT], _file("attempts.jsonl", Log.read), lines=True),
        "calls": Entry([CALL], _file("calls.jsonl", Calls.recorded), lines=True),
        "constraints": Entry({"never": ["atomics"]}, _file("c.yaml", Constraints.read)),
        "graph": Entry(GRAPH, _file("g.yaml", MethodGraph.read)),
        "decisions": Entry(
            {"accepted": [{"op": "relu", "from": "n", "why": "x"}]},
            _file("decisions.yaml", lambda p: NightDecisions.read(p.parent)),
        ),
        "changes": Entry(
            {"before": "a", "after": "b", "cells": []},
            _file(changes.FILE, lambda p: changes.read(p.parent)),
        ),
        "case": Entry(CASE, _file("k.yaml", read_cases)),
        "notes": Entry({"folder": "x", "files": ["k.hip"]}, _notes),
        "reply": Entry(REPLY, _reply),
        "CMakeLists": Entry(LISTED, _build_file("CMakeLists.txt")),
        "Makefile": Entry(LISTED, _build_file("Makefile")),
        "setup": Entry(SETUP, _build_file("setup.py")),
    }  # fmt: skip


def _set(folder: Path, name: str, text: str) -> Path:
    put(
        folder / "set/r.py",
        "def generate_input(n):\n    return n\n\n\ndef ref_kernel(x):\n    return x\n",
    )
    put(
        folder / "set/grp/func_forward.py",
        "class Model:\n    pass\n\n\ndef get_inputs(n):\n    pass\n",
    )
    put(folder / "set/grp" / name, text)
    return folder / "set"


# ---- the fuzz


@contextmanager
def guarded(top: Path, also: Path) -> Iterator[Callable[[], Path]]:
    """Makes folders to read in, one at a time, beside a user's; nothing but those changes."""
    user, box = top / "user", top / "a" / "b" / "box"
    for name in (".bashrc", "secret.txt", "weights.safetensors"):
        put(user / name, tensors() if name.endswith("s") else "the user's own\n")
    shutil.copytree(user, top / "a" / "user")
    before = {path: path.stat().st_mtime_ns for path in top.rglob("*")}

    def fresh() -> Path:
        shutil.rmtree(box, ignore_errors=True)
        box.mkdir(parents=True)
        (box / "link").symlink_to(user)
        return box

    with watched([box, box.parent, also]) as beyond:
        yield fresh
    shutil.rmtree(top / "a" / "b")
    assert not beyond
    assert {path: path.stat().st_mtime_ns for path in top.rglob("*")}.keys() == before.keys()
    assert all(
        (top / path).stat().st_mtime_ns == at for path, at in before.items() if path.is_file()
    )


def fuzz(entries: Mapping[str, Entry], seed: int, count: int, top: Path, cache: Path) -> None:
    draw = random.Random(seed)
    sizes = {name: len([*_leaves(entry.document)]) for name, entry in entries.items()}
    with guarded(top, cache) as fresh:
        for number in range(count):
            name = [*entries][number % len(entries)]
            entry, box = entries[name], fresh()
            rate = draw.choice([0.5, 1, 3]) / (1 + sizes[name])
            made = mutated(draw, entry.document, top / "user", rate)
            if entry.lines:
                rows = made if isinstance(made, list) else [made]
                text = "".join(json.dumps(one) + "\n" for one in rows)
            else:
                text = json.dumps(made, ensure_ascii=draw.random() < 0.8)
            plain = name in ("CMakeLists", "Makefile", "setup", "operator trace", "reply")
            text = text if plain else damaged(draw, text)
            text = text.encode("utf-8", "replace").decode()
            try:
                entry.read(box, text)
            except PortkernError as error:
                said = str(error)
                assert name == "project" or "\n" not in said, f"{name} {number}: {said!r}"
            except Exception as error:
                raise AssertionError(f"{name}, case {number} of {seed}: {text[:600]!r}") from error


def test_odd_names_and_values_change_no_file_elsewhere_and_raise_nothing_of_others(
    entries: Mapping[str, Entry], tmp_path: Path, session_cache: Path
) -> None:
    fuzz(entries, 44, FEW, tmp_path, session_cache)


@pytest.mark.full
def test_ten_thousand_odd_names_and_values_change_no_file_elsewhere(
    entries: Mapping[str, Entry], tmp_path: Path, session_cache: Path
) -> None:
    """Other ones each day, by the commit's date: what mends a failure is tried on the same."""
    seed = random.Random(tiers.day_of(Path(__file__).parent)).randrange(1 << 32)
    fuzz(entries, seed, MANY, tmp_path, session_cache)


def test_what_ssh_itself_writes_is_not_run_later(tmp_path: Path) -> None:
    for name in ("config", "known_hosts", "known_hosts.old"):
        put(tmp_path / ".ssh" / name, "x")
    (tmp_path / ".ssh" / "sockets").mkdir()
    os.mkfifo(tmp_path / ".ssh" / "master")
    assert [one.name for one in map(Path, run_later(tmp_path, tmp_path / "etc"))
            if one.is_relative_to(tmp_path)] == ["config"]  # fmt: skip


def test_the_watch_sees_every_way_to_change_a_file(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "link").symlink_to(other)
    put(other / "there", "x")
    ways: list[Callable[[], object]] = [
        lambda: (other / "new").write_text("x"),
        lambda: (own / "link" / "new").write_text("x"),
        lambda: (own / ".." / "other" / "new").write_text("x"),
        lambda: (other / "folder").mkdir(),
        lambda: (other / "folder").rmdir(),
        lambda: (other / "link").symlink_to("x"),
        lambda: (own / "a").rename(other / "a"),
        lambda: (other / "a").unlink(),
        lambda: (other / "there").chmod(0o600),
        lambda: (other / "hard").hardlink_to(own / "b"),
        lambda: shutil.copy(own / "b", other / "b"),
        lambda: atomic_write.write(other / "there", "y"),
    ]
    put(own / "a", "x")
    put(own / "b", "x")
    for way in ways:
        with watched([own]) as beyond:
            (own / "c").write_text("x")
            (other / "there").read_text()
            assert not beyond
            way()
        assert beyond
