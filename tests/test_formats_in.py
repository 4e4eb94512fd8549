"""Problems of other benchmarks become operator files, each with a row that says what became of it.
All samples are made here."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from portkern.cells.selection import load_op
from portkern.cli import main
from portkern.errors import ConfigError, ReferenceFailed
from portkern.evaluator import from_torch, inputs, problem_import
from portkern.formats import (
    agentkernelarena,
    backendbench,
    embedding,
    flashinfer_solutions,
    gpu_mode,
    kernelbench,
    kernelbench_hard,
    multikernelbench,
    randomness,
    robust_kbench,
    rows,
    sol_execbench,
    table,
    trace_set,
    tritonbench,
)
from portkern.formats.problem import Item, Problem, UnreadableProblem, chosen, distinct
from portkern.formats.table import ImportRow, ReferenceCall
from portkern.spec import flashinfer
from portkern.spec.op import StoredTensor, Workload
from portkern.worker.tracing.trace import trace

SCALED = """\
import torch

length = 40

class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor

def get_inputs():
    return [torch.rand(length, 24)]

def get_init_inputs():
    return [3.0]
"""


def checkout(folder: Path, **files: str | bytes) -> Path:
    """Files by ``level1__1_Name``; a text or bytes."""
    for name, text in files.items():
        path = folder / "KernelBench" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def reasons(items: list[Item]) -> dict[str, str]:
    return {item.title: item.reason for item in items if isinstance(item, UnreadableProblem)}


def texts(items: list[Item]) -> dict[str, str]:
    return {item.title: item.data.decode() for item in items if isinstance(item, Problem)}


def traced(text: str) -> Any:
    found = trace(text, "mine.py", "", "mine")
    assert found.traced is not None, found.untraceable
    return found.traced


# ---- KernelBench


def test_a_checkout_is_read_by_level_and_number(tmp_path: Path) -> None:
    folder = checkout(
        tmp_path, level1__10_B=SCALED, level1__9_A=SCALED, level2__1_C=SCALED, level4__1_D=SCALED
    )
    items = kernelbench.read(folder, [1, 2])
    assert [item.title for item in items] == ["level1/9_A", "level1/10_B", "level2/1_C"]
    assert items[0].number == 9
    for inside in (folder / "KernelBench", folder / "KernelBench" / "level1"):
        assert kernelbench.read(inside, [1])[0].title == "level1/9_A"


def test_rows_are_the_same_problems_as_files(tmp_path: Path) -> None:
    row = {"code": SCALED, "level": 1, "name": "9_A", "problem_id": 9}
    bare = row | {"name": "B", "problem_id": 10}
    lines = "\n".join(map(json.dumps, [row, bare, row | {"level": 2}]))
    items = kernelbench.read(written(tmp_path / "rows.jsonl", lines), [1])
    assert [(item.title, item.number) for item in items] == [("level1/9_A", 9), ("level1/10_B", 10)]
    assert texts(items)["level1/9_A"] == SCALED


def test_a_parquet_file_of_more_rows_than_a_data_set_has_is_not_unpacked(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = pyarrow.table({"name": pyarrow.nulls(rows.MOST_ROWS + 1)})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    with pytest.raises(ConfigError, match="expected at most"):
        next(rows.of(tmp_path / "a.parquet"))


def test_parquet_rows_are_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    columns = {"code": [SCALED], "level": [3], "name": ["5_A"], "problem_id": [5]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "level_3-00000.parquet")
    assert [one.title for one in kernelbench.read(tmp_path, [3])] == ["level3/5_A"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ("[1]", "is a list, expected a JSON object"),
        ('{"level": 1, "name": "1_A", "problem_id": 1}', "has nothing as 'code', expected a str"),
        ('{"level": 1, "name": "1_A", "problem_id": "1", "code": ""}', "has '1' as 'problem_id'"),
        ('{"name": "1_A", "problem_id": 1, "code": ""}', "has nothing as 'level', expected a int"),
    ],
)
def test_a_bad_row_is_reported_and_the_rest_goes_on(tmp_path: Path, line: str, reason: str) -> None:
    good = json.dumps({"code": SCALED, "level": 1, "name": "9_A", "problem_id": 9})
    items = kernelbench.read(written(tmp_path / "rows.jsonl", f"{good}\n{line}\n"), [1])
    assert [*texts(items)] == ["level1/9_A"]
    (bad,) = (item for item in items if isinstance(item, UnreadableProblem))
    assert bad.place.endswith("rows.jsonl:2")
    assert reason in bad.reason


def test_no_problem_at_all_is_a_usage_error_that_says_what_is_expected(tmp_path: Path) -> None:
    checkout(tmp_path, level2__1_A=SCALED)
    with pytest.raises(ConfigError, match=r"which has the levels 2; expected level1/1_Name\.py"):
        kernelbench.read(tmp_path, [1])
    with pytest.raises(ConfigError, match="does not exist"):
        kernelbench.read(tmp_path / "nowhere", [1])


def test_problems_are_chosen_by_number_name_or_pattern() -> None:
    items: list[Item] = [
        Problem(name, group, "here", b"", number)
        for group, name, number in [
            ("level1", "1_A", 1),
            ("level2", "1_B", 1),
            ("level2", "2_C", 2),
        ]
    ]
    asked = {
        "1": ["level1/1_A", "level2/1_B"],
        "level2/1": ["level2/1_B"],
        "level2/*": ["level2/1_B", "level2/2_C"],
        "2_C": ["level2/2_C"],
        "*_B": ["level2/1_B"],
    }
    for pattern, titles in asked.items():
        assert [item.title for item in chosen(items, [pattern])] == titles
    assert chosen(items, []) == items
    with pytest.raises(ConfigError, match="No problem '7' among 3, such as level1/1_A"):
        chosen(items, ["7"])


@given(st.lists(st.text(max_size=12), max_size=12))
def test_names_become_files_of_their_own(names: list[str]) -> None:
    made = [item.name for item in distinct([Problem(name, "g", "", b"") for name in names])]
    assert len({name.casefold() for name in made}) == len(names)
    for name in made:
        assert name.isascii() and "/" not in name and not name.startswith(".")


# ---- the table


def test_a_table_counts_by_level_and_lists_what_is_not_good() -> None:
    answer = ReferenceCall(dims={"n": 9}, elements=18, finite=True, seconds=0.1)
    several = [
        ImportRow(name="1_A", group="level1", place="", traced="all sizes", answered=[answer]),
        ImportRow(name="2_B", group="level1", place="", traced="no size", reason="too | large"),
        ImportRow(name="1_C", group="level2", place="", reason="a\nb"),
    ]
    counts = table.summary(several)
    assert counts["level1"] == {
        "problems": 2,
        "loaded": 2,
        "all_sizes": 1,
        "sizes_of_inputs": 0,
        "no_size": 1,
        "answered": 1,
    }
    assert [counts["all"][key] for key in ("problems", "loaded", "answered")] == [3, 2, 1]
    page = table.markdown(several, "three")
    assert "| level1/2_B | too \\| large |" in page
    assert "| level2/1_C | a b |" in page
    assert ImportRow.from_json(several[0].to_json()) == several[0]


# ---- random numbers


def test_dropout_is_off_and_what_forward_draws_is_an_input() -> None:
    dropping = SCALED.replace("x * self.factor", "self.off(x)").replace(
        "self.factor = factor", "self.off = torch.nn.Dropout(0.5)"
    )
    refused = trace(dropping, "mine.py", "", "mine").untraceable
    assert refused is not None
    calm = randomness.without_dropout(dropping.encode())
    assert calm is not None
    assert [one.name for one in traced(calm.decode()).inputs] == ["x"]
    drawing = SCALED.replace("x * self.factor", "x * torch.randn(x.shape[0], 1)")
    given = randomness.with_drawn_inputs(drawing.encode())
    assert given is not None
    shapes = [one.shape for one in traced(given.decode()).inputs]
    assert (len(shapes), shapes[1][1], shapes[0][0] == shapes[1][0]) == (2, 1, True)


@pytest.mark.parametrize("text", ["def f(:", "x = 1", "class Model:\n    pass"])
def test_a_file_without_a_model_is_left_as_it_is(text: str) -> None:
    assert randomness.without_dropout(text.encode()) is None
    assert randomness.with_drawn_inputs(text.encode()) is None


# ---- sizes that only the file knows


def test_inputs_that_a_file_shapes_for_a_module_without_arguments_follow_its_numbers() -> None:
    text = SCALED.replace("self, factor", "self").replace("= factor", "= 2.0")
    text = text.replace("[3.0]", "[]").replace("(length, 24)", "(length, length).tril()")
    operator = traced(text)
    assert operator.inputs[0].draws == "own"
    assert operator.inputs[0].shape == ("length", "length")
    assert min(dims["length"] for dims in operator.workloads["ci"]) < 40


def test_an_output_that_is_longer_or_shorter_than_a_number_of_the_file_follows_it() -> None:
    text = SCALED.replace("x * self.factor", "torch.nn.functional.max_pool1d(x, 5, 1, 0, 3)")
    text = text.replace("torch.rand(length, 24)", "torch.rand(6, 7, length)")
    operator = traced(text)
    (axis,) = operator.derived
    for dims in (one for several in operator.workloads.values() for one in several):
        assert dims[axis] == dims["length"] - 12


# ---- text of others inside of a file


def test_devices_are_taken_out_of_code_and_out_of_nothing_else() -> None:
    text = 'é = "cuda"; x = f(1, device="cuda:0").cuda()  # cuda\nsay("a cuda device", é.npu(0))\n'
    assert embedding.on_host(text) == (
        'é = "cpu"; x = f(1, device="cpu").cpu()  # cuda\nsay("a cuda device", é.npu(0))\n'
    )


def test_modules_that_lay_beside_a_file_are_imported_from_it() -> None:
    text = "from __future__ import annotations\nfrom task_of_mine import T\nvalue: missing = T\n"
    namespace: dict[str, Any] = {}
    exec(embedding.with_modules(text, {"task_of_mine": "T = 'it''s'\n"}), namespace)
    assert namespace["value"] == "its"


@given(st.dictionaries(st.text("ab.", min_size=1, max_size=5), st.text(max_size=20), max_size=3))
def test_files_that_lay_beside_it_are_opened(files: Mapping[str, str]) -> None:
    text = (
        "def read(name):\n    with open('nowhere/' + name) as file:\n        return file.read()\n"
    )
    namespace: dict[str, Any] = {}
    exec(embedding.with_files(text, files), namespace)
    for name, content in files.items():
        assert namespace["read"](name) == content.replace("\r\n", "\n").replace("\r", "\n")


# ---- GPU MODE


def task(folder: Path, **files: str) -> Path:
    reference = (
        "from utils import twice\nimport torch\n\n"
        "def ref_kernel(data):\n    x, config = data\n    return twice(x) + config['by']\n\n"
        "def generate_input(size, seed):\n"
        "    gen = torch.Generator(device='cuda')\n    gen.manual_seed(seed)\n"
        "    x = torch.randn(size, 3, device='cuda', generator=gen)\n    return x, {'by': 2.5}\n"
    )
    yml = (
        "files:\n  - {name: submission.py, source: '@SUBMISSION@'}\n"
        "  - {name: utils.py, source: ../utils.py}\n"
        "  - {name: reference.py, source: reference.py}\n"
        "tests:\n  - {size: 16, seed: 1}\nbenchmarks:\n  - {size: 64, seed: 2}\n"
    )
    written(folder / "set" / "utils.py", "def twice(x):\n    return 2 * x\n")
    for name, text in ({"reference.py": reference, "task.yml": yml} | files).items():
        written(folder / "set" / "doubled" / name, text)
    return folder


def test_a_task_is_its_reference_at_the_sizes_of_its_tests(tmp_path: Path) -> None:
    found = texts(gpu_mode.read(task(tmp_path)))
    operator = traced(found["set/doubled"])
    assert operator.name == "doubled"
    assert [one.name for one in operator.inputs] == ["data0"]
    lengths = [dims["data0_0"] for several in operator.workloads.values() for dims in several]
    assert 64 in lengths


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"task.yml": "files: ["}, "is not YAML"),
        ({"task.yml": "files: []"}, "names no reference.py among its files"),
        ({"reference.py": "def f(:"}, "reference.py is not Python"),
        ({"reference.py": "def ref_kernel(d):\n    return d\n"}, "has no function generate_input"),
        (
            {"task.yml": "files:\n  - {name: reference.py, source: elsewhere.py}\n"},
            "Cannot read .*elsewhere.py: No such file",
        ),
        (
            {"task.yml": "files:\n  - {name: reference.py, source: reference.py}\n"},
            "has no tests and no benchmarks",
        ),
    ],
)
def test_what_is_wrong_with_a_task_is_its_row(
    tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    (said,) = reasons(gpu_mode.read(task(tmp_path, **files))).values()
    assert re.search(reason, said)


# ---- robust-kbench


def test_sizes_of_a_task_are_cases_and_its_settings_arguments(tmp_path: Path) -> None:
    code = (
        "import torch\n\ndef forward_fn(x, weight):\n    return x @ weight.T\n\n"
        "class Model(torch.nn.Module):\n    def __init__(self, width, wide=False):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(5, width))\n"
        "    def forward(self, x, fn=forward_fn):\n        return fn(x, self.weight)\n\n"
        "def get_inputs(rows=4, width=8):\n    return [torch.randn(rows, width)]\n"
    )
    config = {
        "single_input_configs": [{"rows": 16}],
        "single_init_configs": [{"wide": True}],
        "single_shared_configs": [{"width": 24}],
        "multi_input_configs": [{"rows": 16}, {"rows": 48}],
    }
    written(tmp_path / "tasks" / "product" / "func_forward.py", code)
    beside = written(tmp_path / "tasks" / "product" / "config_forward.json", json.dumps(config))
    text = texts(robust_kbench.read(tmp_path))["tasks/product"]
    assert "_PORTKERN_CONSTRUCTED = {'width': 24, 'wide': True}" in text
    assert "{'rows': 48, 'width': 24}" in text
    operator = traced(text)
    assert {one.name for one in operator.inputs} == {"x", "weight"}
    assert 48 in [dims["x_0"] for several in operator.workloads.values() for dims in several]
    beside.unlink()
    assert "Cannot read" in reasons(robust_kbench.read(tmp_path))["tasks/product"]


# ---- AgentKernelArena


def arena(folder: Path, module: str, **task: object) -> Path:
    """A task whose check names its module."""
    name = "pytorch_code_module/py_7_Doubled.py"
    command = f"python3 check.py --py_modu_file {name} --hip_file hip/mine.hip"
    config = {"task_type": "torch2hip", "correctness_command": [command], **task}
    written(folder / "tasks/torch2hip/set/7_Doubled/config.yaml", yaml.safe_dump(config))
    written(folder / "tasks/torch2hip/set/7_Doubled" / name, module)
    return folder


DOUBLED = """
import torch


