"""Backends by name, and what is said to those that were written for an earlier portkern."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from portkern.errors import ConfigError
from portkern.spec import registry


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of a third party's backend ``sycl``, to be written by the test."""
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("sycl", "portkern_sycl:SyclBackend", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **asked: [point])
    registry.load.cache_clear()
    yield tmp_path / "portkern_sycl.py"
    registry.load.cache_clear()


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("from portkern.backend import Backend", "portkern.backend is portkern.spec.backend now"),
        ("from portkern.device import TorchDevice", "portkern.toolchain.torch_device now"),
        ("from portkern import host", "portkern.host is portkern.toolchain.host now"),
    ],
)
def test_a_backend_of_an_earlier_portkern_is_refused_with_what_moved(
    plugin: Path, line: str, moved: str
) -> None:
    plugin.write_text(line + "\n")
    with pytest.raises(ConfigError, match=r"'sycl' was written for portkern 0\.1") as caught:
        registry.load("sycl")
    assert moved in str(caught.value)


def test_a_backend_that_lacks_a_library_of_its_own_says_so_itself(plugin: Path) -> None:
    plugin.write_text("import a_library_that_is_not_here\n")
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_here"):
        registry.load("sycl")
