"""Every backend that ships with portkern keeps the contract."""

from __future__ import annotations

import pytest

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.spec import catalogue, registry
from portkern.spec.backend import Backend
from portkern.spec.target import Target, load
from portkern.testing import BackendContract
from portkern.toolchain import host

#: Targets without their hardware; a GPU of the vendor that is here takes the place.
TARGETS = {
    "cpu": "x86_64",
    "opencl": "opencl_generic",
    "cuda": "sm_90",
    "triton": "sm_90",
    "pallas": "sm_90",
    "hip": "gfx942",
}


@pytest.fixture(scope="class", params=registry.names())
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every registered backend, with or without its hardware."""
    return registry.load(request.param)


@pytest.fixture(scope="class")
def target(backend: Backend) -> Target:
    here = [load(name) for name in host_targets()] if host.gpus() else []
    claimed = [t for t in here if t.is_gpu and backend.supports(t)]
    return claimed[0] if claimed else load(TARGETS[backend.name])


class TestShippedBackends(BackendContract):
    @pytest.mark.parametrize("op", ops.CORE)
    def test_it_ships_a_kernel_for_every_core_op(self, backend: Backend, op: str) -> None:
        shipped = catalogue.candidates(op, backend)
        assert [c.language for c in shipped] == list(backend.languages.values())