class Other(torch.nn.Module):
    pass


class Doubled(torch.nn.Module):
    def __init__(self, width, times=1):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.times = times

    def forward(self, x):
        return x * self.weight * self.times


def get_inputs():
    for rows in (16, 48):
        yield [torch.randn(rows, 24)]


def get_init_inputs():
    return [[], {"width": 24, "times": 2}]
"""


def test_a_task_of_the_arena_is_its_module_at_its_sizes(tmp_path: Path) -> None:
    text = texts(agentkernelarena.read(arena(tmp_path, DOUBLED)))["torch2hip_set/7_Doubled"]
    operator = traced(text)
    assert {one.name for one in operator.inputs} == {"x", "weight"}
    rows = [dims["x_0"] for several in operator.workloads.values() for dims in several]
    assert 48 in rows
    plain = DOUBLED.replace('[[], {"width": 24, "times": 2}]', "[24, 2]").replace(
        "    for rows in (16, 48):\n        yield [torch.randn(rows, 24)]",
        "    return [torch.randn(16, 24)]",
    )
    assert traced(next(iter(texts(agentkernelarena.read(arena(tmp_path, plain))).values())))


@pytest.mark.parametrize(
    ("module", "task", "reason"),
    [
        (DOUBLED, {"correctness_command": ["pytest test.py"], "task_type": "triton2triton"},
         "is of the type triton2triton, whose reference is the code of its own runner"),
        (DOUBLED, {"correctness_command": ['a "b']}, "has a command that is none"),
        (DOUBLED, {"correctness_command": ["x --py_modu_file ../../../../../etc/passwd"]},
         "which leads upwards"),
        (DOUBLED, {"correctness_command": ["x --py_modu_file none.py"]}, "none.py"),
        (DOUBLED.replace("get_inputs", "inputs"), {}, "has no function get_inputs"),
        (DOUBLED.replace("def forward", "def there"), {}, "has no class with a function forward"),
        ("def f(:", {}, "is not Python"),
    ],
)  # fmt: skip
def test_what_is_not_a_module_in_the_arena_is_a_row_with_its_reason(
    tmp_path: Path, module: str, task: dict[str, object], reason: str
) -> None:
    (said,) = reasons(agentkernelarena.read(arena(tmp_path, module, **task))).values()
    assert reason in said


# ---- KernelBench-Hard and -Mega


def test_a_problem_with_a_sheet_is_its_reference(tmp_path: Path) -> None:
    written(tmp_path / "problems" / "04_scaled" / "reference.py", SCALED)
    written(tmp_path / "problems" / "04_scaled" / "problem.yaml", "name: 04_scaled\n")
    written(tmp_path / "problems-h100" / "04_scaled" / "reference.py", SCALED)
    written(tmp_path / "problems-h100" / "04_scaled" / "problem.yaml", "name: 04_scaled\n")
    written(tmp_path / "problems" / "08_none" / "problem.yaml", "name: 08_none\n")
    items = kernelbench_hard.read(tmp_path)
    assert [(item.title, item.number) for item in items] == [
        ("04_scaled", 4),
        ("08_none", 8),
        ("h100/04_scaled", 4),
    ]
    assert traced(texts(items)["04_scaled"]).inputs[0].name == "x"
    assert "has no reference.py that can be read" in reasons(items)["08_none"]
    with pytest.raises(ConfigError, match="expected folders with problem"):
        kernelbench_hard.read(tmp_path / "problems" / "04_scaled" / "reference.py")


# ---- SOL-ExecBench


def definition(**more: Any) -> dict[str, Any]:
    tensor = {"shape": ["n", "twice"], "dtype": "float32", "description": None}
    axes = {
        "n": {"type": "var", "description": None},
        "half": {"type": "const", "value": 12},
        "twice": {"type": "expr", "expression": "half * 2 + half // 5 - 2"},
    }
    reference = "import torch\n\n@torch.no_grad()\ndef run(x, eps):\n    return x + eps"
    scalar = {"shape": None, "dtype": "float32"}
    return {
        "name": "shifted",
        "op_type": "shift",
        "axes": axes,
        "custom_inputs_entrypoint": None,
        "inputs": {"x": tensor, "eps": scalar},
        "outputs": {"y": tensor},
        "reference": reference,
        **more,
    }


def workload_line(n: int, kind: str = "random", **more: Any) -> str:
    inputs = {"x": {"type": kind}, "eps": {"type": "scalar", "value": 0.5}}
    tolerance = {"max_atol": 1e-3, "max_rtol": 1e-3}
    return json.dumps({"uuid": f"w{n}", "axes": {"n": n}, "inputs": inputs, **more,
                       "tolerance": tolerance}) + "\n"  # fmt: skip


def test_a_definition_with_workloads_beside_it_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "L1" / "001_shifted"
    written(folder / "definition.json", json.dumps(definition()))
    lines = [workload_line(7), workload_line(3, "custom"), workload_line(1, axes={"m": 1}), "{\n"]
    written(folder / "workload.jsonl", "".join(lines))
    items = sol_execbench.read(tmp_path)
    (problem,) = [item for item in items if isinstance(item, Problem)]
    assert problem.title == "L1/shifted"
    op = flashinfer.read_definition(problem.data.decode())
    assert op.signature.inputs[0].shape == ("n", 24)
    (workload,) = flashinfer.read_workloads(problem.beside[".jsonl"].decode(), op)
    assert (workload.dims, workload.scalars) == ({"n": 7}, {"eps": 0.5})
    bad = reasons(items)
    assert len(bad) == 3
    assert "the problem's own code draws" in bad["workloads/workload.jsonl:2"]


def test_solutions_beside_problems_are_kernels_of_the_imported_ones(tmp_path: Path) -> None:
    """Names of problems have a model's full name in them, and axes that follow from others."""
    folder = tmp_path / "set" / "L1" / "one"
    written(folder / "definition.json", json.dumps(definition(name="org_Model-3.1_shifted")))
    for name, languages in (("a", ["triton"]), ("b", ["cuda_cpp", "cutlass"])):
        spec = {"languages": languages, "entry_point": "k.py::run"}
        sources = [
            {"path": "k.py", "content": "import triton\n\n\ndef run(x, eps, y):\n    pass\n"}
        ]
        solution = {
            "name": name,
            "definition": "org_Model-3.1_shifted",
            "author": "x",
            "spec": spec,
        }
        written(folder / f"solution_{name}.json", json.dumps(solution | {"sources": sources}))
    (problem,) = [one for one in sol_execbench.read(tmp_path) if isinstance(one, Problem)]
    assert problem.name == "org_Model_3_1_shifted"
    found = flashinfer_solutions.project(tmp_path / "set", tmp_path / "ops")
    assert not found.kernels  # the problem is not imported yet
    written(tmp_path / "ops" / "L1" / f"{problem.name}.json", problem.data.decode())
    found = flashinfer_solutions.project(tmp_path / "set", tmp_path / "ops")
    (kernel,) = found.kernels
    assert (kernel.op, kernel.style, kernel.entry) == (problem.name, "dps", "run")
    (skipped,) = found.skipped
    assert "it is in cuda_cpp and cutlass, expected triton" in str(skipped)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"axes": {"n": {"type": "var"}, "m": {"type": "expr", "expression": "n * 2"}}}, "'n'"),
        ({"axes": {"m": {"type": "expr", "expression": "7 / 2"}}}, "of 3.5, expected a whole"),
        ({"axes": {"m": {"type": "expr", "expression": "__import__('os')"}}}, "arithmetic"),
        ({"axes": {"n": {"type": "const"}, "m": {"type": "expr", "expression": "n"}}}, "'n'"),
        ({"axes": [1]}, "has no axes"),
        ({"name": 5}, "is not a Definition with a name"),
    ],
)
def test_a_definition_that_cannot_be_one_says_why(
    tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    written(tmp_path / "L1" / "bad" / "definition.json", json.dumps(definition(**more)))
    written(tmp_path / "L1" / "good" / "definition.json", json.dumps(definition()))
    items = sol_execbench.read(tmp_path)
    assert reason in reasons(items)["L1/bad"]
    assert [item.title for item in items if isinstance(item, Problem)] == ["L1/shifted"]


def test_the_score_is_a_half_at_the_baseline_and_one_at_the_limit() -> None:
    assert sol_execbench.score(20, 20, 10) == 0.5
    assert sol_execbench.score(10, 20, 10) == sol_execbench.score(5, 20, 10) == 1.0
    assert 0 < sol_execbench.score(1000, 20, 10) < sol_execbench.score(30, 20, 10) < 0.5
    assert (sol_execbench.score(10, 8, 9), sol_execbench.score(9, 9, 9)) == (0.0, 1.0)


# ---- MultiKernelBench


def test_groups_of_inputs_in_a_file_beside_are_cases(tmp_path: Path) -> None:
    code = (
        "import torch, json, os\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.exp()\n\n"
        "def get_input_groups():\n"
        "    path = os.path.join(os.path.dirname(__file__), 'exp.json')\n"
        "    with open(path) as file:\n        cases = [json.loads(line) for line in file]\n"
        "    return [[torch.randn(*case['shape'])] for case in cases]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    written(tmp_path / "reference" / "math" / "exp.py", code)
    written(
        tmp_path / "reference" / "math" / "exp.json", '{"shape": [12, 20]}\n{"shape": [3, 700]}'
    )
    operator = traced(texts(multikernelbench.read(tmp_path))["math/exp"])
    assert dict(operator.axes) == {"x_0": 12, "x_1": 20}
    assert {"x_0": 3, "x_1": 700} in [dict(one) for one in operator.workloads["ci"]]
    assert "1 of the file's 1 further cases are workloads." in operator.notes


def test_a_case_that_differs_in_more_than_sizes_is_none(tmp_path: Path) -> None:
    text = (
        "import torch\n\ndef f(x, by):\n    return x * by\n\ndef get_input_groups():\n"
        "    return [[torch.rand(9, 4), 'a'.__len__()], [torch.rand(9, 4, 1), 1],\n"
        "            [torch.rand(30, 4), 2], [torch.randint(0, 2, (9, 4)), 1]]\n"
    )
    assert any("1 of the file's 3 further cases" in note for note in traced(text).notes)


# ---- BackendBench

TRACE = """\
Operator: aten.add.Tensor
cnt: 7, ((T([20, 30], f16), T([20, 30], f16)), {})
cnt: 2, ((T([5, 6], f16), T([5, 6], f16)), {'alpha': -2})
cnt: 1, ((T([4, 7], f16), T([4, 7], f16)), {})
Operator: aten.cat.default
cnt: 1, (([T([4, 7], f32), T([2, 7], f32, [7, 1])],), {})
cnt: 1, (([T([4, 7], f32), evil()],), {})
cnt: 1, ((T([4], c64),), {})
"""


def test_calls_that_differ_in_sizes_are_cases_of_one_operator(tmp_path: Path) -> None:
    items = distinct(backendbench.read(written(tmp_path / "trace.txt", TRACE)))
    found = texts(items)
    assert [*found] == ["aten.add.Tensor", "aten.add.Tensor_2", "aten.cat.default"]
    added = traced(found["aten.add.Tensor"])
    assert (added.name, dict(added.axes)) == ("add", {"x0_0": 20, "x0_1": 30})
    assert {"x0_0": 4, "x0_1": 7} in [dict(one) for one in added.workloads["ci"]]
    assert "alpha=-2" in found["aten.add.Tensor_2"]
    assert [one.name for one in traced(found["aten.cat.default"]).inputs] == ["x0", "x1"]
    bad = [item for item in items if isinstance(item, UnreadableProblem)]
    assert [item.place.rpartition(":")[2] for item in bad] == ["7", "8"]
    assert "'evil()'" in bad[0].reason
    assert "T(sizes, dtype)" in bad[1].reason


def test_rows_of_calls_are_read(tmp_path: Path) -> None:
    row = {"op_name": "aten.relu.default", "args": "((T([9, 8], bf16),), {})"}
    lines = "\n".join(map(json.dumps, [row, {"op_name": "a b", "args": row["args"]}, {}]))
    items = backendbench.read(written(tmp_path / "rows.jsonl", lines))
    assert [*texts(items)] == ["aten.relu.default"]
    assert len(reasons(items)) == 2


_NUMBERS = st.one_of(
    st.integers(), st.booleans(), st.none(), st.text(max_size=5), st.floats(allow_nan=False)
)


@given(st.lists(st.one_of(_NUMBERS, st.lists(st.integers(), max_size=3)), max_size=4))
def test_arguments_are_read_as_python_would_evaluate_them(values: list[object]) -> None:
    said = [value for value in values if not _is_dtype(value)]
    call = f"((T([2], f32), {', '.join(map(repr, said))}), {{}})"
    given_text, _ = backendbench._given(call)
    namespace = {"x0": "x", "torch": torch}
    assert list(eval(f"({given_text},)", namespace)) == ["x", *said]


def _is_dtype(value: object) -> bool:
    return isinstance(value, str) and (value in backendbench._DTYPES or "torch." in value)


# ---- TritonBench


def triton_row(folder: Path, **fields: str) -> Path:
    row = {
        "name": "scaled_relu",
        "torch_code": "relu(x) then scale",
        "example": ">>> x = torch.randn(12, 20) >>> y = scaled_relu(x, by=2.0) >>> y tensor([1])",
    }
    return written(folder / "T.jsonl", json.dumps([row | fields]))


def test_an_example_says_what_the_operator_takes(tmp_path: Path) -> None:
    code = "def scaled_relu(x, by=1.0):\n    return torch.relu(x) * by\n"
    text = texts(tritonbench.read(triton_row(tmp_path, torch_code=code)))["scaled_relu"]
    operator = traced(text)
    assert operator.name == "scaled_relu_op"
    assert [one.shape for one in operator.inputs] == [("x0_0", "x0_1")]
    assert [one.default for one in operator.scalars] == [2.0]


def test_the_file_beside_the_rows_has_the_operator_and_its_tests(tmp_path: Path) -> None:
    path = triton_row(tmp_path, file="mine.py")
    tests = (
        "def test_it():\n    results = {}\n    a = torch.rand(7, 9, device='cuda')\n"
        "    results['1'] = scaled_relu(a)\n    return results\n"
    )
    code = "import torch\n\ndef scaled_relu(x):\n    return torch.relu(x) * 3\n"
    written(tmp_path / "T" / "mine.py", f"{code}\n{'#' * 146}\n\n{tests}")
    text = texts(tritonbench.read(path))["scaled_relu"]
    assert [one.shape for one in traced(text).inputs] == [("x0_0", "x0_1")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"example": "y = 1"}, "has no call of scaled_relu in its example"),
        ({"example": "def f(:"}, "its example is not Python"),
        ({}, "its torch_code is not Python"),
        ({"torch_code": "y = 1"}, "defines no function scaled_relu"),
    ],
)
def test_a_row_that_says_too_little_is_reported(
    tmp_path: Path, fields: dict[str, str], reason: str
) -> None:
    assert reason in reasons(tritonbench.read(triton_row(tmp_path, **fields)))["scaled_relu"]


