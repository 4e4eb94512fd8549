"""A library of kernels: which it has, by what evidence, and that its operators are never wrong."""

from __future__ import annotations

import base64
import builtins
import copy
import ctypes
import enum
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import marshal
import os
import re
import shutil
import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from benchmarks import library_checks, library_study
from portkern import ops
from portkern.cli import main
from portkern.deploy import artifacts, launches, library, objects, signing
from portkern.deploy.artifacts import as_measured
from portkern.deploy.evidence import device_of, table
from portkern.deploy.library import LibraryOptions
from portkern.deploy.operators import Operator, translation_unit
from portkern.deploy.package import _build, _plans, _signature, hub
from portkern.errors import BuildError, ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest
from portkern.formats.exported import Export, KernelRecords
from portkern.isa import executor
from portkern.ops.formulas import FORMULAS
from portkern.records.record import (
    Environment,
    Evidence,
    Record,
    RecordFile,
    Speedup,
    Verdict,
    WorkloadRef,
)
from portkern.sandbox import session
from portkern.spec import launch_plan, registry
from portkern.spec import target as targets
from portkern.spec.backend import Build
from portkern.spec.op import Workload
from portkern.toolchain import fat_binary, host
from portkern.toolchain.run_tool import refuse_foreign
from tests.test_formats_out import TIMING, kernel, record, shipped

UNTIMED: dict[str, Any] = {"timing": None, "speedup": {}, "baselines": {}}
OPS = {name: ops.load(name) for name in ops.names()}
KEYS = {name: Operator.of(ops.load(name), 0, "x").key for name in ops.names()}
HERE = Environment(
    machine=host.machine(), device=host.cpu_name(), toolchain={}, harness_version="0"
)


def measured(name: str, workload: Workload | None = None, **changes: Any) -> Record:
    """A record measured on this CPU, three times as fast as the framework."""
    op = ops.load(name)
    work = workload or op.workloads["ci"][0]
    reference = WorkloadRef(
        set="ci",
        name=work.name,
        dims=dict(work.dims),
        dtype="float32",
        scalars=dict(op.signature.scalar_values(work.scalars)),
    )
    said: dict[str, Any] = {
        "workload": reference,
        "target": "x86_64",
        "venue": f"hardware: {host.cpu_name()}",
        "environment": HERE,
        "baselines": {"eager": TIMING.model_copy(update={"median_us": 3 * TIMING.median_us})},
        "speedup": {"eager": Speedup(value=3.0, ci95=(2.5, 3.5))},
    }
    return record(shipped(name, "cpu", "c++"), **said | changes)


def of_cpu(name: str, *records: Record) -> KernelRecords:
    return kernel(shipped(name, "cpu", "c++"), *records or (measured(name),))


# ---- Evidence


def test_every_shipped_op_has_a_formula_and_a_key() -> None:
    assert set(FORMULAS) == set(ops.names())
    assert KEYS["topk"] == ("rows", "cols", "kept", "k")
    assert KEYS["rmsnorm"] == ("rows", "cols")


@pytest.mark.parametrize("name", [name for name in ops.names() if FORMULAS[name].lengths])
def test_lengths_that_follow_are_those_of_the_op(name: str) -> None:
    op = ops.load(name)
    form = Operator.of(op, 0, "x").form
    for several in op.workloads.values():
        for work in several:
            scalars = op.signature.scalar_values(work.scalars)
            for axis, said in form.derived.items():
                assert said({**work.dims, **scalars}) == work.dims[axis]


def test_the_fastest_kernel_of_a_cell_counts_by_the_lower_end_of_its_interval() -> None:
    wide = measured("softmax", speedup={"eager": Speedup(value=9.0, ci95=(0.5, 20.0))})
    other = measured("softmax", target="x86_64_avx2")
    found = table([of_cpu("softmax", wide, other)], Evidence.MEASURED, KEYS)
    [cell] = found.cells
    assert (cell.kernel.target, cell.speedup, cell.key) == ("x86_64_avx2", 2.5, (32, 129))
    assert [one.target for one in found.kernels] == ["x86_64_avx2"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"evidence": Evidence.EMULATED, "timing": None, "speedup": {}, "baselines": {}},
            "its evidence is emulated, expected verified",
        ),
        (
            {"evidence": Evidence.VERIFIED, "timing": None, "speedup": {}, "baselines": {}},
            "its evidence is verified, expected measured",
        ),
        (
            {"evidence": Evidence.EXECUTED, "timing": None, "speedup": {}, "baselines": {}},
            "its evidence is executed, expected measured",
        ),
        ({"verdict": Verdict.WRONG}, "it is wrong at"),
    ],
)
def test_a_kernel_of_less_evidence_or_that_was_bad_once_is_refused_whole(
    changes: dict[str, Any], reason: str
) -> None:
    if "verdict" in changes:
        candidate = shipped("softmax", "cpu", "c++")
        weak = record(candidate, Verdict.WRONG, target="x86_64", environment=HERE)
    else:
        weak = measured("softmax", **changes)
    wanted = Evidence.VERIFIED if "expected verified" in reason else Evidence.MEASURED
    found = table([of_cpu("softmax", measured("softmax"), weak)], wanted, KEYS)
    assert not found.kernels
    assert reason in found.refused[0]


def test_a_noisy_time_is_not_a_reason_to_take_a_kernel() -> None:
    timing = measured("softmax").timing
    assert timing is not None
    noisy = measured("softmax", timing=timing.model_copy(update={"noisy": "busy"}))
    assert table([of_cpu("softmax", noisy)], Evidence.MEASURED, KEYS).cells[0].speedup == 0.0


@pytest.mark.parametrize(("device", "speedup"), [(HERE.device, 0.9), ("Another", 2.5)])
def test_a_framework_that_was_slow_in_one_run_is_held_to_its_best_time(
    device: str, speedup: float
) -> None:
    """A kernel beside a slow framework is not faster than what is timed beside a fast one."""
    own = TIMING.model_copy(update={"median_us": 8.0, "ci95_us": (7.5, 10.0)})
    slow = measured("softmax", timing=own)
    best = {"eager": own.model_copy(update={"median_us": 9.0})}
    lost = {"eager": Speedup(value=0.5, ci95=(0.4, 0.6))}
    environment = HERE.model_copy(update={"device": device})
    fast = measured("softmax", baselines=best, speedup=lost, environment=environment)
    cells = table([of_cpu("softmax", slow, fast)], Evidence.MEASURED, KEYS).cells
    assert max(cell.speedup for cell in cells) == speedup


def test_a_cpu_is_told_apart_by_its_number_of_processors() -> None:
    one = measured("softmax")
    assert device_of(one).startswith(f"{host.cpu_name()}, ")
    gpu = record(shipped("softmax", "cuda"))
    assert device_of(gpu) == "NVIDIA H200"
    hip = table([kernel(shipped("softmax", "hip"))], Evidence.MEASURED, KEYS)
    assert "operators call C++ on CPUs, and CUDA and Triton" in hip.refused[0]


def test_headers_of_another_day_go_with_the_kernel() -> None:
    plain = shipped("softmax", "cpu", "c++")
    assert as_measured(plain) is plain
    from dataclasses import replace

    old = replace(plain, headers={"portkern/rows.h": "// of another day\n"})
    built = as_measured(old)
    assert built.companions.texts["portkern/rows.h"] == "// of another day\n"
    assert built.companions.include == (".",)


@pytest.mark.parametrize("name", ["aten", "Fast", "a-b", "import", "../x", "", "1st", "a" * 80])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected small letters"):
        library.check_name(name)


def test_what_the_guard_refuses_is_in_no_library_whatever_its_records_say(tmp_path: Path) -> None:
    """Records may be a stranger's, and a library runs where there is no jail."""
    honest = of_cpu("relu")
    early = 'struct Early { Early() { system("true"); } } early;\n'
    source = f"#include <cstdlib>\n{early}{honest.candidate.source}"
    forged = replace(honest, candidate=replace(honest.candidate, source=source))
    export = Export(tmp_path)
    assert library.write([forged], export, LibraryOptions("fast")) is None
    assert "rejected" in export.skipped[0].reason and not export.files


