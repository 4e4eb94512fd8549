"""Attacks by files: plans, data sets, notes and records that name what is not theirs. Each ends in
one line, and nothing outside of the folder that was asked for is read, written or removed."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest

from portkern import ops
from portkern.agent import approval, outcome
from portkern.agent.llm.calls import CallCache
from portkern.cells.selection import Selection, host_targets
from portkern.cli import main
from portkern.cli.verbs import run_folder
from portkern.errors import (
    ConfigError,
    PortkernError,
    RecordError,
    ReferenceFailed,
    StorageError,
    ToolError,
)
from portkern.evaluator import inputs
from portkern.evaluator.from_torch import OperatorFile
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.experiment.compare import suite
from portkern.formats import (
    gpu_mode,
    kernelbench,
    kernelbench_hard,
    multikernelbench,
    rows,
    trace_set,
    tritonbench,
)
from portkern.formats.problem import Problem, distinct
from portkern.port import tree
from portkern.project.document import ProjectFile
from portkern.records import packed
from portkern.records.record import RecordFile
from portkern.regression import decisions, document, reference_file, runs
from portkern.simt.translate.rewrite import rewrite_tree
from portkern.spec import companions, flashinfer
from portkern.spec.expression import Expression
from portkern.spec.from_torch import sheet
from portkern.spec.op import StoredTensor, Workload
from portkern.toolchain.git import run_git
from portkern.tracking import once, webhook
from tests.report_records import make

HOST = host_targets()[0]
SECRET = "correct horse battery staple"
MODULE = f"# {SECRET}\n" + (
    "def generate_input():\n    return ()\n\n\ndef ref_kernel(data):\n    return data\n"
)
DEFINITION: dict[str, Any] = {
    "name": "scaled",
    "op_type": "x",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x * 2\n",
}


def tensors(keep: str = "x") -> bytes:
    header = json.dumps({keep: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


def work(path: str, **axes: int) -> str:
    given = {"type": "safetensors", "path": path, "tensor_key": "x"}
    said = {"uuid": path[-40:] or "w", "axes": axes or {"n": 4}, "inputs": {"x": given}}
    return json.dumps({"definition": "scaled", "workload": said, "solution": None})


@dataclass(frozen=True)
class Scene:
    """``user`` is what a stranger must not reach, ``box`` the folder of what came from outside."""

    user: Path
    box: Path

    @classmethod
    def at(cls, folder: Path) -> Scene:
        scene = cls(folder / "user", folder / "box")
        scene.user.mkdir()
        scene.box.mkdir()
        (scene.user / ".bashrc").write_text("alias ls=ls\n")
        (scene.user / "secret.txt").write_text(SECRET)
        (scene.user / "private.py").write_text(MODULE)
        (scene.user / "weights.safetensors").write_bytes(tensors())
        return scene

    def seen(self) -> Mapping[str, bytes]:
        return {str(p): p.read_bytes() for p in sorted(self.user.rglob("*")) if p.is_file()}

    def leaks(self) -> Iterator[Path]:
        """Files of what was written that hold what is the user's."""
        for path in self.box.rglob("*"):
            if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
                yield path


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene.at(tmp_path)
    monkeypatch.chdir(scene.box)
    before = scene.seen()
    yield scene
    assert scene.seen() == before
    assert not [*scene.leaks()]


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def one_line(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    assert main.run(list(argv)) == code
    said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(said) == 1, said
    return said[0]


# ---- plans


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> ExecutionPlan:
    """A plan of an operator that has files."""
    folder = tmp_path_factory.mktemp("good")
    put(folder / "scaled.json", json.dumps(DEFINITION))
    put(folder / "scaled.jsonl", work("w.safetensors"))
    put(folder / "w.safetensors", tensors())
    asked = Selection([str(folder / "scaled.json")], [HOST], ["cpu"], ["ci"], ["float32"])
    return ExecutionPlan.of(replace(asked, elsewhere=True).cells(), TrialOptions(), "night")


def forged(plan: ExecutionPlan, **changes: object) -> str:
    """A changed plan, with the digest that its content has."""
    changed = plan.model_copy(update=changes)
    return changed.model_copy(update={"id": changed._digest()}).model_dump_json(by_alias=True)


def renamed(plan: ExecutionPlan, key: str, **changes: object) -> str:
    (op,) = plan.ops.values()
    cells = [cell.model_copy(update={"op": key}) for cell in plan.cells]
    return forged(plan, ops={key: op.model_copy(update=changes)}, cells=cells)


def changed(plan: ExecutionPlan, **changes: object) -> str:
    (name,) = plan.ops
    return renamed(plan, name, **changes)


def elsewhere_stored(plan: ExecutionPlan, path: str) -> str:
    (op,) = plan.ops.values()
    workloads = {
        which: [one.model_copy(update={"stored": {"x": (path, "x")}}) for one in several]
        for which, several in op.workloads.items()
    }
    return changed(plan, workloads=workloads)


def with_kernel(plan: ExecutionPlan, **changes: str) -> str:
    from portkern.spec.candidate import Candidate

    kernel = Candidate("scaled", "cpu", "c++", "// nothing", "scaled")
    return forged(plan, kernels={"k": replace(kernel, **changes)})  # type: ignore[arg-type]


PLANS: Mapping[str, Callable[[ExecutionPlan, Scene], str]] = {
    "key_upwards": lambda plan, s: renamed(plan, "../../../user", files={".bashrc": "echo\n"}),
    "key_absolute": lambda plan, s: renamed(plan, str(s.user)),
    "key_null": lambda plan, s: renamed(plan, "scaled\0.json"),
    "key_line": lambda plan, s: renamed(plan, "scaled\nportkern: note: all is well"),
    "key_long": lambda plan, s: renamed(plan, "x" * 10_000),
    "key_device": lambda plan, s: renamed(plan, "CON"),
    "key_dash": lambda plan, s: renamed(plan, "-rf"),
    "key_hidden": lambda plan, s: renamed(plan, ".ssh"),
    "key_marks": lambda plan, s: renamed(plan, "scaled\u202ejson"),
    "file_upwards": lambda plan, s: changed(plan, files={"../../user/.bashrc": "echo\n"}),
    "file_hidden": lambda plan, s: changed(plan, files={".bashrc": "echo\n"}),
    "files_of_one_name": lambda plan, s: changed(plan, files={"A.py": "1", "a.py": "2"}),
    "asked_elsewhere": lambda plan, s: changed(plan, asked=f"{s.user}/private.py"),
    "asked_upwards": lambda plan, s: changed(plan, asked="../../../../user/private.py"),
    "asked_not_there": lambda plan, s: changed(plan, asked="other.json"),
    "stored_elsewhere": lambda plan, s: elsewhere_stored(plan, f"{s.user}/weights.safetensors"),
    "stored_upwards": lambda plan, s: elsewhere_stored(plan, "../../user/weights.safetensors"),
    "kernel_op": lambda plan, s: with_kernel(plan, op="../../user/.bashrc"),
    "kernel_entry": lambda plan, s: with_kernel(plan, entry=f"{s.user}/x"),
}


@pytest.mark.parametrize("attack", PLANS)
def test_a_plan_writes_and_reads_nothing_but_its_own(
    attack: str, good: ExecutionPlan, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(scene.box / "plan.json", PLANS[attack](good, scene))
    said = one_line(capsys, "execute", str(path))
    assert "Got the " in said and "expected" in said


def test_a_plan_that_is_its_own_is_still_loaded(good: ExecutionPlan, scene: Scene) -> None:
    path = put(scene.box / "plan.json", forged(good))
    (cell,) = ExecutionPlan.read(path).load_cells(scene.box / "ops")
    assert cell.workload.stored["x"].path.is_relative_to(scene.box / "ops" / "scaled")


# ---- tensors that a document names


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../user/secret.txt", "leads upwards"),
        ("../user/weights.safetensors", "leads upwards"),
        ("{user}/secret.txt", "elsewhere"),
        ("{user}/weights.safetensors", "elsewhere"),
        ("link/weights.safetensors", "elsewhere"),
        ("link.safetensors", "elsewhere"),
        ("/proc/self/environ", "elsewhere"),
        ("notes.safetensors", "not a safetensors file"),
        ("long.safetensors", "not a safetensors file"),
        ("short.safetensors", "not a safetensors file"),
        ("hole.safetensors", "not a safetensors file"),
        ("pipe.safetensors", "not a safetensors file"),
        ("many.safetensors", "60000 tensors, expected at most 50000"),
        ("wide.safetensors", "than 16 MiB"),
        ("a\0b", "cannot be a name"),
        ("x" * 5_000, "longer than"),
    ],
)
def test_a_workload_carries_no_file_that_is_not_its_tensors(
    path: str, said: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    (scene.box / "link").symlink_to(scene.user)
    (scene.box / "link.safetensors").symlink_to(scene.user / "weights.safetensors")
    os.mkfifo(scene.box / "pipe.safetensors")
    put(scene.box / "notes.safetensors", "a diary\n" * 9)
    put(scene.box / "long.safetensors", struct.pack("<Q", 1 << 60) + b"{}")
    put(scene.box / "short.safetensors", tensors()[:-4])
    empty = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    many = json.dumps({str(n): empty for n in range(60_000)}).encode()
    put(scene.box / "many.safetensors", struct.pack("<Q", len(many)) + many)
    put(scene.box / "wide.safetensors", struct.pack("<Q", 17 << 20) + b"{}" + b" " * (17 << 20))
    put(scene.box / "hole.safetensors", tensors() + b"what a tensor does not hold")
    put(scene.box / "scaled.json", json.dumps(DEFINITION))
    put(scene.box / "scaled.jsonl", work(path.format(user=scene.user)))
    asked = ["ops=[scaled.json]", "backends=[cpu]", f"targets=[{HOST}]", "workloads=ci"]
    assert said in one_line(capsys, "matrix", *asked, "plan=p.json")
    assert not (scene.box / "p.json").exists()


def test_a_trace_set_brings_its_tensors_and_nobody_elses(scene: Scene) -> None:
    (scene.box / "blob").mkdir()
    put(scene.box / "blob/own.safetensors", tensors())
    (scene.box / "blob/link.safetensors").symlink_to(scene.user / "weights.safetensors")
    put(scene.box / "definitions/x/a.json", json.dumps(DEFINITION))
    lines = [work("./blob/own.safetensors"), work("blob/link.safetensors"), work("../user/x"), "{"]
    lines += [work("blob/own.safetensors", n=1 << 70), work("blob/own.safetensors", n=4, m=1)]
    put(scene.box / "workloads/x/a.jsonl", "\n".join(lines))
    problem, *bad = trace_set.read(scene.box)
    assert isinstance(problem, Problem)
    assert [*problem.tensors.values()] == [scene.box / "blob/own.safetensors"]
    assert problem.beside[".jsonl"].count(b"\n") == 1, "the good one stays"
    assert [int(one.place.rpartition(":")[2]) for one in bad] == [2, 3, 4, 5, 6]


# ---- data sets


@pytest.mark.parametrize(
    "kind", ["../../../user", "..", ".", "a/b", "a\\b", "a\0b", "a\nb", "x" * 10_000, "-x", "NUL"]
)
def test_the_type_of_a_definition_is_not_a_path(
    kind: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    put(scene.box / "in/definitions/x/a.json", json.dumps(DEFINITION | {"op_type": kind}))
    assert main.run(["import", "flashinfer", "in", "out=out", "json=true"]) == 3
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["reason"].startswith("Got the op_type ") and "\n" not in row["reason"]
    assert {path.name for path in (scene.box / "out").rglob("*")} <= {
        "rows.jsonl", "table.json", "table.md"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["../../user/x", "a\0", "..", "-rf", "CON", "日本", "x" * 10_000])
def test_names_of_problems_become_names_of_files(name: str) -> None:
    several = distinct([Problem(name, name, "", b""), Problem(name.upper(), name, "", b"")])
    places = {f"{one.group}/{one.name}".casefold() for one in several}
    assert len(places) == 2
    for one in several:
        for part in (one.name, one.group):
            assert part == Path(part).name and part[0] not in ".-" and len(part.encode()) <= 210


def test_a_task_takes_no_module_from_elsewhere(scene: Scene) -> None:
    task = "files:\n- {{name: reference.py, source: {source}}}\ntests: [{{}}]\n"
    (scene.box / "set/grp").mkdir(parents=True)
    put(scene.box / "set/shared.py", MODULE.replace(SECRET, "shared"))
    (scene.box / "set/grp/link.py").symlink_to(scene.user / "private.py")
    for source in ("../../../user/private.py", f"{scene.user}/private.py", "link.py"):
        put(scene.box / "set/grp/task.yml", task.format(source=source))
        (item,) = gpu_mode.read(scene.box / "set")
        assert not isinstance(item, Problem) and "expected a path within" in item.reason
    put(scene.box / "set/grp/task.yml", task.format(source="../shared.py"))
    (item,) = gpu_mode.read(scene.box / "set")
    assert isinstance(item, Problem), "what lies in the collection is its own"


def test_a_row_takes_no_file_from_elsewhere_and_costs_no_other(scene: Scene) -> None:
    call = {"torch_code": "def relu(x):\n    return x\n", "example": "relu(torch.ones(3))"}
    odd: list[Any] = [
        {"name": "relu", "file": "../../user/private.py"} | call,
        {"name": "relu", "file": f"{scene.user}/private.py"} | call,
        {"name": "../../user/private"} | call,
        {"name": "relu", "torch_code": "(" * 5_000, "example": "relu(1)"},
        {"name": "relu", "torch_code": "x", "example": "-" * 50_000 + "1"},
        {"name": "relu", "torch_code": "x", "example": ">>> " + "a " * 20_000},
        {"name": "relu", "torch_code": "a" + "+a" * 5_000, "example": "b" + ".b" * 5_000},
        {"name": "relu", "torch_code": "\0", "example": "\ud800"},
        {"name": 7},
        [],
    ]
    lines = [*map(json.dumps, odd), "[" * 10_000, '{"a": ' + "1" * 5_000 + "}", "{"]
    lines += [json.dumps({"name": "relu"} | call)]
    items = tritonbench.read(put(scene.box / "rows.jsonl", "\n".join(lines)))
    assert [isinstance(item, Problem) for item in items] == [False] * (len(lines) - 1) + [True]


def test_rows_of_an_import_lead_to_no_operator_elsewhere(scene: Scene) -> None:
    from portkern.formats.table import ImportRow, ReferenceCall

    fit = ReferenceCall(dims={}, elements=1, finite=True, seconds=0.0)
    for file in ("../user/private.py", f"{scene.user}/private.py", "a\0b"):
        row = ImportRow(name="x", group="", place="", file=file, traced="all sizes", answered=[fit])
        put(scene.box / "rows.jsonl", row.to_json() + "\n")
        with pytest.raises(ConfigError, match="expected a path within"):
            suite.expand([str(scene.box)])


# ---- notes of an earlier run, and records


@pytest.mark.parametrize(
    "row",
    [{"name": f"{'9' * 5_000}_x"}, {"name": "٣_x"}, {"problem_id": 10**390}, {"level": 10**390}],
)
def test_a_number_without_bounds_costs_no_other_row(row: dict[str, Any], scene: Scene) -> None:
    sound = {"name": "1_a", "level": 1, "problem_id": 1, "code": "class Model: pass\n"}
    text = "".join(json.dumps(one) + "\n" for one in (sound, sound | row))
    items = kernelbench.read(put(scene.box / "rows.jsonl", text), [1])
    assert items[0].name == "1_a"


def test_a_line_is_not_unpacked_beyond_its_bound(scene: Scene) -> None:
    """A file of some hundred kilobytes that holds one line of a hundred megabytes."""
    path = put(scene.box / "night.jsonl.gz", gzip.compress(b"[" * (100 << 20), compresslevel=1))
    assert path.stat().st_size < 1 << 20
    with (
        pytest.raises(RecordError, match="a line of more than 64 MiB"),
        packed.opened(path) as file,
    ):
        list(file)
    with pytest.raises(RecordError, match="a line of more than 64 MiB"):
        reference_file.origin(path)


@pytest.mark.parametrize("begin", [b"", b"\n", b"{"])
def test_a_file_of_records_without_lines_is_not_held_whole(begin: bytes, scene: Scene) -> None:
    """A sparse file, which takes no room and would fill the memory."""
    path = put(scene.box / "records.jsonl", begin)
    os.truncate(path, 1 << 40)
    with pytest.raises(RecordError, match="a line of more than 64 MiB"):
        RecordFile(path).read()
    path.unlink()  # nothing that is read whole afterwards


def test_a_torn_line_longer_than_a_part_is_cut_off_alone(scene: Scene) -> None:
    path = scene.box / "records.jsonl"
    records = RecordFile(path)
    records.append([make()])
    whole = path.read_bytes()
    put(path, whole + b"x" * (3 << 20))
    records.append([make()])
    assert path.read_bytes() == whole * 2
    put(path, b"x" * (3 << 20))
    records.append([make()])
    assert path.read_bytes() == whole


def test_a_table_is_not_unpacked_beyond_its_bound(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of a MiB that is there once and in each of 100,000 rows: a file of kilobytes."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet

    words = arrow.DictionaryArray.from_arrays(arrow.array([0] * 100_000), ["x" * (1 << 20)])
    path = scene.box / "rows.parquet"
    pyarrow.parquet.write_table(arrow.table({"code": words}), path, store_schema=False)
    assert path.stat().st_size < 1 << 20
    monkeypatch.setattr(rows, "MOST_TABLE", 64 << 20)
    read = rows.of(path)
    assert next(read).place.endswith(":1")
    with pytest.raises(ConfigError, match="expected at most"):
        list(read)


#: What reads a stranger's file of this name, and where it stands.
READERS: dict[str, Callable[[Path], Any]] = {
    "level1/1_a.py": lambda path: kernelbench.read(path.parents[1], [1]),
    "s/1_x/reference.py": lambda path: kernelbench_hard.read(path.parents[1]),
    "reference/c/x.py": lambda path: multikernelbench.read(path.parents[2]),
    "rows.parquet": lambda path: list(rows.of(path)),
    "f.py": lambda path: OperatorFile.read(str(path)),
    "g.op.yaml": lambda path: OperatorFile.read(str(path.with_name("g.py"))).sheet(),
    "plan.json": ExecutionPlan.read,
    "kernel.cpp": companions.read_text,
    "portkern.yaml": ProjectFile.read,
    "records.jsonl": lambda path: RecordFile(path).read(),
    f"r/{runs.FACTS}": lambda path: runs.RunFacts.read(path.parent),
    f"r/{document.FILE}": lambda path: document.read(path.parent),
    f"r/{outcome.FILE}": lambda path: outcome.read(path.parent),
    f"r/{decisions.FILE}": lambda path: decisions.NightDecisions.read(path.parent),
    "k.cu": lambda path: rewrite_tree(path, path.with_name("out")),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_has_no_end_is_not_read(name: str, kind: str, scene: Scene) -> None:
    """A pipe that nobody writes to, and a link to a device, as an archive may have both."""
    path = scene.box / name
    path.parent.mkdir(parents=True, exist_ok=True)
    put(scene.box / "s/1_x/problem.yaml", "")
    put(scene.box / "g.py", "def g(x):\n    return x\n")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    try:
        found = READERS[name](path)
    except (PortkernError, OSError) as error:
        assert "it is not a file" in str(error)
    else:
        assert [one.reason.endswith("it is not a file") for one in found] == [True]


def test_notes_remove_no_file_that_is_elsewhere(scene: Scene) -> None:
    out = scene.box / "out"
    out.mkdir()
    names = ["../../user/secret.txt", "../user/.bashrc", f"{scene.user}/private.py", "."]
    said = {"folder": str(out.resolve()), "files": names}
    put(scene.box / "notes" / tree.MANIFEST, json.dumps(said))
    (scene.box / "library").mkdir()
    tree.write(scene.box / "library", [], out, notes=scene.box / "notes", avoid=(), fresh=True)


@pytest.mark.parametrize("kind", ["link", "pipe", "dangling"])
def test_records_are_appended_to_no_file_elsewhere(kind: str, scene: Scene) -> None:
    """A folder of runs of others, in which the user goes on with one."""
    path = scene.box / "records.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(scene.user / (".bashrc" if kind == "link" else ".zshenv"))
    before = sorted(scene.user.iterdir())
    with pytest.raises(StorageError, match="Cannot write"):
        RecordFile(path).append([make()])
    assert sorted(scene.user.iterdir()) == before


@pytest.mark.parametrize("name", ["sources", "plans", "samples", "anything"])
def test_a_run_goes_on_in_no_folder_elsewhere(name: str, scene: Scene) -> None:
    """A run of others, of which a folder is a link to one of the user's."""
    run = scene.box / "run"
    run.mkdir()
    (run / name).symlink_to(scene.user)
    before = sorted(scene.user.iterdir())
    with pytest.raises(ConfigError, match="a link to"), run_folder.writing(run):
        pytest.fail("it was written to")
    assert sorted(scene.user.iterdir()) == before


def test_a_question_to_people_is_written_over_no_file_elsewhere(scene: Scene) -> None:
    kept = (scene.user / ".bashrc").read_bytes()
    path = scene.box / "approve.yaml"
    path.symlink_to(scene.user / ".bashrc")
    approval._write(path, "approve: []\n")
    assert (scene.user / ".bashrc").read_bytes() == kept and not path.is_symlink()


@pytest.mark.timeout(60)
def test_notes_that_are_pipes_are_not_waited_for(scene: Scene) -> None:
    for name in (f"{webhook.SPOOL}/1.json", once.NOTE, "calls/d.json"):
        (scene.box / name).parent.mkdir(exist_ok=True)
        os.mkfifo(scene.box / name)
    assert webhook._waiting(scene.box / webhook.SPOOL, "to") == {}
    assert once._read(scene.box) == {}
    asked: Any = SimpleNamespace(digest="d")
    assert CallCache(scene.box / "calls").get(asked, "") is None


# ---- checkouts

#: Settings and files of a checkout by which git starts a command, which makes MARK.
STARTED: dict[str, dict[str, str]] = {
    "a monitor": {".git/config": '[core]\n\tfsmonitor = "touch MARK; false"\n'},
    "a filter": {
        ".git/config": '[filter "a=b.c"]\n\tclean = touch MARK && cat\n\trequired = true\n',
        ".gitattributes": "* filter=a=b.c\n",
    },
    "a filter that is included": {
        ".git/config": "[include]\n\tpath = more\n",
        ".git/more": '[filter "f"]\n\tclean = touch MARK && cat\n',
        ".git/info/attributes": "* filter=f\n",
    },
    "a filter that goes on": {
        ".git/config": '[filter "f"]\n\tprocess = touch MARK\n',
        ".gitattributes": "* filter=f\n",
    },
    "a promise": {
        ".git/config": (
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = o\n"
            '[remote "o"]\n\turl = ext::touch MARK\n\tpromisor = true\n'
            '[protocol "ext"]\n\tallow = always\n'
        ),
    },
}


@pytest.mark.parametrize("how", STARTED)
def test_a_checkout_starts_nothing_that_its_settings_name(how: str, scene: Scene) -> None:
    tree, mark = scene.box / "tree", scene.box / "mark"
    put(tree / "k.cpp", "int k;\n")
    plain = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*plain, *words], check=True)
    clean = runs.revision(tree)
    assert clean is not None and not clean.dirty
    for name, text in STARTED[how].items():
        with (tree / name).open("a") as file:
            file.write(text.replace("MARK", str(mark)))
    put(tree / "k.cpp", "int j;\n")
    if how == "a promise":  # HEAD's tree is not there
        found = subprocess.run([*plain, "rev-parse", "HEAD^{tree}"], capture_output=True, text=True)
        (tree / ".git/objects" / found.stdout[:2] / found.stdout[2:].strip()).unlink()
        assert runs.revision(tree) is None
    else:
        changed = runs.revision(tree)
        assert changed is not None and changed.dirty
    assert not mark.exists()
    os.utime(tree / "k.cpp", (1, 1))
    subprocess.run([*plain, "status"], capture_output=True, check=False)
    assert mark.exists(), "the attack is none"


def test_settings_of_the_user_in_variables_stay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Somebody")
    assert run_git(scene.box, "config", "user.name") == "Somebody\n"
    assert run_git(scene.box, "config", "core.hooksPath") == "/dev/null\n"


def test_a_git_too_old_to_switch_commands_off_is_not_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git before 2.31 reads no settings from variables."""
    old = put(scene.box / "bin/git", f'#!/bin/sh\nGIT_CONFIG_COUNT=0 exec {which("git")} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)
    with pytest.raises(ToolError, match=r"2\.31 or newer is needed"):
        run_git(scene.box, "status")


def test_a_tree_has_no_link_that_leads_out_through_another(scene: Scene) -> None:
    root = scene.box / "library"
    put(root / "a/b/k.cu", "__global__ void k() {}\n")
    (root / "a/b/up").symlink_to("../..")
    (root / "a/b/out").symlink_to("up/../../user")
    (root / "a/b/own").symlink_to("up/a")
    out = scene.box / "out"
    tree.write(root, [], out, notes=scene.box / "notes", avoid=())
    assert not (out / "a/b/out").is_symlink()
    assert (out / "a/b/own").is_symlink()


@pytest.mark.parametrize("run", ["../user", "..", "a/b", ".ssh", "-x", "x" * 300, "a\tb", "CON"])
def test_records_come_home_to_no_folder_of_their_choice(
    run: str, good: ExecutionPlan, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    from .report_records import make

    line = make(run=f"{run}#{good.id}").to_json() + "\n"
    path = put(scene.box / "back.jsonl", line)
    assert "expected a folder name" in one_line(capsys, "import", "records", str(path))


# ---- documents that cost more than they say

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)
YAML = [
    BOMB,
    "[" * 50_000,
    "x: " + "1:" * 50_000 + "1",
    "&a [*a]",
    "x: 2020-13-45",
    "!!float x",
    "\0",
]
JSON = [
    "[" * 101 + "]" * 101,
    "[" * 50_000,
    '{"a":' * 50_000,
    "1" * 50_000,
    "[" + "1," * 99 + "]",
    "\0",
    "nul",
]


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_yaml_is_read_within_limits(text: str, tmp_path: Path) -> None:
    from portkern.agent.constraints import Constraints
    from portkern.agent.memory.graph import MethodGraph
    from portkern.execution.slurm_fleet import SlurmCluster
    from portkern.port.proof.case import read_cases
    from portkern.regression.decisions import NightDecisions

    path = put(tmp_path / "x.yaml", text)
    readers: list[Callable[[], object]] = [
        lambda: ProjectFile.read(path),
        lambda: Constraints.read(path),
        lambda: MethodGraph.read(path),
        lambda: SlurmCluster.read(path),
        lambda: read_cases(path),
        lambda: NightDecisions.read(put(tmp_path / "decisions.yaml", text).parent),
        lambda: sheet.read(text, "x.op.yaml"),
        lambda: _of_task(put(tmp_path / "set/grp/task.yml", text).parent.parent),
    ]
    for reader in readers:
        with pytest.raises(ConfigError) as refused:
            reader()
        assert "\n" not in str(refused.value)


def _of_task(folder: Path) -> None:
    (item,) = gpu_mode.read(folder)
    raise ConfigError(getattr(item, "reason", "") or "it was taken")


@pytest.mark.parametrize("text", JSON, ids=range(len(JSON)))
def test_json_is_read_within_limits(text: str, tmp_path: Path) -> None:
    for reader in (
        lambda: flashinfer.load(put(tmp_path / "x.json", text)),
        lambda: ExecutionPlan.read(put(tmp_path / "p.json", text)),
        lambda: ExecutionPlan.parse(f'{{"schema":{text}', "p"),
    ):
        with pytest.raises(PortkernError) as refused:
            reader()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "1<<10**9",
        "n" + "**16" * 5,
        "(" * 300 + "n" + "**16)" * 300,
        "n*" * 100 + "n",
        "1" * 5_000,
        "10**16" + "*10**16" * 20,
        "1e308*10",
        "-" * 19_000 + "n",
        "((((" * 4_000,
        "max(n, " * 300 + "n" + ")" * 300,
    ],
)
def test_an_expression_has_a_value_that_something_may_have_or_none(text: str) -> None:
    try:
        value = Expression(text)({"n": 10**6})
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        assert abs(value) <= 1 << 128


def test_an_odd_file_of_a_library_is_named_and_costs_no_other(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = "__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"
    put(scene.box / "lib/good.cu", kernel)
    put(scene.box / "lib/long.cu", f'{kernel}void f() {{ asm("mov.u32 %{"9" * 5000}, 1;"); }}\n')
    put(scene.box / "lib/CMakeLists.txt", f"cmake_minimum_required(VERSION {'9' * 5000})\n")
    (scene.box / "lib/loop.cu").symlink_to("loop.cu")
    (scene.box / "lib/up").symlink_to("..")
    os.mkfifo(scene.box / "lib/pipe.cu")
    put(scene.box / "lib" / os.fsdecode(b"\xff.cu"), kernel)
    put(scene.box / "lib" / os.fsdecode(b"\xfe") / "k.cu", kernel)
    asked = ["to=gfx942", "prove=false", f"reports={scene.box / 'out'}", "run=r"]
    code = main.run(["port", str(scene.box / "lib"), *asked])
    said = capsys.readouterr()
    assert code in (0, 1, 3), said.err
    assert "long.cu: has a number of 1,000 digits or more in line 2" in said.err + said.out
    assert "a name in it is not UTF-8" in said.err + said.out
    assert "good.cu" in said.out


def test_build_files_and_sources_do_not_grow_without_end(tmp_path: Path) -> None:
    from portkern.port import build_files
    from portkern.port.proof.expression import Names
    from portkern.port.triton_values import Constants, Unknown

    doubled = "".join(f"set(a{n} ${{a{n - 1}}}${{a{n - 1}}})\n" for n in range(1, 60))
    head = "set(a0 xxxxxxxxxxxxxxxx)\nset(s ${s}${s}${s}${s}${s}${s}${s}${s}${s}${s})\n"
    tail = "include_directories(${a59} ${s})\n"
    build_files.read(put(tmp_path / "CMakeLists.txt", head + doubled + tail), tmp_path)
    made = "a0 = xxxxxxxxxxxxxxxx\n" + "".join(
        f"a{n} = $(a{n - 1})$(a{n - 1})\n" for n in range(1, 60)
    )
    more = "b = x\n" + "b += $(b) $(b)\n" * 60
    build_files.read(
        put(tmp_path / "Makefile", f"{made}{more}all:\n\tnvcc -I$(a59) $(b)\n"), tmp_path
    )
    python = "a = 'xxxxxxxxxxxxxxxx'\n" + "a = a + a\n" * 60 + "b = [a]\n" + "b = b + b\n" * 60
    build_files.read(put(tmp_path / "setup.py", f"{python}Extension('x', b)\n"), tmp_path)
    squared = "#define F(x) ((x) * (x))\nint n = " + "F(" * 40 + "9" + ")" * 40 + ";\n"
    assert Names(squared, {}).value("n", len(squared)) is None
    import ast

    powers = ast.parse("x = " + "(" * 20 + "2" + "**64)" * 20 + "\n")
    with pytest.raises(Unknown):
        Constants(powers).value(ast.Name("x"))


@pytest.mark.parametrize(
    "text",
    ['"a\\' * 40_000, "'a\\" * 40_000, "dim3 a, " * 20_000, "int x = " * 20_000, "/*" * 90_000],
)
def test_what_never_ends_is_read_once(text: str, tmp_path: Path) -> None:
    from portkern.port.proof.expression import Names
    from portkern.spec import companions

    begun = time.process_time()
    companions.gather(tmp_path / "k.cpp", text, root=tmp_path)
    Names(text, {}).before(len(text))
    assert time.process_time() - begun < 20, "in quadratic time it is minutes"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "if (n) " + "->a " * 10_000 + "! {\n",
        "if (n)" + " " * 10_000 + "! {\n",
        "int a" + " " * 10_000 + "!\n",
        "int a =" + " " * 10_000 + "!\n",
        "sizeof(" + " " * 10_000 + "!\n",
        "for (" + "a " * 10_000 + "!\n",
        "a =" + " " * 10_000 + "!\n",
        "#define a b" + " " * 10_000 + "c\n",
        "#define a(b) b" + " " * 10_000 + "c\n",
        "#define a(" + "b" * 10_000 + " c) b\n",
        "extern " * 10_000 + "\n",
        "cudaMemcpyToSymbol(" + " " * 10_000 + "!\n",
    ],
    ids=lambda text: "".join(dict.fromkeys(text.split())),
)
def test_no_host_code_makes_its_names_take_long(text: str) -> None:
    from portkern.port.proof import guesses
    from portkern.port.proof.expression import Names

    begun = time.process_time()
    names = Names(f"void f(int n) {{\n{text}  g(", {})
    names.before(len(text) + 16)
    names.unknown(text, len(text))
    guesses.has_dynamic_memory(text)
    list(guesses.of_variables([], text))
    assert time.process_time() - begun < 1


def test_a_knob_of_many_digits_is_none() -> None:
    from portkern.spec.candidate import Candidate

    source = f"#define BLOCK {'1' * 5_000}  // knob: 1 2\n#define TILE 4  // knob: 4 8\n"
    assert [*Candidate("relu", "cpu", "c++", source, "relu").knobs] == ["TILE"]


# ---- sheets

SHEET: dict[str, Any] = {
    "name": "f",
    "file": "m.py",
    "operator": "f",
    "kind": "function",
    "traced": "all sizes",
    "axes": {"n": 4},
    "inputs": {"x": {"shape": ["n"]}},
    "outputs": {"y": {"shape": ["n"]}},
    "arguments": ["x"],
    "dtypes": ["float32"],
    "flops": "n",
    "workloads": {"ci": [{"n": 4}]},
    "file_sha256": "",
}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../user/.bashrc"},
        {"name": "x" * 10_000},
        {"inputs": {"../x": {"shape": ["n"]}}},
        {"axes": {"../n": 4}},
        {"flops": "n" + "**16" * 9},
        {"flops": "9**9**9"},
        {"derived": {"m": "n * 1e308 * 1e308"}, "outputs": {"y": {"shape": ["m"]}}},
        {"workloads": {"ci": [{"n": 10**30}]}},
    ],
)
def test_a_forged_sheet_names_no_file_and_has_values_within_bounds(
    changes: dict[str, Any], scene: Scene
) -> None:
    source = "def f(x):\n    return x * 2\n"
    said = SHEET | {"file_sha256": sheet.text_digest(source)} | changes
    with pytest.raises(ConfigError) as refused:
        op = sheet.read(json.dumps(said), "m.op.yaml").op(source)
        (workload,) = op.workloads["ci"]
        op.check(workload)
        op.flops(dict(workload.dims))
        raise AssertionError("it was taken")
    assert "\n" not in str(refused.value)
    assert [path.name for path in scene.box.iterdir()] == []


@pytest.mark.parametrize("index", [1 << 40, 16, -1])
def test_stored_indices_lie_where_the_operator_says(index: int, tmp_path: Path) -> None:
    """A reference would index by them, too, in the evaluator's own process."""
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    op = ops.load("embedding")
    dims = dict.fromkeys(op.workloads["ci"][0].dims, 16)
    [spec] = [tensor for tensor in op.signature.inputs if tensor.within]
    file = tmp_path / "stored.safetensors"
    given = torch.arange(16).clamp(max=15)
    given[7] = index
    for value, right in ((given, False), (given.clamp(0, 15), True)):
        safetensors.save_file({"i": value}, file)
        workload = Workload("16", dims, stored={spec.name: StoredTensor(file, "i")})
        if right:
            drawn = inputs.draw(op, workload, "float32", "normal")
            assert any(torch.equal(one, value) for one in drawn)
        else:
            with pytest.raises(ReferenceFailed, match="outside of 0 to 15"):
                inputs.draw(op, workload, "float32", "normal")


def test_a_stored_bool_is_what_it_is_to_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    header = json.dumps({"m": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}).encode()
    file = tmp_path / "stored.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + b"\x07\xff\x01\x00")
    loaded = inputs._loaded(StoredTensor(file, "m"))
    assert loaded.view(torch.uint8).tolist() == [1, 1, 1, 0]


def test_a_name_that_is_not_utf8_ends_no_command_and_no_file_of_records(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    name = os.fsdecode(b"\xff.py")
    put(scene.box / "set" / name, "def f(x):\n    return x\n")
    put(scene.box / "set" / os.fsdecode(b"\xff.jsonl"), "{}\n")
    record = make(run="night#0123456789abcdef")
    records = RecordFile(scene.box / "records.jsonl")
    records.append([record.model_copy(update={"run": f"{name}#0123456789abcdef"})])
    assert [one.run for one in records.read()[0]] == ["\\udcff.py#0123456789abcdef"]
    out = f"out={scene.box / 'out'}"
    for words in (["init"], ["import", "kernelbench", out], ["import", "tritonbench", out]):
        assert main.run([*words, str(scene.box / "set")]) != 4, capsys.readouterr().err
    assert (scene.box / "out" / "table.md").read_text()
    assert "is not UTF-8; rename it" in capsys.readouterr().err
