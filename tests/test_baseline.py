"""Times of the framework, which kernels are compared with."""

from __future__ import annotations

from typing import Any

import torch

from portkern.spec.backend import Call
from portkern.worker.baseline import BaselineLaunch


def transposed(x: Any) -> Any:
    return x.t().contiguous()


def test_an_answer_that_is_a_view_of_an_input_is_copied() -> None:
    x = torch.arange(5.0).reshape(1, 5)
    [answer] = BaselineLaunch(transposed)(Call([x], [], {"rows": 1, "cols": 5}, {}))
    assert torch.equal(answer, x.t())
    assert answer.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_of_several_answers_only_views_are_copied() -> None:
    x, own = torch.ones(3), torch.zeros(3)
    first, second = BaselineLaunch(lambda x: (x, own))(Call([x], [], {"n": 3}, {}))
    assert second is own
    assert first is not x


def test_it_is_asked_again_for_other_sizes() -> None:
    baseline = BaselineLaunch(transposed)
    square = torch.ones(2, 2)
    baseline(Call([square], [], {"rows": 2, "cols": 2}, {}))
    vector = torch.ones(1, 2)
    [answer] = baseline(Call([vector], [], {"rows": 1, "cols": 2}, {}))
    answer.zero_()
    assert vector.sum() == 2


def test_nothing_is_copied_where_nothing_is_a_view() -> None:
    made = torch.zeros(2)
    [answer] = BaselineLaunch(lambda x: made)(Call([torch.ones(2)], [], {"n": 2}, {}))
    assert answer is made