def test_the_text_of_all_operators_names_each_once() -> None:
    made = [Operator.of(ops.load(name), n, "fast") for n, name in enumerate(ops.names())]
    text = translation_unit(made)
    assert text.count("{at::Tag::pt2_compliant_tag}") == len(made)
    assert 'm.def("softmax(Tensor x) -> Tensor"' in text
    assert "topk(Tensor x, int k=1) -> (Tensor, Tensor)" in text


def test_a_gradient_comes_from_each_output_that_has_one() -> None:
    text = Operator.of(ops.load("add_rmsnorm"), 0, "fast").text()
    assert "given.push_back(std::get<1>(made)); of.push_back(gradients[1]);" in text
    text = Operator.of(ops.load("topk"), 0, "fast").text()
    assert "mark_non_differentiable({std::get<1>(y)})" in text
    assert "gradients[1]" not in text  # of indices
    assert [n for n in ops.names() if not FORMULAS[n].differentiable] == ["argmax"]


def test_a_layer_of_gelu_leaves_another_approximation_to_the_framework(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space: dict[str, Any] = {"__package__": "pk_layers"}
    called: list[Any] = []

    def gelu(x: torch.Tensor) -> torch.Tensor:
        called.append(x)
        return torch.nn.functional.gelu(x)

    monkeypatch.setitem(sys.modules, "pk_layers", types.SimpleNamespace(gelu=gelu))
    exec(hub.text_of_layers(["gelu"]), space)
    x = torch.linspace(-3, 3, 50)
    for approximate, count in (("tanh", 0), ("none", 1)):
        own = torch.nn.GELU(approximate)
        assert torch.equal(space["GELU"].forward(own, x), own(x))
        assert len(called) == count


def test_objects_of_amd_are_built_with_the_headers_that_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def stopped(requests: list[Any], cache: Any) -> None:
        asked.extend(requests)
        raise artifacts.LeftOut("stopped")

    monkeypatch.setattr(objects, "artifacts_of", stopped)
    old = replace(shipped("softmax", "hip"), headers={"portkern/rows.h": "// of another day\n"})
    assert objects._of(kernel(old), targets.load("gfx942")) == "stopped"
    assert asked[0].build.candidate.companions.texts["portkern/rows.h"] == "// of another day\n"


def test_a_commit_is_that_of_the_checkout_that_has_the_file(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
    inside = tmp_path / "venv/own.py"
    inside.parent.mkdir()
    (tmp_path / "other.py").touch()
    inside.touch()
    for words in (["init", "-q"], ["add", "other.py"], ["commit", "-qm", "One file"]):
        subprocess.run([*git, *words], check=True)
    assert signing.commit(inside) == "", "the repository around is another project's"
    (tmp_path / ".gitignore").write_text("venv\n.gitignore\n")
    said = signing.commit(tmp_path / "other.py")
    assert len(said) == 40 and int(said, 16)
    (tmp_path / "other.py").write_text("changed")
    assert signing.commit(tmp_path / "other.py") == f"{said}-dirty"


def test_a_compiler_that_does_not_end_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_build, "TIMEOUT_S", 0.5)
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(_build.CannotBuild, match=r"sh was ended, as it took over 0\.5 s"):
        _build._run(["sh", "-c", script], tmp_path / "made.so")
    stat = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    end = time.monotonic() + 20
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "what the compiler started still runs"
        time.sleep(0.01)
    assert not [*tmp_path.glob("**/made.so")]


def test_a_study_times_a_kernel_at_the_sizes_that_it_takes(tmp_path: Path) -> None:
    cells = [{"key": [4, 8]}, {"key": [16, 8]}]
    (tmp_path / "plan.json").write_text(json.dumps({"cells": cells}))
    own = [{"binaries": {"x": ""}, "file": "plan.json"}, {"binaries": {}, "file": "any.so"}]
    lib = types.SimpleNamespace(HERE=tmp_path, _kernels={(0, 0, 1): own})
    study = library_study.Study(lib, "cpu", 1)
    assert study.able(0, 1, [16, 8]) == [0, 1]
    assert study.able(0, 1, [8, 16]) == [1], "the operator would call the formula in its place"
    known: list[int] = []
    times = study._times(lambda: None, [1], known.append)
    assert set(times) == {-1, 1} == set(known)


# ---- What was signed


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A package of a library's own Python with a table of nothing, and the key that it is signed
    by."""
    key, package = signed_by(tmp_path / "keys"), tmp_path / "pk_signed"
    own = Path(hub.__file__).parent
    files = {one.name: one.read_bytes() for one in own.glob("*.*") if one.suffix in (".py", ".h")}
    files["__init__.py"] = files.pop("runtime.py")
    files |= {"table.json": b"{}", "kernels/one.so": b"code"}
    about = {"name": "pk_signed", "version": "1", "records": []}
    for name, data in (files | signing.metadata(files, about, str(key))).items():
        place = package / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    finders = [*sys.meta_path]
    yield package, key.with_name("public.pem")
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.split(".")[0] == "pk_signed"]:
        del sys.modules[name]


ADDED = "import builtins; builtins.pk_added = True\n"


@pytest.mark.parametrize(
    "name",
    [
        *("_apply/__init__.py", "_signature/__init__.py", "_apply.pyc", "kernels/one.h"),
        *(f"_apply{importlib.machinery.EXTENSION_SUFFIXES[0]}", "torch/extension.h", "kernels/a/b"),
    ],
)
def test_a_file_that_was_added_to_a_signed_library_is_refused(
    name: str, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, key = signed
    _signature.check(*signed)
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text(ADDED)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PORTKERN_LIBRARY_KEY", str(key))
    with pytest.raises(ImportError, match=r"pk_signed: .* is not among the files that were signed"):
        importlib.import_module("pk_signed")
    assert not hasattr(builtins, "pk_added")


def test_a_link_in_the_place_of_a_signed_folder_is_refused(signed: tuple[Path, Path]) -> None:
    package, _ = signed
    (package / "kernels").rename(package.parent / "elsewhere")
    (package / "kernels").symlink_to(package.parent / "elsewhere")
    with pytest.raises(_signature.NotSigned, match="kernels is not among the files"):
        _signature.check(*signed)


def test_a_signed_library_is_loaded_from_its_texts_and_not_from_bytecode(
    signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, key = signed
    code = compile(ADDED, "added", "exec")
    data = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)
    for name in ("_apply", "_signature", "_report", "added"):  # such that nothing compares
        kept = Path(importlib.util.cache_from_source(str(package / f"{name}.py")))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(data)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PORTKERN_LIBRARY_KEY", str(key))
    with pytest.raises(KeyError, match="name"):  # the table is empty; all was imported before
        importlib.import_module("pk_signed")
    assert "pk_signed._report" in sys.modules and not hasattr(builtins, "pk_added")
    finder = _signature.Listed("pk_signed", package, _signature.check(*signed))
    with pytest.raises(ModuleNotFoundError, match="is not among the signed files"):
        finder.find_spec("pk_signed.added")
    assert finder.find_spec("pk_signed_too.added") is None
    with (package / "_work.py").open("a") as file:
        file.write("\n# changed\n")
    spec = finder.find_spec("pk_signed._work")
    assert spec and spec.loader
    with pytest.raises(ImportError, match="has changed since its signature was looked at"):
        spec.loader.exec_module(types.ModuleType("pk_signed._work"))


def test_a_repository_of_kernels_has_the_librarys_signature_under_another_name(
    signed: tuple[Path, Path],
) -> None:
    package, _ = signed
    for own, there in zip(("metadata.json", "metadata.sig"), _signature.REPOSITORY, strict=True):
        (package / own).rename(package / there)
    (package / "metadata.json").write_text("{}")  # that of kernels, which nothing here reads
    assert "_apply.py" in _signature.check(*signed)
    (package / "metadata.sig").touch()
    with pytest.raises(_signature.NotSigned, match=r"metadata\.sig is not among the files"):
        _signature.check(*signed)
    (package / "signed.json").write_text('{"files": {}}')
    with pytest.raises(_signature.NotSigned, match=r"signed\.json was not signed by the owner"):
        _signature.check(*signed)


# ---- The library, installed and called


def signed_by(folder: Path) -> Path:
    """A new private key; the public one is beside it."""
    folder.mkdir(exist_ok=True)
    private = Ed25519PrivateKey.generate()
    form = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "private.pem").write_bytes(form)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "public.pem").write_bytes(public)
    return folder / "private.pem"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of every shipped C++ kernel, measured at three sizes of softmax."""
    emulated = record(shipped("rope", "cuda"), evidence=Evidence.EMULATED, **UNTIMED)
    kernels = []
    for name in ops.names():
        records = [measured(name)]
        if name == "softmax":
            sizes = [(64, 1024), (128, 1024), (64, 2048)]
            works = [Workload(f"{r}x{c}", {"rows": r, "cols": c}) for r, c in sizes]
            slow = Workload("16x16", {"rows": 16, "cols": 16})
            records = [measured(name, work) for work in works]
            speedup = {"eager": Speedup(value=0.9, ci95=(0.8, 1.0))}
            records.append(measured(name, slow, speedup=speedup))
        kernels.append(of_cpu(name, *records))
    kernels.append(kernel(shipped("rope", "cuda"), emulated))
    export = Export(tmp_path_factory.mktemp("wheel"))
    key = signed_by(export.folder.parent / "keys")
    made = library.write(kernels, export, LibraryOptions("pk_test_library", key=str(key)))
    assert made is not None, export.skipped
    assert [one.reason for one in export.skipped] == ["its evidence is emulated, expected measured"]
    return made


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def lib(site: Path) -> Iterator[Any]:
    sys.path.insert(0, str(site))
    try:
        made = importlib.import_module("pk_test_library")
        assert [line.partition(" ")[0] for line in made.refused] == ["rope"]
        yield made
    finally:
        sys.path.remove(str(site))


@pytest.fixture
def always(lib: Any) -> Iterator[Any]:
    """Kernels wherever one could be called."""
    lib._policy("always")
    yield lib
    lib._policy("evidence")


drawn = partial(library_checks.drawn, device="cpu")


def compare(got: Any, expected: Any) -> None:
    several = isinstance(expected, tuple | list)
    pairs = zip(got, expected, strict=True) if several else [(got, expected)]
    for one, other in pairs:
        assert one.dtype == other.dtype and one.shape == other.shape
        loose = {torch.float16: 2e-2, torch.bfloat16: 6e-2}.get(one.dtype, 2e-4)
        torch.testing.assert_close(one, other, rtol=loose, atol=loose, equal_nan=True)


#: A tensor without values, in place of one that is moved to the CPU on which all are here.
HOSTILE = {name: change for name, change in library_checks.HOSTILE.items() if name != "on a CPU"}
HOSTILE["meta"] = lambda x: x.to("meta")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("name", ops.names())
def test_whatever_is_given_the_answer_is_that_of_the_formula(name: str, always: Any) -> None:
    """All inputs, and each alone, are made hostile; where the formula refuses, so does it."""
    op, call = ops.load(name), getattr(always, name)
    before = _calls(always, name)
    for workload in (op.workloads["ci"][0], op.workloads["edge"][2]):
        tensors, scalars = drawn(op, workload)
        named = dict(zip((s.name for s in op.signature.scalars), scalars, strict=True))
        for hostile, change in HOSTILE.items():
            for which in ({*range(len(tensors))}, *({n} for n in range(len(tensors)))):
                given = [change(t) if n in which else t for n, t in enumerate(tensors)]
                try:
                    expected = op.reference(*given, **named)
                except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
                    with pytest.raises(Exception, match=r"."):
                        call(*given, *scalars)
                    continue
                got = call(*given, *scalars)
                if hostile == "meta":
                    continue
                compare(got, expected)
    assert _calls(always, name) > before, "the kernel itself was called"


def _calls(lib: Any, name: str) -> int:
    shapes = lib.receipt()["operators"][name]["shapes"]
    return sum(one["calls"] for one in shapes if one["kernel"])


INDEXED = {"embedding": 1, "cross_entropy": 1, "scatter_add": 1}


@pytest.mark.full
@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("value", [-1, -100, 1 << 40])
def test_indices_out_of_range_never_reach_a_kernel(name: str, value: int, always: Any) -> None:
    op = ops.load(name)
    tensors, scalars = drawn(op, op.workloads["ci"][0])
    tensors[INDEXED[name]][3] = value
    said = always.explain(name, *tensors, *scalars)
    assert "indices are out of range" in said["reason"]
    if name == "cross_entropy" and value == -100:
        compare(always.cross_entropy(*tensors), op.reference(*tensors))
    else:
        with pytest.raises((IndexError, RuntimeError)):
            getattr(always, name)(*tensors, *scalars)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", ops.names())
def test_gradients_and_transforms_are_those_of_the_formula(name: str, always: Any) -> None:
    op, call = ops.load(name), getattr(always, name)
    tensors, scalars = drawn(op, op.workloads["ci"][0])
    named = dict(zip((s.name for s in op.signature.scalars), scalars, strict=True))
    floats = [n for n, t in enumerate(tensors) if t.is_floating_point()]

    def of(function: Any) -> Any:
        return lambda *given: _first(function(*given))

    ours, theirs = of(lambda *g: call(*g, *scalars)), of(lambda *g: op.reference(*g, **named))
    if FORMULAS[name].differentiable:
        for function in (ours, theirs):
            assert function(*tensors).is_floating_point()
        compare(_backward(ours, tensors, floats), _backward(theirs, tensors, floats))
        place = tuple(floats)
        both = [
            torch.func.grad(lambda *g, f=f: f(*g).square().sum(), argnums=place)(*tensors)
            for f in (ours, theirs)
        ]
        compare(both[0], both[1])
        tangents = tuple(torch.ones_like(t) if t.is_floating_point() else t for t in tensors)
        if len(floats) == len(tensors):
            _same_tangents(ours, theirs, tuple(tensors), tangents)
    stacked = [torch.stack([t, t]) for t in tensors]
    compare(
        torch.vmap(ours, randomness="error")(*stacked),
        torch.stack([theirs(*tensors)] * 2),
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(*tensors).dtype == theirs(*tensors).dtype


@pytest.mark.full
@pytest.mark.parametrize("which", [(0, 1), (1,), (1, 0)])
def test_all_outputs_of_an_operator_have_their_gradients(
    which: tuple[int, ...], always: Any
) -> None:
    """A residual goes on by the second output of add_rmsnorm alone."""
    op = ops.load("add_rmsnorm")
    tensors, scalars = drawn(op, op.workloads["ci"][0])

    def some(function: Any) -> Any:
        return lambda *given: torch.cat([function(*given)[n].flatten() for n in which])

    ours, theirs = (
        some(lambda *g: always.add_rmsnorm(*g, *scalars)),
        some(lambda *g: op.reference(*g, eps=scalars[0])),
    )
    floats = [0, 1, 2] if 0 in which else [0, 1]
    compare(_backward(ours, tensors, floats), _backward(theirs, tensors, floats))


def _same_tangents(ours: Any, theirs: Any, tensors: Any, tangents: Any) -> None:
    """Or neither has any: attention on a CPU has none."""
    try:
        expected = torch.func.jvp(theirs, tensors, tangents)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            torch.func.jvp(ours, tensors, tangents)
        return
    compare(torch.func.jvp(ours, tensors, tangents), expected)


def _first(made: Any) -> torch.Tensor:
    one: torch.Tensor = made[0] if isinstance(made, tuple) else made
    return one


def _backward(function: Any, tensors: list[torch.Tensor], floats: list[int]) -> Any:
    given = [t.clone().requires_grad_(n in floats) for n, t in enumerate(tensors)]
    made = function(*given)
    weights = torch.linspace(-1, 1, max(made.numel(), 1))[: made.numel()].view(made.shape)
    return torch.autograd.grad((made * weights).sum(), [given[n] for n in floats])


#: Torch itself ends with an error where a gradient of it is traced for all sizes at once.
NO_DYNAMIC_GRADIENT = ("cross_entropy",)


@pytest.mark.full
@pytest.mark.parametrize("name", ops.names())
def test_torchs_own_check_of_operators_passes(name: str, always: Any) -> None:
    op = ops.load(name)
    tensors, scalars = drawn(op, op.workloads["ci"][0])
    operator = getattr(torch.ops.pk_test_library, name).default
    for wanted in (False, True):
        given = [t.clone().requires_grad_(wanted and t.is_floating_point()) for t in tensors]
        checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
        if not (wanted and name in NO_DYNAMIC_GRADIENT):
            checks.append("test_aot_dispatch_dynamic")
        torch.library.opcheck(operator, (*given, *scalars), test_utils=checks)


@pytest.mark.full
def test_one_graph_serves_all_sizes(always: Any) -> None:
    compiled = 0

    def backend(graph: Any, _: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph

    def both(x: torch.Tensor, w: torch.Tensor) -> Any:
        return always.rmsnorm(always.softmax(x), w)

    call: Any = torch.compile(both, fullgraph=True, backend=backend)
    for rows in (3, 5, 7, 9):
        x = torch.randn(rows, 16)
        compare(call(x, torch.ones(16)), always.rmsnorm(x.softmax(-1), torch.ones(16)))
    assert compiled <= 2, "the second is for any number of rows"


@pytest.mark.full
def test_what_was_not_measured_is_never_a_candidate_and_the_library_says_so(lib: Any) -> None:
    """The wheel was asked for a kernel too that only an emulator ran."""
    (line,) = lib.receipt()["refused"]
    assert line.startswith("rope float32 in cuda for h200")
    assert "its evidence is emulated, expected measured" in line
    x, *others = drawn(OPS["rope"], OPS["rope"].workloads["ci"][0])[0]
    inputs = (x.half(), *others)  # the kernel in C++ is for another dtype
    try:
        for policy in ("evidence", "online", "always"):
            lib._policy(policy)
            said = lib.explain("rope", *inputs)
            assert said["kernel"] is None and said["refused"] == [line]
            assert said["reason"] == "no kernel of enough evidence for this device and dtype"
    finally:
        lib.configure()
    assert {one["language"] for one in lib.TABLE["kernels"]} == {"c++"}


@pytest.mark.full
def test_a_key_says_whether_all_files_are_those_that_were_signed(
    wheel: Path, site: Path, tmp_path: Path
) -> None:
    key, package = wheel.parent.parent / "keys/public.pem", tmp_path / "pk_test_library"
    done = _python(site, "print(lib.NAME)", PORTKERN_LIBRARY_KEY=str(key))
    assert done.stdout == "pk_test_library\n", done.stderr
    shutil.copytree(site / "pk_test_library", package)
    _signature.check(package, key)
    other = signed_by(tmp_path / "others").with_name("public.pem")
    with pytest.raises(_signature.NotSigned, match="was not signed by the owner of"):
        _signature.check(package, other)
    with pytest.raises(_signature.NotSigned, match="cannot be read"):
        _signature.check(package, tmp_path / "none.pem")
    with (package / "_work.py").open("a") as file:
        file.write("\n# changed\n")
    with pytest.raises(_signature.NotSigned, match=r"_work\.py is not the file that was signed"):
        _signature.check(package, key)
    (package / "metadata.sig").write_text("AAAA")
    done = _python(tmp_path, "", PORTKERN_LIBRARY_KEY=str(key))
    assert "ImportError: pk_test_library: metadata.json was not signed" in done.stderr
    about = json.loads((package / "metadata.json").read_text())
    assert about["toolchains"] == [{}] and len(about["records"]) == len(lib_records(package))


def lib_records(package: Path) -> list[Any]:
    found: list[Any] = json.loads((package / "table.json").read_text())["records"]
    return found


def test_a_key_that_cannot_sign_is_told_before_a_wheel_is_written(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(ConfigError, match=r"private key .* cannot be read"):
        signing.metadata({}, {"name": "x", "version": "1", "records": []}, str(tmp_path / "key"))


@pytest.mark.full
def test_a_kernel_that_came_as_a_text_is_compiled_where_it_is_imported(
    site: Path, tmp_path: Path
) -> None:
    [made] = artifacts.built(
        table([of_cpu("relu", measured("relu"))], Evidence.MEASURED, KEYS), lazy=True
    )
    assert made.recipe is not None and made.file.endswith(".cpp")
    package = tmp_path / "site/pk_test_library"
    shutil.copytree(site / "pk_test_library", package)
    about = json.loads((package / "table.json").read_text())
    number = next(n for n, one in enumerate(about["operators"]) if one["name"] == "relu")
    (own,) = (one for one in about["kernels"] if one["op"] == number)
    own |= {"file": made.file, "sha256": made.sha256, "build": asdict(made.recipe)}
    (package / made.file).write_bytes(made.data)
    other = next(one for one in about["kernels"] if one["op"] != number)
    ends = b"__attribute__((constructor)) static void at_once() { __builtin_trap(); }\n"
    (package / "kernels/ends.cpp").write_bytes(ends)
    digest = hashlib.sha256(ends).hexdigest()
    other |= own | {"op": other["op"], "file": "kernels/ends.cpp", "sha256": digest}
    other["cpu_flags"] = ["avx1024"]  # code that this CPU does not have is not opened
    (package / "table.json").write_text(json.dumps(about))
    text = "import torch; lib._policy('always'); x = torch.randn(1000); y = lib.relu(x)\n"
    text += "print(torch.equal(y, x.relu()), lib.explain('relu', x)['reason'], *lib.refused[2:])"
    kept = str(tmp_path / "kept")
    done = _python(tmp_path / "site", text, TORCH_EXTENSIONS_DIR=kept, CXX="")
    assert done.stdout == "True portkern's kernel\n", done.stderr
    lacking = _python(tmp_path / "site", text, TORCH_EXTENSIONS_DIR=str(tmp_path / "no"), PATH="")
    assert "True no kernel of enough" in lacking.stdout and "install g++" in lacking.stdout


@pytest.mark.full
def test_launches_of_a_triton_kernel_are_written_down_for_each_cell(
    lib: Any, tmp_path: Path
) -> None:
    works = [OPS["rmsnorm"].workloads["ci"][0], Workload("wide", {"rows": 2, "cols": 65537})]
    refs = [WorkloadRef(set="ci", name=w.name, dims=dict(w.dims), dtype="float32") for w in works]
    records = [record(shipped("rmsnorm", "triton"), workload=one, key=one.name) for one in refs]
    found = table([kernel(shipped("rmsnorm", "triton"), *records)], Evidence.MEASURED, KEYS)
    [made] = artifacts.built(found)
    assert found.refused == []
    one, wide = json.loads(made.data)["cells"]
    assert one["key"] == [32, 129] and len(one["steps"]) == 1 and one["temporaries"] == []
    assert ["scalar", 0, 0] in one["steps"][0]["arguments"], "eps is the call's own"
    assert len(wide["steps"]) == 2 and len(wide["temporaries"]) == 1
    assert ["temporary", 0, 0] in wide["steps"][0]["arguments"]
    assert {fat_binary.of_cubin(data) for data in made.binaries.values()} == {"sm_90"}
    contents = {Path(name).stem: data for name, data in made.binaries.items()}
    (tmp_path / "plan.json").write_bytes(made.data)
    assert _plans.open_plan(lib._c, tmp_path / "plan.json", contents)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"grid": [1, 1]}, "not enough values"),
        ({"grid": [1, 1, 65536]}, "expected a whole number up to 65535"),
        ({"threads": 0}, "has no threads"),
        ({"threads": True}, "expected a whole number"),
        ({"binary": "../../x"}, "names no binary"),
        ({"arguments": [["given", 3, 0]]}, "which the call has not"),
        ({"arguments": [["given", 0, -4]]}, "expected a whole number"),
        ({"arguments": [["value", "00" * 9, 0]]}, "expected 1 to 8"),
        ({"arguments": [["file", 0, 0]]}, "which the call has not"),
        ({"arguments": [["value", "01000000", "x"]]}, "expected a whole number up to 0"),
        ({"arguments": [["value", 1, 0]]}, "TypeError"),
        ({"zero": ["value", "ffffffffffffff7f", 0], "bytes": 8}, "which the call has not"),
        ({"zero": ["scalar", 0, 0], "bytes": 8}, "which the call has not"),
        ({"zero": ["temporary", 0, 60], "bytes": 8}, "68 bytes of a temporary of 64"),
        ({"zero": ["given", 0, "x"], "bytes": 8}, "expected a whole number"),
        ({"fixed": [[1, 0.5]]}, "which the call has not"),
        ({"fixed": [[0, "0.5"]]}, "which the call has not"),
    ],
)
def test_a_plan_is_read_as_a_strangers(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    step = {"binary": "0" * 64, "name": "f", "grid": [1, 1, 1], "threads": 32, "shared": 0}
    step |= {"arguments": [["given", 2, 0], ["value", "01000000", 0]]}
    (tmp_path / "binaries").mkdir()
    (tmp_path / "binaries" / ("0" * 64)).write_bytes(b"")

    def read(step: dict[str, Any]) -> object:
        fixed = step.pop("fixed", [[0, 0.5]])
        plan = {"temporaries": [64], "steps": [step], "fixed": fixed}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        return launch_plan.read(tmp_path, 3, 1)

    read({**step})
    read({"zero": ["temporary", 0, 60], "bytes": 4})
    with pytest.raises(launch_plan.BadPlan, match=reason):
        read(step | change)


def test_temporaries_of_a_plan_are_bounded_together(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"temporaries": [1 << 35] * 3, "steps": [{}]}))
    with pytest.raises(launch_plan.BadPlan, match="expected a whole number up to 68719476736"):
        launch_plan.read(tmp_path, 3, 0)


