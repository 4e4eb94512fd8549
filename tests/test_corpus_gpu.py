"""Kernels that cheat or look odd on a GPU: evaluated on this machine's; without one all are built,
and those whose mechanism shows in an emulator are evaluated there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from portkern.records.record import Verdict
from portkern.sandbox import session
from portkern.spec.backend import Artifact, Missing, Venue

from .corpus import suite
from .corpus.not_yet import NOT_YET_ON_GPU

CHEATS, HONEST = suite.cases("cheats", "gpu"), suite.cases("honest", "gpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    session.close_servers()
    yield tmp_path_factory.mktemp("corpus-gpu")
    session.close_servers()


def _venue(case: suite.Case) -> Venue:
    """Skips with the backend's own reason where nothing runs the case."""
    found = suite.where(case.backend)
    if isinstance(found, Missing):
        pytest.skip(f"{case.backend}: {found}")
    return found[1]


def _needs_gpu(case: suite.Case) -> None:
    if _venue(case).kind != "hardware":
        pytest.skip(f"{case.backend}: {_venue(case)}")


def _cheats() -> list[object]:
    gap = {
        name: [pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)]
        for name, reason in NOT_YET_ON_GPU.items()
    }
    return [pytest.param(case, id=case.name, marks=gap.get(case.name, [])) for case in CHEATS]


@pytest.mark.parametrize("case", _cheats())
def test_a_cheat_is_caught_for_its_own_reason(case: suite.Case, folder: Path) -> None:
    _needs_gpu(case)
    ending = suite.evaluate(case, folder)
    assert ending.verdict is not Verdict.PASSED or case.defeated, case.mechanism
    if not ending.meets(case):
        pytest.fail(f"caught for another reason: {ending.verdict}: {ending.detail}")


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_kernel_passes(case: suite.Case, folder: Path) -> None:
    _needs_gpu(case)
    ending = suite.evaluate(case, folder)
    assert ending.verdict is Verdict.PASSED, f"{case.mechanism}: {ending.detail}"


@pytest.mark.sampled("case", by="backend")
@pytest.mark.parametrize("case", [*CHEATS, *HONEST], ids=lambda case: case.name)
def test_without_a_gpu_it_is_emulated_or_at_least_built(case: suite.Case, folder: Path) -> None:
    if _venue(case).kind == "hardware":
        pytest.skip("evaluated on the GPU")
    if not case.emulator:
        built = suite.build(case, folder)
        assert isinstance(built.outcome, Artifact), str(built.outcome)
        return
    ending = suite.evaluate(case, folder)
    assert ending.meets(case, emulated=True), f"{case.mechanism} → {ending}"


def test_the_heaps_are_large_and_no_known_gap_is_a_typo() -> None:
    assert len(CHEATS) >= 15
    assert len(HONEST) >= 10
    assert {case.name for case in CHEATS} >= NOT_YET_ON_GPU.keys()
    assert {case.backend for case in CHEATS} == {case.backend for case in HONEST}


def test_no_cheat_may_be_expected_to_pass_on_a_gpu() -> None:
    assert not [case.name for case in CHEATS if Verdict.PASSED in case.expect]
