"""Tensors of more elements than 32 bits can count, on a GPU that has room for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Build, Call, Missing

LONG, WIDE = 65537, 32771  # more than 2**31 together
#: The dims of each op, and from inputs and outputs what was expected and what came, at the end.
CASES: dict[str, tuple[tuple[int, ...], Callable[..., list[tuple[Any, Any]]]]] = {
    "relu": (
        (LONG * WIDE,),
        lambda x, y: [(x[-9:].relu(), y[-9:]), (x[1 << 31].relu(), y[1 << 31])],
    ),
    "add": ((LONG, WIDE), lambda a, b, c: [(a[-3:] + b, c[-3:])]),
    "transpose": ((LONG, WIDE), lambda x, y: [(x[-3:].T, y[:, -3:]), (x[:, -3:].T, y[-3:])]),
    "sum": ((LONG, WIDE, 1), lambda x, y: [(x[-3:].float().sum(1).to(y.dtype), y[-3:])]),
    "softmax": ((LONG, WIDE), lambda x, y: [(x[-3:].softmax(1), y[-3:])]),
    "embedding": ((LONG, WIDE, 4), lambda table, index, out: [(table[index], out)]),
}
GPUS = [t for t in map(target.load, host_targets()) if t.is_gpu]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["cuda", "hip", "triton"])
def test_an_index_needs_more_than_32_bits(backend: str, name: str, tmp_path: Path) -> None:
    import torch

    live = registry.load(backend)
    where = next((gpu for gpu in GPUS if live.supports(gpu)), target.load("sm_90"))
    venue, ready = live.venues(where).hardware, live.probe(where)
    for state in (venue, ready):
        if isinstance(state, Missing):
            pytest.skip(str(state))
    assert not isinstance(venue, Missing)
    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("the GPU has less than 24 GiB to spare")
    op = ops.load(name)
    sizes, ends = CASES[name]
    dims = dict(zip(op.signature.axes, sizes, strict=True))
    [candidate] = catalogue.candidates(name, live)
    request = Build(candidate, op.signature, "bfloat16", where, dims, {}, runnable=True)
    kernel = live.load(live.build(request, tmp_path), request, venue)
    given = [_drawn(spec, spec.sizes(dims)) for spec in op.signature.inputs]
    results = [
        torch.full(spec.sizes(dims), float("nan"), dtype=torch.bfloat16, device="cuda")
        for spec in op.signature.outputs
    ]
    kernel.launch(Call(given, results, dims, {}))
    torch.cuda.synchronize()
    for expected, came in ends(*given, *results):
        torch.testing.assert_close(came, expected, rtol=2e-2, atol=1e-2)


def _drawn(spec: Any, sizes: tuple[int, ...]) -> Any:
    """Floats on the GPU, or the last places of a table of LONG rows."""
    import torch

    if spec.resolve("bfloat16") == "bfloat16":
        return torch.randn(sizes, dtype=torch.bfloat16, device="cuda")
    return LONG - 1 - torch.arange(*sizes, device="cuda")