@pytest.mark.full
@pytest.mark.parametrize(
    "step",
    [
        {"zero": ["value", "ffffffffffffff7f", 0], "bytes": 8},
        {"zero": ["temporary", 1, 0], "bytes": 8},
        {"zero": ["given", 0, -8], "bytes": 8},
        {"zero": ["given", 0, "x"], "bytes": 8},
        {"zero": ["file", 0, 0], "bytes": 8},
        {"bytes": 8},
    ],
)
def test_a_plan_that_names_what_is_not_there_is_not_taken(
    step: dict[str, Any], lib: Any, tmp_path: Path
) -> None:
    def opened(step: dict[str, Any]) -> Any:
        cell = {"key": [1], "temporaries": [8], "steps": [step], "fixed": []}
        (tmp_path / "plan.json").write_text(json.dumps({"cells": [cell]}))
        return _plans.open_plan(lib._c, tmp_path / "plan.json", {})

    assert opened({"zero": ["temporary", 0, 0], "bytes": 8})
    with pytest.raises(ValueError, match="is not"):
        opened(step)


@pytest.mark.full
def test_launches_of_one_value_of_a_scalar_are_not_those_of_another(
    always: Any, tmp_path: Path
) -> None:
    """They stand in a slot that no kernel in C++ has: of float64 on this CPU."""
    step = {"binary": "0" * 64, "name": "f", "grid": [1, 1, 1], "threads": 32, "shared": 0}
    steps = [step | {"arguments": [["given", 0, 0]]}]
    cell = {"key": [3, 77], "temporaries": [], "steps": steps, "fixed": [[0, 0.5]]}
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [cell]}))
    plan = _plans.open_plan(always._c, tmp_path / "plan.json", {"0" * 64: b"no GPU's"})
    number = [one["name"] for one in always.TABLE["operators"]].index("rmsnorm")
    always._c.pk_kernel(number, 0, always.DTYPES.index("float64"), None, plan, 1)
    always._policy("always")
    x, weight = torch.randn(3, 77).double(), torch.randn(77).double()
    said = always.explain("rmsnorm", x, weight, 0.25)
    assert said["reason"] == "the kernel's launches are of another value of a scalar"
    compare(always.rmsnorm(x, weight, 0.25), OPS["rmsnorm"].reference(x, weight, eps=0.25))
    always._policy("online")
    for _ in range(2):  # nor are they in a race, and nothing is decided
        said = always.explain("rmsnorm", x, weight, 0.25)
        assert said["reason"] == "the kernel's launches are of another value of a scalar"
    compare(always.rmsnorm(x, weight, 0.25), OPS["rmsnorm"].reference(x, weight, eps=0.25))
    assert not always.receipt()["operators"]["rmsnorm"]["shapes"]


