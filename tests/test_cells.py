"""Which cells a question has, and when a result may be reused."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from portkern.cells import selection
from portkern.cells.selection import Selection, default_target, host_targets
from portkern.errors import BackendUnavailable, ConfigError
from portkern.evaluator import code_digest
from portkern.records.record import Verdict
from portkern.spec import registry, target
from portkern.spec.backend import Missing, Venue
from portkern.spec.op import Workload
from portkern.toolchain import host


def question(**changes: list[str]) -> Selection:
    fields: dict[str, Any] = {
        "ops": ["relu"],
        "targets": ["x86_64"],
        "backends": ["cpu"],
        "workloads": ["ci"],
        "dtypes": ["float32"],
    }
    return Selection(**(fields | changes))


def test_a_cell_for_every_combination_and_language() -> None:
    cells = question(ops=["relu", "softmax"], targets=["x86_64", "sm_90"]).cells()
    assert len(cells) == 2 * 2 * 2 * 2  # ops, targets, languages of cpu, ci workloads
    assert {c.language for c in cells} == {"c++", "numba"}


def test_sets_and_names_mix_and_nothing_comes_twice() -> None:
    cells = question(ops=["softmax", "core"]).cells()
    assert next(c.op.name for c in cells) == "softmax"
    assert len({(c.op.name, c.language, c.workload.name) for c in cells}) == len(cells)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops": ["relo"]}, "No op 'relo'; did you mean 'relu'"),
        ({"targets": ["gfx94"]}, "No target 'gfx94'; did you mean 'gfx942'"),
        ({"backends": ["cudaa"]}, "No backend 'cudaa'; did you mean 'cuda'"),
        ({"workloads": ["typcal"]}, "No workload set 'typcal'; did you mean 'typical'"),
        ({"dtypes": ["float31"]}, "No dtype 'float31'; did you mean 'float32'"),
        ({"ops": []}, "An empty list selects nothing"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_closest(
    changes: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        question(**changes).cells()


def test_what_a_backend_does_not_claim_is_unsupported_with_the_reason() -> None:
    [first, *_] = question(targets=["gfx942"]).cells()
    assert first.ruled_out == (Verdict.UNSUPPORTED, "cpu does not compile for gfx942")


def test_what_a_language_cannot_express_is_unsupported_with_the_reason() -> None:
    cells = question(dtypes=["bfloat16"]).cells()
    reasons = {c.language: c.ruled_out for c in cells}
    assert reasons["c++"] is None
    assert reasons["numba"] is not None
    assert "bfloat16" in reasons["numba"][1]


def test_a_backend_asked_for_by_name_must_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = registry.load("cuda")
    absent = Missing("no CUDA compiler", "pip install 'portkern[cuda]'")
    monkeypatch.setattr(type(cuda), "probe", lambda *_: absent)
    monkeypatch.setattr(
        "portkern.cells.selection._probe", lambda backend, where: backend.probe(where)
    )
    with pytest.raises(BackendUnavailable, match=r"'cuda' cannot work here: .*portkern\[cuda\]"):
        question(backends=["cuda"], targets=["sm_90"]).cells()
    cells = question(backends=["all"], targets=["sm_90"]).cells()
    skipped = [c for c in cells if c.backend.name == "cuda"]
    assert {c.ruled_out for c in skipped} == {(Verdict.UNAVAILABLE, str(absent))}


def test_a_key_follows_what_decides_a_result() -> None:
    [one, *_] = question().cells()
    assert one.candidate is not None
    others = [
        replace(one, dtype="float16"),
        replace(one, workload=Workload("8", {"n": 8})),
        replace(one, workload_set="edge"),
        replace(one, target=target.load("x86_64_avx2")),
        replace(one, candidate=replace(one.candidate, source="other")),
        replace(one, op=replace(one.op, reference_source="def run(x): return x")),
    ]
    assert len({one.key, *(cell.key for cell in others)}) == 7
    assert replace(one).key == one.key


def test_this_machine_is_its_most_specific_targets() -> None:
    for name in host_targets():
        where = target.load(name)
        assert host.runs_here(where) or host.gpu_for(where)


def test_the_default_target_of_the_cpu_backend_is_this_cpu() -> None:
    assert host.runs_here(default_target(registry.load("cpu")))


@pytest.mark.parametrize("name", registry.names())
def test_the_default_target_has_its_hardware_here_or_is_the_usual_one(name: str) -> None:
    backend = registry.load(name)
    claimed = [where for where in map(target.load, target.names()) if backend.supports(where)]
    here = [w for w in claimed if isinstance(backend.venues(w).hardware, Venue)]
    try:
        chosen = default_target(backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    assert chosen in here if here else chosen.name == backend.usual_target


def test_of_an_absent_gpu_the_default_target_is_of_the_languages_own_vendor() -> None:
    assert target.load(registry.load("hip").usual_target).vendor == "amd"
    assert target.load(registry.load("cuda").usual_target).vendor == "nvidia"


def test_a_key_follows_the_code_that_decides_a_verdict(tmp_path: Path) -> None:
    for package in code_digest.DECIDING:
        (tmp_path / package).mkdir()
        (tmp_path / package / "rules.py").write_text("LIMIT = 1\n")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/_special.py").write_text("LARGE = 1\n")
    digests = [code_digest.digest_of(tmp_path)]
    for file in sorted(tmp_path.rglob("*.py")):
        file.write_text(file.read_text().replace("1", "2"))
        digests.append(code_digest.digest_of(tmp_path))
    assert len(set(digests)) == len(code_digest.DECIDING) + 2


@pytest.mark.parametrize(
    "digest", ["evaluator_digest", "backends_digest"], ids=["evaluator", "backends"]
)
def test_a_result_is_not_reused_once_that_code_has_changed(
    digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [cell, *_] = question().cells()
    before = cell.key
    monkeypatch.setattr(selection, digest, lambda: "edited")
    assert replace(cell).key != before


def test_that_code_is_read_in_no_time() -> None:
    code_digest.evaluator_digest.cache_clear()
    start = time.process_time()
    code_digest.evaluator_digest()
    assert time.process_time() - start < 0.1
