"""Every cheat is caught for its own reason, and no honest kernel is accused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from portkern.records.record import Verdict
from portkern.sandbox import session

from .corpus import suite
from .corpus.not_yet import NOT_YET

#: A daemon of a cheat calls itself so.
SURVIVOR = "portkern-survivor"
#: Times alone speak against these, so that they are asked again for half a minute, or a worker is
#: let run into its limits. Others whom times accuse are quick: spinning_threads, slow_clock.
LONG = ("patched_timer.cpp", "works_while_staged.cpp", "fork_bomb.py", "slow_first_calls.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Builds of this run. The fork server starts anew, under an environment with a secret."""
    session.close_servers()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_API_KEY", "sk-nobody-may-read-this")
        yield tmp_path_factory.mktemp("corpus")
    session.close_servers()


def _cheats() -> Iterator[object]:
    for case in suite.cases("cheats"):
        marks = [pytest.mark.full] if case.name in LONG else []
        if why := NOT_YET.get(case.name):
            marks.append(pytest.mark.xfail(reason=why, raises=AssertionError, strict=True))
        yield pytest.param(case, id=case.name, marks=marks)


@pytest.mark.sampled("case", by="caught_by", quick=2)
@pytest.mark.parametrize("case", list(_cheats()))
def test_a_cheat_is_caught_for_its_own_reason(case: suite.Case, folder: Path) -> None:
    ending = suite.evaluate(case, folder)
    assert ending.verdict is not Verdict.PASSED or case.defeated, case.mechanism
    if not ending.meets(case):  # a failure, where the case is expected to pass as well
        pytest.fail(f"caught for another reason: {ending.verdict}: {ending.detail}")


@pytest.mark.sampled("case", by="op")
@pytest.mark.parametrize("case", suite.cases("honest"), ids=lambda case: case.name)
def test_an_honest_kernel_passes(case: suite.Case, folder: Path) -> None:
    ending = suite.evaluate(case, folder)
    assert ending.verdict is Verdict.PASSED, f"{case.mechanism}: {ending.detail}"


def test_nothing_that_a_cheat_started_outlives_it(folder: Path) -> None:
    [survivor] = [case for case in suite.cases("cheats") if case.name == "survivor.py"]
    suite.evaluate(survivor, folder)
    time.sleep(0.2)
    running = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [argv for argv in running if SURVIVOR in argv]


def test_the_heaps_are_large_and_no_known_gap_is_a_typo() -> None:
    names = {case.name for case in suite.cases("cheats")}
    assert len(names) >= 60
    assert len(suite.cases("honest")) >= 25
    assert NOT_YET.keys() <= names


def test_no_cheat_may_be_expected_to_pass() -> None:
    assert not [case.name for case in suite.cases("cheats") if Verdict.PASSED in case.expect]
