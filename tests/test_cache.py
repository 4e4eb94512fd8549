"""Artifacts are kept by everything that decides them, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from portkern import ops
from portkern.evaluator import artifact_cache
from portkern.evaluator.artifact_cache import ArtifactCache, build_key
from portkern.spec import registry
from portkern.spec.backend import Artifact, Build, Resources
from portkern.spec.target import load

from .kernels import RIGHT, relu


def request() -> Build:
    return Build(relu(RIGHT), ops.load("relu").signature, "float32", load("sm_90"), {"n": 8}, {})


def test_a_key_follows_source_dtype_architecture_and_toolchain() -> None:
    one = request()
    others = [
        build_key(replace(one, candidate=relu("return 0;")), "sm_90", {}),
        build_key(replace(one, dtype="float16"), "sm_90", {}),
        build_key(one, "sm_80", {}),
        build_key(replace(one, runnable=False), "sm_90", {}),
        build_key(one, "sm_90", {"nvcc": "13.0"}),
    ]
    assert len({build_key(one, "sm_90", {}), *others}) == 6


def test_a_key_follows_the_code_that_prepares_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_key(request(), "sm_90", {})
    monkeypatch.setattr(artifact_cache, "evaluator_digest", lambda: "edited")
    assert build_key(request(), "sm_90", {}) != before


def test_a_key_follows_the_backends_own_files_but_not_their_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "kernels" / "backends"  # where portkern lies says nothing
    keys = []
    headers = ("gpu/include/portkern/portable.h", "cpu/include/rows.py")
    for name in ("harness.cl", "kernels/relu.cu", "harness.cl", *headers):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        with (own / name).open("a") as file:
            file.write("// more\n")
        monkeypatch.setattr("portkern.backends.__path__", [str(own)])
        artifact_cache.backends_digest.cache_clear()
        keys.append(build_key(request(), "sm_90", {}))
    monkeypatch.undo()
    artifact_cache.backends_digest.cache_clear()
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_a_product_shares_its_architectures_builds() -> None:
    cuda, cpu = registry.load("cuda"), registry.load("cpu")
    assert cuda.builds_for(load("h200")) == cuda.builds_for(load("sm_90"))
    assert cpu.builds_for(load("x86_64_avx2")) != cpu.builds_for(load("x86_64_avx512"))


def put(cache: ArtifactCache, text: str = "code") -> Artifact:
    with cache.workdir() as workdir:
        (workdir / "k.so").write_text(text)
        made = Artifact(workdir / "k.so", "shared library", (Resources("k", registers=3),), "log")
        return cache.put("key", workdir, made)


def test_an_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    kept = put(cache)
    assert cache.get("key") == kept
    assert kept.path.read_text() == "code"
    assert kept.resources[0].registers == 3
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, "first")
    assert put(cache, "second").path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache).path.unlink()
    assert cache.get("key") is None
    (tmp_path / "key" / "artifact.json").write_text("{")
    assert cache.get("key") is None
    assert put(cache, "again").path.read_text() == "again"
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:2]),
        lambda file: file.write_bytes(b"cod3"),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes() + b"\0" * 100),
    ],
    ids=["truncated", "a bit turned", "emptied", "grown"],
)
@pytest.mark.parametrize("name", ["k.so", "beside/more.o"])
def test_an_altered_file_is_noticed_and_built_again(
    damage: Callable[[Path], object], name: str, tmp_path: Path
) -> None:
    cache = ArtifactCache(tmp_path)
    with cache.workdir() as workdir:
        (workdir / "beside").mkdir()
        (workdir / "k.so").write_text("code")
        (workdir / "beside/more.o").write_text("more")
        kept = cache.put("key", workdir, Artifact(workdir / "k.so", "shared library"))
    assert cache.get("key") == kept
    damage(tmp_path / "key" / name)
    assert cache.get("key") is None
    assert put(cache, "again").path.read_text() == "again"
    assert cache.get("key") is not None


def test_an_altered_manifest_is_noticed(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache)
    manifest = tmp_path / "key" / "artifact.json"
    text = manifest.read_text()
    manifest.write_text(text.replace("shared library", "cubin"))
    assert cache.get("key") is None
    for length in range(0, len(text), 7):
        manifest.write_text(text[:length])
        assert cache.get("key") is None
    manifest.write_text(text)
    assert cache.get("key") is not None


def test_an_artifact_of_megabytes_is_looked_at_in_milliseconds(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, "x" * (4 << 20))
    start = time.process_time()
    assert cache.get("key") is not None
    assert time.process_time() - start < 0.2