# ---- FlashInfer-Bench

DEFINITION: dict[str, Any] = {
    "name": "picked",
    "op_type": "gather",
    "axes": {"n": {"type": "var"}, "m": {"type": "var"}, "w": {"type": "const", "value": 4}},
    "inputs": {
        "x": {"shape": ["n", "w"], "dtype": "float32"},
        "places": {"shape": ["m"], "dtype": "int32"},
    },
    "outputs": {"y": {"shape": ["m", "w"], "dtype": "float32"}},
    "reference": "def run(x, places):\n    return x[places.long()]\n",
}


def picked(path: str, **fields: object) -> str:
    places = {"type": "safetensors", "path": path, "tensor_key": "places"}
    work = {
        "uuid": "280860e6-08f0-427c-b7c5-9cffcfab1a10",
        "axes": {"n": 6, "m": 3},
        "inputs": {"x": {"type": "random"}, "places": places},
    }
    return json.dumps({"definition": "picked", "workload": work, "solution": None} | fields)


def trace_folder(folder: Path, *lines: str) -> Path:
    written(folder / "definitions" / "gather" / "picked.json", json.dumps(DEFINITION))
    written(folder / "workloads" / "gather" / "picked.jsonl", "\n".join(lines))
    return folder


def test_a_trace_set_gives_definitions_with_their_workloads(tmp_path: Path) -> None:
    lines = [picked("./blob/a.safetensors"), picked("b", definition="other"), "{"]
    items = trace_set.read(trace_folder(tmp_path, *lines))
    assert isinstance(items[0], Problem)
    assert (items[0].title, items[0].suffix) == ("gather/picked", ".json")
    path = tmp_path / "out.json"
    path.write_bytes(items[0].data)
    path.with_suffix(".jsonl").write_bytes(items[0].beside[".jsonl"])
    (workload,) = flashinfer.load(path).workloads["ci"]
    (place,) = items[0].tensors
    assert items[0].tensors[place] == tmp_path / "blob/a.safetensors"
    assert workload.stored["places"].path == tmp_path / "tensors" / place
    assert [one.place.rpartition(":")[2] for one in items[1:]] == ["2", "3"]
    assert "is of the definition 'other'" in reasons(items)["workloads/picked.jsonl:2"]


