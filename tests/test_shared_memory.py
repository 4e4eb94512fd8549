"""Memory that evaluator and worker share, and the random bytes that outputs begin with."""

from __future__ import annotations

import pytest
import torch

from portkern.sandbox.shared_memory import SharedMemory, SharedMemoryView, TensorPlace
from portkern.worker import output_guards


def test_both_sides_see_one_memory_before_and_after_it_grew() -> None:
    with SharedMemory() as memory:
        first = memory.put(torch.arange(5.0))
        early, theirs = memory.look(first), SharedMemoryView(memory.handle)
        assert theirs.tensor(first).tolist() == [0, 1, 2, 3, 4]
        second = memory.put(torch.ones(1 << 20))
        theirs.tensor(first)[0] = 7
        assert early[0] == memory.look(first)[0] == 7
        assert float(theirs.tensor(second).sum()) == 1 << 20
        assert early.tolist() == [7, 1, 2, 3, 4], (
            "tensors outlive the mapping that they were made of"
        )


def test_what_was_taken_stays_when_the_worker_writes_again() -> None:
    with SharedMemory() as memory:
        slot = memory.put(torch.arange(3))
        taken = memory.take(slot)
        SharedMemoryView(memory.handle).write(slot, torch.zeros(3, dtype=torch.int64))
        assert taken.tolist() == [0, 1, 2] and memory.take(slot).tolist() == [0, 0, 0]


def test_a_slot_beyond_the_memory_is_refused() -> None:
    with SharedMemory() as memory:
        memory.put(torch.arange(3))
        with pytest.raises(ValueError, match="buffer"):
            SharedMemoryView(memory.handle).tensor(TensorPlace(1 << 20, (4,), "float32"))


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (257, 300)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int64"])
def test_every_byte_of_an_output_is_poisoned_anew(shape: tuple[int, ...], dtype: str) -> None:
    one, other = (
        output_guards.poison(shape, dtype).reshape(-1).view(torch.uint8) for _ in range(2)
    )
    assert len(one) == len(other) == torch.Size(shape).numel() * getattr(torch, dtype).itemsize
    assert len(one) < 8 or float((one != other).float().mean()) > 0.5


def test_margins_are_those_of_the_block_and_differ_from_its_poison() -> None:
    block = torch.zeros(output_guards.guarded_bytes((100, 1000), "float32"), dtype=torch.uint8)
    edges = output_guards.guard(block)
    assert torch.equal(edges, output_guards.margins(block))
    before, behind = edges.chunk(2)
    assert len(before) == output_guards.MARGIN and not torch.equal(before, behind)
    assert float((block == 0).float().mean()) < 0.02, "all of it is random"
