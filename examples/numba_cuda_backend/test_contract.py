"""The backend keeps portkern's contract: `pytest test_contract.py`, once it is installed."""

from __future__ import annotations

import pytest

from portkern.spec import registry
from portkern.spec.backend import Backend
from portkern.spec.target import Target, load
from portkern.testing import NO_OPS, BackendContract

NO_OPS["numba-cuda"] = "from numba import cuda\n\ndef relu(x, y):\n    pass\n"


@pytest.fixture
def backend() -> Backend:
    return registry.load("numba_cuda")


@pytest.fixture
def target() -> Target:
    return load("sm_90")


class TestNumbaCuda(BackendContract):
    pass
