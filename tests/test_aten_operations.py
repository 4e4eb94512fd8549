"""The executor's list of PyTorch's operations is what the schemas of the installed torch say."""

from __future__ import annotations

import re

import pytest

from tools import aten_operations

torch = pytest.importorskip("torch")
LISTED = re.findall(r"(?m)^SIMT_\w+\((\w+)", aten_operations.LIST.read_text("utf-8"))


def test_each_listed_operation_is_one_of_pytorch() -> None:
    assert [name for name in LISTED if not hasattr(torch.ops.aten, name)] == []
    assert len(LISTED) == len({*LISTED}) > 600


def test_the_list_has_all_that_the_schemas_have_but_what_the_headers_define() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the list was written from torch 2.13; python -m tools.aten_operations")
    assert aten_operations.text() == aten_operations.LIST.read_text("utf-8")


@pytest.mark.parametrize("name", ["bernoulli", "where", "cdist", "layer_norm", "mode", "erfinv_"])
def test_operations_that_libraries_ask_for_are_listed(name: str) -> None:
    assert name in LISTED


@pytest.mark.parametrize(
    "name",
    [
        "resize_",
        "t_",
        "view_as_real",
        "unflatten",
        "real",
        "sparse_mask",
        "cat",
        "zeros",
        "matmul_out",
    ],
)
def test_what_changes_a_shape_is_a_view_or_is_defined_elsewhere_is_not_listed(name: str) -> None:
    """A view would be a copy here: what a kernel writes to it would not reach its tensor."""
    assert name not in LISTED
