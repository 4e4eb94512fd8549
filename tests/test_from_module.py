"""A live module or function becomes an operator: ``portkern.Op.from_torch``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import portkern
from portkern.errors import ConfigError
from portkern.evaluator import from_module, from_torch


class Block(torch.nn.Module):
    """State of all kinds: parameters, statistics, a mask, a plain constant."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))
        self.weights = torch.tensor([1.0, 2.0])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = self.conv(x).relu().mean((2, 3))
        return pooled @ self.mask * self.weights.sum(), pooled.reshape(-1)


def made(text: str) -> Any:
    """The module and the example inputs of a file."""
    space: dict[str, Any] = {}
    exec(text, space)
    return space["Model"](), space["get_inputs"]()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("training", [False, True])
def test_a_file_computes_what_the_module_does(training: bool) -> None:
    block, x = Block().train(training), torch.randn(4, 3, 9, 9)
    model, inputs = made(from_module.source(block, [x]))
    assert [tuple(value.shape) for value in inputs] == [(4, 3, 9, 9)]
    model.load_state_dict(block.state_dict(), strict=False)
    for other in (x, torch.randn(2, 3, 6, 7)):
        for mine, theirs in zip(model(other), block(other), strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.full
def test_a_module_is_an_operator_whose_batch_and_image_vary() -> None:
    op = portkern.Op.from_torch(Block().eval(), [torch.randn(4, 3, 9, 9)])
    assert (op.name, op.file) == ("block", "operators/block.py")
    inputs = {spec.name: spec for spec in op.signature.inputs}
    assert op.draws["conv_1_weight"] == "scale" and op.draws["mask"] == "own"
    assert op.draws["conv_1_running_var"] == "positive" and op.draws["conv_0_weight"] == "fan_in"
    assert all(isinstance(size, str) for size in (inputs["x"].shape[0], *inputs["x"].shape[2:]))
    assert len({w.dims["x_0"] for which in op.workloads.values() for w in which}) > 2
    for workload in op.workloads["ci"]:
        assert [tuple(y.shape) for y in from_torch.exact(op, workload)] == [
            spec.sizes(workload.dims) for spec in op.signature.outputs
        ]


@pytest.mark.full
def test_an_operator_can_be_checked_by_what_from_torch_returns() -> None:
    def doubled(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return x * 2 + bias

    op = portkern.Op.from_torch(doubled, [torch.randn(4, 5), torch.randn(5)])
    assert [spec.name for spec in op.signature.inputs] == ["x", "bias"]
    kernel = (
        'extern "C" int doubled(const scalar_t* x, const scalar_t* bias, scalar_t* y, '
        + ", ".join(f"int64_t {axis}" for axis in op.signature.axes)
        + ") {\n    for (int64_t i = 0; i < ROWS * COLS; ++i)\n"
        "        y[i] = scalar_t(float(x[i]) * 2 + float(bias[i % COLS]));\n    return 0;\n}\n"
    )
    rows, columns = op.signature.inputs[0].shape
    kernel = kernel.replace("ROWS", str(rows)).replace("COLS", str(columns))
    quick: dict[str, Any] = {"rounds": 2, "budget_s": 0.0, "workloads": ["ci", "edge"]}
    assert portkern.check(op, "cpu", kernel, **quick).passed
    assert not portkern.check(op, "cpu", kernel.replace("* 2", "* 3"), **quick).passed


@pytest.mark.full
def test_a_second_call_changes_nothing_and_keeps_what_a_person_wrote() -> None:
    inputs = [torch.randint(3, 9, (6,)), torch.rand(4, 5) < 0.5, torch.rand(10, 7)]

    def looked_up(index: torch.Tensor, keep: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table[index].sum() * keep

    op = portkern.Op.from_torch(looked_up, inputs, name="LookedUp", folder="mine")
    path = Path(op.file)
    before = path.stat().st_mtime_ns, path.with_suffix(".op.yaml").stat().st_mtime_ns
    again = portkern.Op.from_torch(looked_up, inputs, name="LookedUp", folder="mine")
    assert again.definition == op.definition
    assert before == (path.stat().st_mtime_ns, path.with_suffix(".op.yaml").stat().st_mtime_ns)
    path.write_text("import torch\n")
    with pytest.raises(ConfigError, match="another origin"):
        portkern.Op.from_torch(looked_up, inputs, name="LookedUp", folder="mine")
    assert path.read_text() == "import torch\n"


class _Grows(torch.nn.Module):
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(100, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.table


def _dependent(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "inputs", "said"),
    [
        (_Grows(), [torch.randn(4, 100)], "table is .* of 10000 elements, expected at most 4096"),
        (_dependent, [torch.randn(4)], "torch.export cannot trace _dependent"),
        (torch.relu, [3.0], "no tensor"),
    ],
)
def test_what_no_file_can_hold_is_refused(
    module: Callable[..., Any], inputs: list[Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        portkern.Op.from_torch(module, inputs)
    assert not Path("operators").exists()
