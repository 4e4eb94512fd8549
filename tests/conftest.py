"""Fixtures and marks that every test file shares."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from portkern.sandbox import session
from portkern.spec import registry
from portkern.worker.tracing import PRELOAD
from tests import tiers
from tests.session_watch import TEMPORARY, SessionWatch, writable
from tests.watch import watched

# Threads of one sum wait for each other: where three workers of pytest share two processors, that
# takes up to a hundred times the sum's own time. Kernels and commands in processes keep theirs.
torch.set_num_threads(1)
# JAX in the process of a test asks libtpu for a chip, which would hold a lock of the whole machine.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

# No deadline: machines that run tests are busy.
settings.register_profile("quick", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("full", max_examples=150, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def no_worker_outlives_the_tests() -> Iterator[None]:
    yield
    session.close_servers()


@pytest.fixture
def torch_ahead() -> None:
    """Commands close the fork servers that they start, not those that they find: files of tests
    with many commands that run kernels import PyTorch for their workers once."""
    session.server(("torch",)).begin()


@pytest.fixture
def servers_ahead(torch_ahead: None) -> None:
    """The same for commands on PyTorch files."""
    session.server(PRELOAD).begin()


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """A backend that is built in the tests' process may set what only a worker should keep."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def may_write(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Sequence[Path]:
    temporary = map(Path, (*TEMPORARY, tempfile.gettempdir()))
    return [*writable(pytestconfig), *temporary, tmp_path_factory.getbasetemp()]


@pytest.fixture(autouse=True)
def nothing_is_written_elsewhere(may_write: Sequence[Path]) -> Iterator[None]:
    """A test that writes anywhere else fails. What Python compiles is its own cache, wherever it
    is."""
    with watched(may_write) as beyond:
        yield
    elsewhere = [path for path in beyond if "/__pycache__" not in path]
    assert not elsewhere, f"written outside of temporary folders and caches: {elsewhere[:5]}"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers are many, and the session is one
        config.pluginmanager.register(SessionWatch(config))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Empty, without another session's settings, calls and lessons, but for the executors'
    runtimes and for precompiled headers. Those are addressed by what they are made of and appear
    whole, under a lock; all workers and sessions of this checkout make them once. Builds are not
    shared: portkern's own modules have no part in their key, and here those change."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir()
    kept = getattr(pytestconfig, "cache", None)  # none under -p no:cacheprovider
    if kept is not None:
        for shared in ("simt", "isa", "headers"):
            (folder / shared).symlink_to(kept.mkdir(shared))
    return folder


@pytest.fixture(autouse=True)
def private_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither use nor fill the user's cache."""
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(session_cache))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--drawn",
        action="store_true",
        help="of tests that are full because there are many, the tenth of this commit's date",
    )
    parser.addoption(
        "--strict-writes",
        action="store_true",
        help="a write outside of temporary folders and caches by anything that tests start fails",
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name without the bytes of a value: compressed ones hold the time, so that two workers would
    collect tests of different names and neither would run."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before ``-m`` chooses."""
    day = tiers.day_of(config.rootpath)
    tiers.assign(items, day)
    if config.getoption("--drawn"):
        left = tiers.left_out(items, day)
        config.hook.pytest_deselected(items=left)
        others = set(left)
        items[:] = [item for item in items if item not in others]


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