@pytest.mark.full
def test_attention_of_rows_that_do_not_fit_is_refused_before_pytorch_is_asked(lib: Any) -> None:
    q, short = torch.ones(1, 1, 4, 16), torch.ones(1, 1, 4, 15)
    with pytest.raises(RuntimeError, match="q has 16 elements a row and k 15"):
        lib.attention(q, short, q)
    with pytest.raises(RuntimeError, match="k has 4 rows and v 3"):
        lib.attention(q, q, q[:, :, 1:])
    assert lib.attention(q, q, short).shape == short.shape  # as PyTorch has it


@pytest.mark.parametrize(
    ("done", "lines", "fatal"),
    [
        (-11, [["a part of", "odd"]], "odd"),
        (-11, [], ""),
        (-11, [["a part of", "another"], ["a part of", "odd"]], "odd"),
        (1, [["a part of", "odd"]], ""),
        ("the time is up", [["a part of", "odd"]], ""),
        (-6, [["a part of", "odd"], ["hostile", "relu", "float16", "right", 1.0]], ""),
    ],
)
def test_pytorch_is_blamed_for_a_signal_where_it_is_alone(
    done: object, lines: list[Any], fatal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_checks, "_asked", lambda *_: (lines, done))
    place = ["hostile", "relu", "float16"]
    assert library_checks._fatal("library", "cuda", place, "odd", 0.0) == fatal


