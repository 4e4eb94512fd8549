"""Fixtures and marks that every test file shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from portkern.sandbox import session
from portkern.spec import registry


@pytest.fixture(scope="session", autouse=True)
def no_worker_outlives_the_tests() -> Iterator[None]:
    yield
    session.close_servers()


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """A backend that is built in the tests' process may set what only a worker should keep."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def private_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests neither use nor fill the user's cache."""
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Turn notimpl/notyet/never into strict xfails, so that a gap that closes fails the build."""
    backend: Any = getattr(item, "funcargs", {}).get("backend")
    for kind in ("notimpl", "notyet", "never"):
        for mark in item.iter_markers(kind):
            unknown = set(mark.args) - set(registry.names())
            if unknown:
                raise pytest.UsageError(f"{kind} names unknown backends {sorted(unknown)}")
            if backend is not None and backend.name in mark.args:
                item.add_marker(pytest.mark.xfail(**mark.kwargs))
