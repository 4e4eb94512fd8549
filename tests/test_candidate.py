"""Candidates are addressed by content; knobs are read from the source and turned in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.errors import ConfigError
from portkern.spec import catalogue, registry
from portkern.spec.candidate import Candidate

C = "#define BLOCK 256  // knob: 128 256 512\n#define UNROLL 4  // knob: 1 2 4\nint f;\n"
PYTHON = "BLOCK = 1024  # knob: 256 1024\nOTHER = 7\n"


def candidate(source: str = C) -> Candidate:
    return Candidate("relu", "cpu", "c++", source, "relu")


def test_identity_is_the_content_and_not_the_author() -> None:
    assert candidate().digest == replace(candidate(), author="someone").digest
    assert candidate().digest != replace(candidate(), entry="main").digest
    assert candidate().digest != candidate(C + " ").digest


@given(st.text(), st.text(), st.text(), st.text())
def test_moving_text_between_fields_changes_the_identity(a: str, b: str, c: str, d: str) -> None:
    one, other = Candidate("o", "b", "l", a, b), Candidate("o", "b", "l", c, d)
    assert (one.digest == other.digest) == ((a, b) == (c, d))


def test_knobs_are_read_in_both_spellings() -> None:
    assert candidate().knobs["BLOCK"].choices == (128, 256, 512)
    knobs = candidate(PYTHON).knobs
    assert set(knobs) == {"BLOCK"}
    assert knobs["BLOCK"].value == 1024


def test_turning_a_knob_rewrites_its_line_only_and_remembers_the_parent() -> None:
    turned = candidate().turn({"BLOCK": 512})
    assert turned.source == C.replace("BLOCK 256", "BLOCK 512")
    assert turned.parents == (candidate().digest,)
    assert turned.turn({"BLOCK": 256}).digest == candidate().digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"BLOK": 1}, "No knob 'BLOK'; did you mean 'BLOCK'"),
        ({"BLOCK": 100}, "BLOCK of 'relu' cannot be 100; offered: 128 256 512"),
    ],
)
def test_a_setting_that_is_not_offered_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        candidate().turn(settings)


@pytest.mark.parametrize("backend", registry.names())
def test_a_catalogue_kernels_default_is_among_its_choices(backend: str) -> None:
    for op in ops.ALL:
        for shipped in catalogue.candidates(op, registry.load(backend)):
            for knob in shipped.knobs.values():
                assert knob.value in knob.choices, (op, shipped.language, knob)