def test_pytorch_alone_is_asked_all_that_was_asked_before_but_what_is_fatal() -> None:
    lib = types.SimpleNamespace(NAME="aten")
    begun: list[str] = []
    case = library_checks.Case(lib, "relu", "cpu")
    case.begins = begun.append
    case.call = pytest.fail  # the library's own operator is not
    small = case.small.name
    case.fatal = [f"{small}, strided, inputs [0]"]
    case.alone = f"{small}, a view that negates, inputs [0]"
    library_checks.hostile(case)
    kinds = ("as it is", library_checks.ODD, "a view that negates")
    assert list(dict.fromkeys(begun)) == [f"{small}, {kind}, inputs [0]" for kind in kinds]


@pytest.mark.full
def test_code_objects_of_amd_go_along_with_their_evidence_and_are_not_called(
    tmp_path: Path,
) -> None:
    candidate, export = shipped("relu", "triton"), Export(tmp_path)
    executed = record(candidate, target="gfx942", evidence=Evidence.EXECUTED, **UNTIMED)
    own = [kernel(candidate, executed)]
    first, second = objects.carried(own, ["gfx942", "gfx1100"], export)
    assert (first.target, str(first.evidence)) == ("gfx942", "executed")
    assert (second.target, str(second.evidence)) == ("gfx1100", "built")
    assert first.file.startswith("objects/gfx942/relu_float32_") and first.data != second.data
    assert first.document()["launches"]["steps"], "how it is called, which the executor tried"
    with pytest.raises(ConfigError, match="no kernel has code for it: none is in HIP or Triton"):
        objects.carried([of_cpu("relu")], ["gfx942"], export)
    with pytest.raises(ConfigError, match="expected a GPU of AMD"):
        objects.carried(own, ["h200"], export)


