"""Fixtures and marks that every test file shares."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from portkern.sandbox import session
from portkern.spec import registry
from tests import tiers

ROOT = Path(__file__).parents[1]
#: Builds of other sources than these are of no use to anyone after so long.
STALE_S = 24 * 3600.0

# No deadline: machines that run tests are busy.
settings.register_profile("quick", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("full", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


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


@pytest.fixture(scope="session")
def shared_cache(pytestconfig: pytest.Config) -> Mapping[str, Path]:
    """Of all workers and sessions in this checkout: ``simt`` has runtimes and headers, ``builds``
    artifacts. What is in them is addressed by what it was made of, and appears whole."""
    assert pytestconfig.cache is not None, "pytest runs with its cacheprovider"
    folder = Path(pytestconfig.cache.mkdir("portkern"))
    # A build's key has no part for portkern's own modules, whose versions here are many.
    shared = {"simt": folder / "simt", "builds": folder / f"builds-{_sources_digest()}"}
    for place in shared.values():
        place.mkdir(exist_ok=True)
        os.utime(place)
    for old in folder.glob("builds-*"):
        with suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > STALE_S:
                shutil.rmtree(old, ignore_errors=True)
    return shared


@pytest.fixture(scope="session")
def session_cache(
    tmp_path_factory: pytest.TempPathFactory, shared_cache: Mapping[str, Path]
) -> Path:
    """Empty but for what is shared: without another session's settings, calls and lessons."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir()
    for name, place in shared_cache.items():
        (folder / name).symlink_to(place)
    return folder


@pytest.fixture(autouse=True)
def private_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither use nor fill the user's cache."""
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(session_cache))


def _sources_digest() -> str:
    """Of everything that has a part in a build."""
    digest = hashlib.sha256()
    for folder in ("portkern", "backends", "targets", "constraints"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before ``-m`` chooses."""
    tiers.assign(items)


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
