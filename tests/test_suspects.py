"""Faults that others suspect of AMD's compilers are judged as the page says."""

from __future__ import annotations

import numpy as np
import pytest

from portkern.isa import runtime_library
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from tests import suspects

CASES = list(suspects.judgeable())


@pytest.mark.drawn
@pytest.mark.parametrize(("suspect", "arch"), CASES, ids=[f"{s.name}-{a}" for s, a in CASES])
def test_the_object_computes_what_the_page_says(
    suspect: suspects.Suspect, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hip", "triton"):
        answer = registry.load(name).probe(target.load(arch))
        if isinstance(answer, Missing):
            pytest.skip(str(answer))
    if isinstance(found := runtime_library.find(), Missing):
        pytest.skip(str(found))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    assert suspect.judge is not None
    said = suspect.judge(arch)
    assert bool(said) is (suspect.judged == suspects.CONFIRMED), said


def test_numbers_that_are_otherwise_are_seen() -> None:
    right = np.arange(4)
    assert not suspects.far(right, right)
    assert suspects.far(right, right * 2) == "3 of 4 numbers are wrong"
    assert suspects.far(right * 1.001, right, 1e-4) and not suspects.far(right * 1.001, right, 1e-2)


def test_the_page_lists_all_of_them_and_why_some_are_out_of_reach() -> None:
    assert suspects.PAGE.read_text(encoding="utf-8") == suspects.page(suspects.COMPILERS)
    assert len({s.name for s, _ in CASES}) >= 15
    for suspect in suspects.SUSPECTS:
        assert (suspect.judge is None) == (suspect.judged == suspects.OUT) == bool(suspect.why)