@pytest.fixture(scope="module")
def amd_plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launch_plan.LaunchPlan]:
    """The launches of a shipped kernel at one size."""
    op, work = OPS["rmsnorm"], OPS["rmsnorm"].workloads["ci"][0]
    made = Build(
        shipped("rmsnorm", "triton"),
        op.signature,
        "float32",
        targets.load("gfx942"),
        work.dims,
        op.signature.scalar_values(work.scalars),
        runnable=False,
        ahead=True,
    )
    cache = ArtifactCache(tmp_path_factory.mktemp("builds"))
    [artifact] = artifacts.artifacts_of([BuildRequest(registry.load("triton"), made)], cache)
    yield launch_plan.read(artifact.path.parent, 3, 1)
    session.close_servers()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "^$"),
        ({"grid": [1, 1, 1]}, "."),
        ({"arguments": [["given", 0, 0]] * 3}, "."),
        ({"threads": 2048}, "threads"),
        ({"fixed": [[0, 0.25]]}, r"the plan is of \[\[0, 0.25\]\], got the scalars"),
        ({"arguments": [["given", 0, 0]] * 40}, "arguments, the plan has 40"),
    ],
    ids=["as it is", "grid", "arguments", "threads", "scalar", "more arguments"],
)
def test_launches_that_are_wrong_on_a_model_of_the_target_go_into_no_library(
    change: dict[str, Any], said: str, amd_plan: launch_plan.LaunchPlan
) -> None:
    document = copy.deepcopy(amd_plan.document)
    [step] = document["steps"]
    if len(change.get("arguments", ())) == 3:  # what is written is where the input is
        change = {"arguments": [*change["arguments"], *step["arguments"][3:]]}
    (document if "fixed" in change else step).update(change)
    op, work = OPS["rmsnorm"], OPS["rmsnorm"].workloads["ci"][0]
    changed = replace(amd_plan, document=document)
    with refuse_foreign():  # as in a verb, whose own process executes no object
        assert re.search(said, launches.wrong(changed, op, work, "float32"))


@pytest.mark.parametrize("cut", [64, 1000])
def test_an_object_that_is_cut_off_ends_the_launches_and_nothing_else(
    cut: int, amd_plan: launch_plan.LaunchPlan
) -> None:
    op, work = OPS["rmsnorm"], OPS["rmsnorm"].workloads["ci"][0]
    broken = {digest: data[:cut] for digest, data in amd_plan.binaries.items()}
    assert launches.wrong(replace(amd_plan, binaries=broken), op, work, "float32")


def test_a_verbs_own_process_executes_no_object(
    amd_plan: launch_plan.LaunchPlan, tmp_path: Path
) -> None:
    path = tmp_path / "a.hsaco"
    path.write_bytes(*amd_plan.binaries.values())
    with refuse_foreign(), pytest.raises(BuildError, match="outside of the jail"):
        executor.ObjectProgram(path)
    assert executor.ObjectProgram(path).object.processor == "gfx942"


@pytest.mark.full
def test_a_decision_follows_the_evidence_and_says_so(lib: Any) -> None:
    lib.configure()
    exact = lib.explain("softmax", torch.randn(64, 1024))
    assert exact["reason"] == "portkern's kernel" and exact["distance"] == 0
    assert exact["kernel"]["source_hash"] == shipped("softmax", "cpu", "c++").digest
    near = lib.explain("softmax", torch.randn(8, 8, 1500))
    assert near["kernel"] and 0 < near["distance"] < 1
    reasons = {
        (64, 8192): "no measured cell is near enough",
        (16, 16): "the framework is as fast here",
        (20, 20): "no measured cell is near enough",
    }
    for sizes, reason in reasons.items():
        said = lib.explain("softmax", torch.randn(sizes))
        assert (said["kernel"], said["reason"]) == (None, reason)
    lib.softmax(torch.randn(20, 20))
    receipt = lib.receipt()["operators"]["softmax"]
    assert receipt["fallbacks"]["no measured cell is near enough"] == 1
    lib.configure(min_speedup=2.6)
    assert lib.explain("softmax", torch.randn(64, 1024))["kernel"] is None
    lib.configure(tune="off")
    assert lib.explain("softmax", torch.randn(64, 1024))["reason"] == "switched off"
    with pytest.raises(ValueError, match="expected 'never', 'online' or 'off'"):
        lib.configure(tune="offline")
    with pytest.raises(ValueError, match="expected one of add, "):
        lib.explain("softmin", torch.randn(2))
    lib.configure()


@pytest.mark.full
def test_a_race_decides_what_nobody_measured_and_is_remembered(
    lib: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lib.configure(tune="online")
    x = torch.randn(33, 777)
    compare(lib.softmax(x), x.softmax(-1))
    first = lib.explain("softmax", x)["reason"]
    assert "won a race here" in first  # either of the two: the machine may be busy
    ours = lib.explain("softmax", x)["kernel"]
    assert (ours is not None) == first.startswith("portkern's")
    lib._remember()
    lib.configure(tune="online")
    shapes = lib.receipt()["operators"]["softmax"]["shapes"]
    assert [one["sizes"] for one in shapes] == [{"rows": 33, "cols": 777}]
    assert lib.explain("softmax", x)["reason"] == first
    number = [one["name"] for one in lib.TABLE["operators"]].index("softmax")
    won = lib.REASONS.index("portkern's kernel, which won a race here")
    lib._c.pk_know(number, 0, 0, (ctypes.c_int64 * 2)(33, 777), 2, 0, won)
    lib._remember()
    for code, known in ((lib._kernels[number, 0, 0][0]["code"], 1), ("of another compiler", 0)):
        monkeypatch.setitem(lib._kernels[number, 0, 0][0], "code", code)
        lib.configure(tune="online")
        assert len(lib.receipt()["operators"]["softmax"]["shapes"]) == known
    lib.configure()


@pytest.mark.full
def test_a_race_that_ends_with_an_error_leaves_the_formula(site: Path, tmp_path: Path) -> None:
    """The formula fits into the memory, the one in double does not."""
    done = _python(
        site,
        "import resource, torch; x = torch.zeros(4096, 16384); torch.ones(8).softmax(-1);"
        "lib.configure(tune='online'); lib.softmax(torch.zeros(4, 4));"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (now + (600 << 20), -1));"
        "print([lib.softmax(x)[0, 0].item() * 16384 for _ in range(2)]);"
        "print(lib.explain('softmax', x)['reason']); lib.configure(); print(len(lib.receipt()))",
        XDG_CACHE_HOME=str(tmp_path),
    )
    lines = done.stdout.splitlines()
    assert lines[:1] == ["[1.0, 1.0]"], done.stderr
    assert lines[1].startswith("a race ended with an error, or")
    assert len(lines) == 3