def test_two_definitions_of_one_name_are_one_and_a_reason(tmp_path: Path) -> None:
    trace_folder(tmp_path)
    written(tmp_path / "definitions" / "z" / "again.json", json.dumps(DEFINITION))
    written(tmp_path / "definitions" / "z" / "bad.json", "[]")
    said = reasons(trace_set.read(tmp_path))
    assert "names are unique" in said["gather/again"]
    assert "has nothing as name" in said["z/bad"]


def test_inputs_that_a_workload_comes_with_are_read_from_its_file(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    places = torch.tensor([5, 0, 2], dtype=torch.int32)
    save({"places": places, "wide": places.long()}, tmp_path / "a.safetensors")
    path = written(tmp_path / "picked.json", json.dumps(DEFINITION))
    written(tmp_path / "picked.jsonl", picked("a.safetensors"))
    op = load_op(str(path))
    (workload,) = op.workloads["ci"]
    x, given_places = inputs.draw(op, workload, "float32", inputs.BASE)
    assert torch.equal(given_places, places)
    assert x.shape == (6, 4)
    assert op.structured, "what indices are to one another stays while it is timed"
    again = flashinfer.write_workloads([workload], op)
    assert flashinfer.read_workloads(again, op, tmp_path) == (workload,)
    for stored, said in [
        (StoredTensor(tmp_path / "a.safetensors", "wide"), r"int64\[3\], expected int32\[3\]"),
        (StoredTensor(tmp_path / "a.safetensors", "none"), "Cannot read 'none'"),
        (StoredTensor(tmp_path / "b.safetensors", "places"), "Cannot read 'places'"),
    ]:
        bad = Workload("bad", workload.dims, {}, {"places": stored})
        with pytest.raises(ReferenceFailed, match=said):
            inputs.draw(op, bad, "float32", inputs.BASE)
    with pytest.raises(ConfigError, match="No input 'nothing'"):
        op.check(Workload("bad", workload.dims, {}, {"nothing": stored}))


@pytest.mark.full
def test_a_kernel_is_evaluated_on_the_inputs_that_a_workload_comes_with(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    trace_folder(tmp_path / "in", picked("blob.safetensors"))
    save({"places": torch.tensor([5, 0, 2], dtype=torch.int32)}, tmp_path / "in/blob.safetensors")
    assert main.run(["import", "flashinfer", str(tmp_path / "in"), f"out={tmp_path / 'out'}"]) == 0
    for line, code in [("x[places[i] * 4 + j]", 0), ("x[i * 4 + j]", 1)]:
        source = (
            'extern "C" int picked(const scalar_t* x, const int32_t* places, scalar_t* y, '
            "int64_t n, int64_t m) {\n    for (int64_t i = 0; i < m; ++i)\n"
            f"        for (int j = 0; j < 4; ++j) y[i * 4 + j] = {line};\n    return 0;\n}}\n"
        )
        argv = [f"op={tmp_path / 'out/gather/picked.json'}", "backend=cpu", f"reports={tmp_path}"]
        path = written(tmp_path / "picked.cpp", source)
        assert main.run(["check", *argv, f"source={path}"]) == code


# ---- the verb


def import_(*argv: str) -> int:
    return main.run(["import", *argv])


def test_the_users_mistakes_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout(tmp_path, level1__1_A=SCALED)
    for argv, message in [
        (["kernelbensch", str(tmp_path)], "did you mean 'kernelbench'?"),
        (["kernelbench"], "path= is required"),
        (["kernelbench", str(tmp_path / "no")], "does not exist"),
        (["kernelbench", str(tmp_path), "levels=[a]"], "Got level 'a', expected numbers"),
        (["kernelbench", str(tmp_path), "problems=[2]"], "No problem '2'"),
        (["tritonbench", str(tmp_path / "no")], "does not exist"),
    ]:
        assert import_(*argv) == 2
        assert message in capsys.readouterr().err


def test_nothing_loaded_ends_with_3_and_has_its_rows(tmp_path: Path) -> None:
    checkout(tmp_path / "in", level1__1_A=b"# \xff\n", level1__2_B="x = 1\n")
    out = tmp_path / "out"
    assert import_("kernelbench", str(tmp_path / "in"), f"out={out}") == 3
    document = json.loads((out / "table.json").read_text())
    said = {row["name"]: row["reason"] for row in document["rows"]}
    assert "level1/1_A.py is not Python" in said["1_A"]
    assert "has no get_inputs()" in said["2_B"]


def test_a_reference_that_hangs_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise ReferenceFailed("The reference a TimedOut")

    monkeypatch.setattr(from_torch, "sheet_of", late)
    work = problem_import.ProblemImport(tmp_path)
    row = work.row(Problem("1_A", "level1", "here", SCALED.encode()))
    assert (row.loaded, row.reason) == (False, "The reference a TimedOut")


@pytest.mark.full
def test_an_import_goes_on_where_it_was_and_ends_with_1_if_some_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latin = "# -*- coding: latin-1 -*-\n# é\n" + SCALED
    checkout(
        tmp_path / "in",
        level1__1_A=SCALED,
        level1__2_B=latin.encode("latin-1"),
        level2__3_Files="import torch\nopen('/nowhere')\n",
    )
    out = tmp_path / "out"
    argv = ["kernelbench", str(tmp_path / "in"), f"out={out}"]
    assert import_(*argv) == 1
    first = {row["name"]: row for row in json.loads((out / "table.json").read_text())["rows"]}
    assert first["1_A"]["axes"] == {"length": 40, "x_1": 24}
    assert first["1_A"]["answered"][0]["dims"] == {"length": 9, "x_1": 10}
    assert "level2/3_Files.py:2" in first["3_Files"]["reason"]
    capsys.readouterr()
    assert import_(*argv, "levels=[1]") == 0
    assert "[" not in capsys.readouterr().out, "nothing is traced again"
    op = load_op(str(out / "level1" / "2_B.py"))
    assert op.name == "b"
    (out / "level1" / "1_A.py").unlink()
    assert import_(*argv, "levels=[1]", "json=true") == 0
    assert json.loads(capsys.readouterr().out)["summary"]["level1"]["answered"] == 2


@pytest.mark.full
def test_recurrent_layers_are_traced_at_any_length() -> None:
    text = (
        "import torch\nsteps, batch, width = 50, 6, 12\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.lstm = torch.nn.LSTM(width, 16, 2, bidirectional=True)\n"
        "    def forward(self, x):\n        return self.lstm(x)[0]\n\n"
        "def get_inputs():\n    return [torch.rand(steps, batch, width)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    operator = traced(text)
    assert operator.how == "all sizes"
    assert operator.outputs[0].shape[:2] == ("steps", "batch")
    ast.parse(operator.flops)


def test_rows_of_a_folder_without_any_are_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.parquet, \.jsonl, \.json"):
        list(rows.of(tmp_path))
