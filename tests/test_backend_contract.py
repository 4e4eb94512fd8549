"""Every backend that ships with portkern keeps the contract."""

from __future__ import annotations

import pytest

from portkern.cells.selection import host_targets
from portkern.spec import registry
from portkern.spec.backend import Backend
from portkern.spec.target import Target, load
from portkern.testing import BackendContract
from portkern.toolchain import host

#: Without the hardware; a GPU of the vendor that is here takes the place.
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
    pass