@pytest.mark.full
def test_threads_may_meet_new_shapes_at_once(always: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(rows: int) -> None:
        x = torch.randn(rows % 7 + 1, 50)
        compare(always.softmax(x), x.softmax(-1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(400)))


IMPORT = "import sys; sys.path.insert(0, {0!r}); import pk_test_library as lib; "


def _python(site: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMPORT.format(str(site)) + text],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.full
def test_a_changed_kernel_and_another_device_are_refused_at_import(
    site: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(site / "pk_test_library", copy / "pk_test_library")
    package = copy / "pk_test_library"
    about = json.loads((package / "table.json").read_text())
    about["kernels"][0]["device"] = "Another CPU, 4 CPUs"
    about["kernels"][1]["cpu_flags"] = ["avx1024"]
    (package / "table.json").write_text(json.dumps(about))
    with (package / about["kernels"][2]["file"]).open("ab") as file:
        file.write(b"\0")
    done = _python(copy, "print(*lib.refused[1:], sep='\\n')")
    lines = done.stdout.splitlines()
    assert "measured on Another CPU, 4 CPUs, which is not here" in lines[0]
    assert "this CPU has no avx1024" in lines[1]
    assert "is not the file that was exported" in lines[2]


@pytest.mark.full
def test_a_library_of_another_device_says_so_and_leaves_all_to_the_formula(
    site: Path, tmp_path: Path
) -> None:
    package = tmp_path / "site/pk_test_library"
    shutil.copytree(site / "pk_test_library", package)
    about = json.loads((package / "table.json").read_text())
    about["kernels"] = [one | {"device": "Another CPU, 4 CPUs"} for one in about["kernels"]]
    (package / "table.json").write_text(json.dumps(about))
    text = "import torch; x = torch.ones(64, 1024); print(lib.softmax(x).sum().item());"
    done = _python(package.parent, text + "print(lib.explain('softmax', x)['reason'])")
    assert done.stdout.splitlines() == [
        "64.0",
        "no kernel of enough evidence for this device and dtype",
    ]
    assert "no kernel that runs here" in done.stderr and "Another CPU, 4 CPUs" in done.stderr


@pytest.mark.full
def test_a_cache_that_cannot_be_written_to_disturbs_neither_races_nor_the_end(site: Path) -> None:
    text = (
        "import torch; lib.configure(tune='online'); x = torch.ones(4, 64); lib.softmax(x);"
        "print('race' in lib.explain('softmax', x)['reason'])"
    )
    done = _python(site, text, XDG_CACHE_HOME="/proc/nowhere")
    assert (done.stdout.split(), done.stderr, done.returncode) == (["True"], "", 0)


def test_a_folder_where_nothing_can_be_compiled_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "one.cpp").write_text("int one() { return 1; }")
    with pytest.raises(_build.CannotBuild, match="TORCH_EXTENSIONS_DIR names another folder"):
        _build.kernel(tmp_path / "one.cpp", "g++", ["-shared", "-fPIC"], Path("/proc/nowhere"))


@pytest.mark.full
def test_inputs_of_several_dtypes_are_the_formulas_which_the_reason_says(always: Any) -> None:
    x, y = torch.randn(4, 64), torch.randn(4, 64).half()
    said = always.explain("add", x, y)
    assert said["kernel"] is None
    assert said["reason"] == "no kernel takes this dtype, or inputs of several"
    compare(always.add(x, y), x + y)
    assert always.receipt()["operators"]["add"]["fallbacks"][said["reason"]] >= 1


@pytest.mark.full
def test_races_of_another_driver_are_not_remembered(
    lib: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lib._memory()
    assert lib._memory() == before
    monkeypatch.setattr(lib, "_driver", lambda: "NVIDIA 999.0")
    assert lib._memory() != before
    assert lib.receipt()["driver"]["here"] == "NVIDIA 999.0"


@pytest.mark.full
def test_a_library_without_operators_for_this_torch_says_what_to_do(
    site: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(site / "pk_test_library", copy / "pk_test_library")
    [file] = copy.glob("pk_test_library/operators-*.so")
    file.write_bytes(b"other")
    assert "install pk_test_library again" in _python(copy, "").stderr
    place = copy / "pk_test_library/table.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"compiled": {}}))
    done = _python(copy, "", CXX="/nowhere/g++", TORCH_EXTENSIONS_DIR=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "cannot be compiled here" in done.stderr


@pytest.mark.full
def test_two_libraries_of_one_name_do_not_meet_and_a_copy_shares_all(
    site: Path, tmp_path: Path
) -> None:
    again = "del sys.modules['pk_test_library']; import pk_test_library"
    assert "is another library's in this process; export one" in _python(site, again).stderr
    shutil.copytree(site / "pk_test_library", tmp_path / "pk_copy")
    text = (
        f"import torch; sys.path.insert(0, {str(tmp_path)!r}); import pk_copy;"
        "x = torch.ones(64, 1024); pk_copy.softmax(x);"
        "[one] = lib.receipt()['operators']['softmax']['shapes'];"
        "print(one['calls'], pk_copy.receipt() == lib.receipt())"
    )
    assert _python(site, text).stdout.split() == ["1", "True"]


@pytest.mark.full
def test_a_library_needs_nothing_of_portkern(site: Path) -> None:
    text = (
        "import torch; norm = torch.nn.LayerNorm(64); x = torch.randn(4, 64);"
        "report = lib.apply(norm, x, every=True); print(len(report.replaced));"
        "print(torch.allclose(lib.softmax(x), x.softmax(-1)), lib.undo(norm))"
    )
    alone = "import sys; sys.modules['portkern'] = sys.modules['backends'] = None; "
    done = subprocess.run(
        [sys.executable, "-c", alone + IMPORT.format(str(site)) + text],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["1", "True", "1"], done.stderr


@pytest.mark.full
def test_a_process_has_one_openmp_and_may_fork(site: Path) -> None:
    text = (
        "import os, signal, torch, re; lib._policy('always'); "
        "x = torch.randn(640, 1024); lib.softmax(x); "
        "maps = open('/proc/self/maps').read(); "
        "print(len({*re.findall(r'\\S*lib[gi]omp\\S*', maps)})); "
        "pid = os.fork(); "
        "pid or signal.alarm(60); "
        "right = torch.allclose(lib.softmax(x), torch.softmax(x, -1), atol=1e-6); "
        "pid or os._exit(not right); print(os.waitpid(pid, 0)[1])"
    )
    done = _python(site, text)
    assert done.stdout.split() == ["1", "0"], done.stderr


@pytest.mark.full
def test_the_command_writes_a_wheel_of_a_run_or_a_file_of_records(
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It stands beside another library in one process."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "one"
    gone = record(shipped("gelu", "hip"))
    RecordFile(folder / "records.jsonl").append([measured("relu"), gone])
    assert main.run(["export", "library", "one", "name=Fast"]) == 2
    assert "expected small letters" in capsys.readouterr().err
    assert main.run(["export", "library", "one", "evidence=emulated"]) == 2
    assert main.run(["export", "library", "one", "name=fast_ops"]) == 1
    [made] = (folder / "library").glob("fast_ops-*.whl")
    names = zipfile.ZipFile(made).namelist()
    assert {"fast_ops/__init__.py", "fast_ops/table.json", "fast_ops/library.h"} <= {*names}
    assert [name for name in names if name.startswith("fast_ops/kernels/relu_float32_")]
    assert "operators call C++ on CPUs" in capsys.readouterr().err
    zipfile.ZipFile(made).extractall(tmp_path / "other")
    x = "torch.linspace(-1, 1, 1000)"
    text = (
        f"import torch; sys.path.insert(0, {str(tmp_path / 'other')!r}); import fast_ops;"
        f"print(torch.equal(fast_ops.relu({x}), lib.relu({x})), fast_ops.takes('relu', {x}))"
    )
    done = _python(site, text)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_an_operator_of_a_file_has_no_formula_to_fall_back_to(tmp_path: Path) -> None:
    from dataclasses import replace

    from portkern.formats.exported import ExportedOp

    op = replace(ops.load("softmax"), file="mine.py")
    mine = KernelRecords(
        ExportedOp(op), shipped("softmax", "cpu", "c++"), "float32", [measured("softmax")]
    )
    export = Export(tmp_path)
    assert library.write([mine], export, LibraryOptions("mine")) is None
    assert "no formula" in export.skipped[0].reason


# ---- Engines that choose between implementations themselves


@pytest.mark.full
def test_liger_calls_a_kernel_where_one_is_known_to_win(lib: Any) -> None:
    functional = pytest.importorskip("liger_kernel.functional")
    backends = importlib.import_module("liger_kernel.backends")
    liger = importlib.import_module("pk_test_library.liger")
    lib.configure()
    assert liger.register() == ["rms_norm", "layer_norm", "softmax", "swiglu"]
    assert backends.available_impls("softmax")[0] == "portkern-pk_test_library"
    x, weight = torch.randn(64, 1024, requires_grad=True), torch.rand(1024)
    before = _calls(lib, "softmax")
    compare(functional.softmax(x), x.softmax(-1))
    assert _calls(lib, "softmax") == before + 1
    compare(functional.rms_norm(x, weight), lib.rmsnorm(x, weight))
    compare(functional.layer_norm(x, weight, weight), lib.layernorm(x, weight, weight, 1e-6))
    compare(functional.swiglu(x, x), torch.nn.functional.silu(x) * x)
    for name, given, named in (
        ("rms_norm", (x, weight), {"offset": 1.0}),
        ("rms_norm", (x, weight), {"casting_mode": "none"}),
        ("swiglu", (x, x, 2.0), {}),
    ):
        with pytest.raises(NotImplementedError, match="Liger has no other implementation"):
            getattr(functional, name)(*given, **named)


class IrOp:
    """The object that vLLM hands to providers, as the file that ``vllm.py`` names has it."""

    def __init__(self, native: Callable[..., Any]) -> None:
        self.native = native
        self.providers: dict[str, tuple[Callable[..., bool], Callable[..., Any]]] = {}
        self.schema = torch.library.infer_schema(native, mutates_args=[])
        self.count = len(inspect.signature(native).parameters)

    def register_impl(self, provider: str, *, supports_args: Callable[..., bool]) -> Any:
        asked = inspect.signature(supports_args).parameters.values()
        assert len(asked) == self.count and provider not in ("native", "unfused")
        assert not [one for one in asked if one.kind == one.KEYWORD_ONLY]

        def register(function: Callable[..., Any]) -> None:
            assert torch.library.infer_schema(function, mutates_args=[]) == self.schema
            self.providers[provider] = (supports_args, function)

        return register


def native_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> torch.Tensor:
    assert variance_size is None
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)


def native_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


@pytest.mark.full
def test_vllm_has_the_library_as_a_provider(lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ops_of_ir = types.SimpleNamespace(rms_norm=IrOp(native_rms_norm), gelu=IrOp(native_gelu))
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.ir", types.SimpleNamespace(ops=ops_of_ir))
    vllm = importlib.import_module("pk_test_library.vllm")
    assert vllm.register() == ["rms_norm", "gelu"]
    supports, run = ops_of_ir.rms_norm.providers["portkern_pk_test_library"]
    x, weight = torch.randn(3, 64), torch.rand(64)
    assert supports(x, weight, 1e-6, None)
    compare(run(x, weight, 1e-6, None), native_rms_norm(x, weight, 1e-6))
    for refused in (
        (x, None, 1e-6, None),
        (x, weight, 1e-6, 32),
        (x.half(), weight, 1e-6, None),
        (x.half(), weight.half(), 1e-6, None),
        (x.to("meta"), weight.to("meta"), 1e-6, None),
    ):
        assert not supports(*refused)
    supports, run = ops_of_ir.gelu.providers["portkern_pk_test_library"]
    assert supports(x, "none") and not supports(x, "tanh")
    compare(run(x, "none"), native_gelu(x))


class Provenance(enum.Enum):
    JIT = "jit"
    AOT = "aot"


class DeviceType(enum.Enum):
    CUDA = "cuda"
    CPU = "cpu"


class Requirement(NamedTuple):
    device: Any
    min_cuda_arch: tuple[int, int] | None = None
    max_cuda_arch: tuple[int, int] | None = None


class Signature(NamedTuple):
    supported_dtypes: tuple[str, ...] = ()
    in_place: bool = False
    description: str = ""


class Spec(NamedTuple):
    """A kernel as SGLang's registry keeps it, by the file that ``sglang.py`` names."""

    op: str
    backend: Any
    target: str
    capabilities: frozenset[Requirement] = frozenset()
    format_signature: Signature = Signature()
    description: str = ""

    def load(self) -> Any:
        module, _, path = self.target.partition(":")
        return getattr(importlib.import_module(module), path)


class SpecRegistry:
    def __init__(self) -> None:
        self.specs: list[Spec] = []

    def get(self, op: str) -> list[Spec]:
        return [one for one in self.specs if one.op == op]

    def register_kernel(self, spec: Spec) -> Spec:
        place = (spec.op, spec.backend)
        self.specs = [one for one in self.specs if (one.op, one.backend) != place] + [spec]
        return spec


@pytest.mark.full
def test_sglang_has_the_library_as_one_of_its_backends(
    lib: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = SpecRegistry()
    of_spec = types.SimpleNamespace(
        KernelBackend=Provenance,
        DeviceType=DeviceType,
        CapabilityRequirement=Requirement,
        FormatSignature=Signature,
        KernelSpec=Spec,
    )
    of_registry = types.SimpleNamespace(registry=registry, register_kernel=registry.register_kernel)
    for name in ("sglang", "sglang.kernels"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.kernels.spec", of_spec)
    monkeypatch.setitem(sys.modules, "sglang.kernels.registry", of_registry)
    sglang = importlib.import_module("pk_test_library.sglang")
    theirs = Spec("layernorm.rmsnorm", Provenance.AOT, "sgl_kernel:rmsnorm")
    registry.register_kernel(theirs)
    assert sglang.register("jit") == ["layernorm.rmsnorm"]
    [kept, ours] = registry.get("layernorm.rmsnorm")
    assert kept == theirs
    assert ours.capabilities == {Requirement(DeviceType.CPU)}
    assert ours.format_signature.supported_dtypes == ("float32",)
    x, weight, out = torch.randn(3, 64), torch.rand(64), torch.empty(3, 64)
    expected = native_rms_norm(x, weight, 1e-6)
    compare(ours.load()(x, weight), expected)
    assert ours.load()(x, weight, 1e-6, out, True) is out
    compare(out, expected)
    with pytest.raises(ValueError, match="SGLang has sgl_kernel:rmsnorm as its"):
        sglang.register("aot")
    with pytest.raises(ValueError, match="expected one of jit, aot"):
        sglang.register("portkern")
    sglang.register("aot", replace=True)
    assert theirs not in registry.specs


@pytest.mark.full
def test_kernels_loads_the_library_as_a_repository(wheel: Path, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    done = _python(site, f"import pk_test_library.hub as hub; print(hub.write({str(folder)!r}))")
    variant = Path(done.stdout.strip())
    assert variant == folder / "build/torch-cpu", done.stderr
    about = json.loads((variant / "metadata.json").read_text())
    assert about["id"].startswith("pk_test_library_") and about["backend"] == {"type": "cpu"}
    digest = base64.b64encode(hashlib.sha256((variant / "layers.py").read_bytes()).digest())
    assert about["digest"]["files"]["layers.py"] == digest.decode()
    text = f"""
import importlib.util, sys, torch
try:
    from kernels import get_local_kernel
    from pathlib import Path
    lib = get_local_kernel(Path({str(folder)!r}))
except ModuleNotFoundError:
    spec = importlib.util.spec_from_file_location("repo", {str(variant / "__init__.py")!r})
    lib = sys.modules["repo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lib)
class Own:
    weight, variance_epsilon = torch.rand(64), 1e-6
x = torch.randn(5, 64)
made = lib.layers.RMSNorm.forward(Own, x)
torch.testing.assert_close(made, torch.nn.functional.rms_norm(x, (64,), Own.weight, 1e-6))
print(sorted(n for n in dir(lib.layers) if n[0].isupper()))
"""
    signed = os.environ | {"PORTKERN_LIBRARY_KEY": str(wheel.parent.parent / "keys/public.pem")}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, env=signed
    )
    assert done.stdout.strip() == "['GELU', 'LayerNorm', 'RMSNorm', 'ReLU']", done.stderr
