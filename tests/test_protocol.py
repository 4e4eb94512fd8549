"""Messages between evaluator and worker are read as what they were, or not at all."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import worker_reports
from portkern.sandbox import message
from portkern.sandbox.message import FormError, plain, read
from portkern.sandbox.session import _parse
from portkern.sandbox.shared_memory import Rows, TensorPlace
from portkern.spec import target
from portkern.spec.backend import Artifact, Build, Resources, Venue
from portkern.spec.candidate import Candidate
from portkern.worker import protocol
from portkern.worker.protocol import (
    BuiltFiles,
    Changes,
    Done,
    Layout,
    Loaded,
    OutputForm,
    Ran,
    Timed,
)

FEW = settings(deadline=None, derandomize=True, max_examples=40)
TEXT = st.text(max_size=20)
COUNT = st.integers(0, 1 << 40)
TIME = st.floats(0, 1e17)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
SLOTS = st.lists(
    st.builds(TensorPlace, COUNT, st.lists(COUNT, max_size=3).map(tuple), st.just("float32")),
    max_size=3,
).map(tuple)
ROWS = st.lists(
    st.builds(Rows, COUNT, COUNT, st.lists(COUNT, max_size=3).map(tuple), st.just("float32")),
    max_size=3,
).map(tuple)
DIMS = st.dictionaries(TEXT, COUNT, max_size=3)
SCALARS = st.dictionaries(TEXT, st.floats(allow_nan=False) | st.integers(0, 9) | st.booleans())
RESOURCES = st.builds(Resources, TEXT, st.none() | COUNT, st.none() | COUNT)
ARTIFACT = st.builds(
    Artifact, st.just(Path("a.so")), TEXT, st.lists(RESOURCES, max_size=2).map(tuple), TEXT
)
VENUE = st.builds(
    Venue,
    st.sampled_from(["hardware", "object", "emulator"]),
    TEXT,
    environment=st.dictionaries(TEXT, TEXT, max_size=2),
    sanitize=NAMES,
)
BUILD = st.builds(
    Build,
    st.builds(Candidate, TEXT, st.just("cpu"), TEXT, TEXT, TEXT, author=st.just(""), parents=NAMES),
    st.sampled_from([ops.load(name).signature for name in ("softmax", "layernorm")]),
    st.just("float32"),
    st.sampled_from([target.load(name) for name in ("h200", *host_targets()[:1])]),
    DIMS,
    SCALARS,
)
LAUNCH = st.builds(protocol.SeenLaunch, TEXT, COUNT, TIME)
LAUNCHES = st.lists(LAUNCH, max_size=2).map(tuple)
TRACE = st.builds(protocol.Trace, LAUNCHES, LAUNCHES, NAMES, st.booleans(), TEXT)
SHAPE = st.lists(COUNT, max_size=3).map(tuple)
LAYOUT = st.builds(Layout, TEXT, NAMES, TEXT, TEXT, st.none() | COUNT, st.none() | SHAPE)
FINDING = st.builds(
    protocol.CheckerFinding, TEXT, st.sampled_from(["error", "warning", "note"]), TEXT
)
REPLIES: list[st.SearchStrategy[Any]] = [
    st.builds(Done),
    st.builds(BuiltFiles, ARTIFACT, st.lists(st.tuples(TEXT, COUNT), max_size=3).map(tuple), TIME),
    st.builds(Loaded, TEXT),
    st.builds(
        Ran,
        COUNT,
        st.lists(st.builds(OutputForm, SHAPE, TEXT, LAYOUT), max_size=2).map(tuple),
        TIME,
        NAMES,
        st.lists(FINDING, max_size=2).map(tuple),
        st.none() | TRACE,
    ),
    st.builds(Changes, NAMES),
    st.builds(
        Timed,
        st.lists(TIME, max_size=5).map(tuple),
        st.lists(st.lists(COUNT, max_size=2).map(tuple), max_size=3).map(tuple),
    ),
]
REQUESTS: list[st.SearchStrategy[protocol.AnyRequest]] = [
    st.builds(protocol.BuildKernel, BUILD),
    st.builds(protocol.Load, BUILD, ARTIFACT, VENUE),
    st.builds(protocol.Reference, TEXT, TEXT, st.booleans(), st.just("allow_tf32")),
    st.builds(protocol.Run, SLOTS, SLOTS, SLOTS, SLOTS, SLOTS, DIMS, SCALARS, st.booleans()),
    st.builds(protocol.State),
    st.builds(protocol.Base, st.lists(SLOTS, max_size=2).map(tuple), SLOTS),
    st.builds(protocol.Forget),
    st.builds(protocol.Stage, st.lists(COUNT, max_size=2).map(tuple), COUNT, DIMS, SCALARS),
    st.builds(protocol.Place, ROWS, ROWS, COUNT, DIMS, SCALARS),
    st.builds(protocol.Time),
    st.builds(protocol.Idle, COUNT),
    st.builds(protocol.Fetch, COUNT, SLOTS),
]


@FEW
@given(st.one_of(REQUESTS))
def test_every_request_survives_a_round_trip(request: protocol.AnyRequest) -> None:
    assert protocol.request_of(json.loads(request.line())) == request


@FEW
@given(st.one_of(REPLIES))
def test_every_reply_survives_a_round_trip(reply: object) -> None:
    assert read(type(reply), plain(reply)) == reply


def test_no_reply_holds_what_the_evaluator_would_have_to_look_into() -> None:
    """No field of any message is an untyped mapping."""
    for kind in protocol.REQUESTS.values():
        for field in fields(kind):
            assert "Any" not in str(field.type) and "object" not in str(field.type), field


RAN = {"returned": 1, "outputs": [], "seconds": 0.5, "changed": []}
SAID = {"code": "X", "severity": "error", "message": "m"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Timed, {"samples": [float("nan")]}),
        (Timed, {"samples": [float("inf")]}),
        (Timed, {"samples": [1e18]}),
        (Timed, {"samples": [-1.0]}),
        (Timed, {"samples": [True]}),
        (Timed, {"samples": ["1"]}),
        (Timed, {"samples": {"0": 1.0}}),
        (Timed, {"samples": [0.0] * (message.MOST_ITEMS + 1)}),
        (Timed, {"samples": [10**400]}),
        (Timed, {}),
        (Timed, {"samples": [], "more": 1}),
        (Timed, []),
        (Loaded, {"method": None}),
        (Changes, {"changed": "nothing"}),
        (Ran, RAN | {"returned": True}),
        (Ran, RAN | {"returned": 1.0}),
        (Ran, RAN | {"returned": 1 << 63}),
        (Ran, RAN | {"outputs": [{"shape": [True], "dtype": "float32"}]}),
        (Ran, RAN | {"outputs": [{"shape": 3, "dtype": "float32"}]}),
        (Ran, RAN | {"findings": [SAID | {"severity": "fine"}]}),
        (Ran, RAN | {"findings": [SAID | {"count": False}]}),
        (Ran, RAN | {"findings": [{}]}),
        (Ran, RAN | {"findings": {"code": "X"}}),
        (Ran, RAN | {"trace": {"launches": [{"name": "k", "count": "1"}]}}),
        (Ran, RAN | {"trace": {"launches": [{"name": "k", "us": -1.0}]}}),
        (Ran, RAN | {"trace": {"launches": [{"name": "k", "counts": {"instructions": -1}}]}}),
        (Ran, RAN | {"trace": {"launches": [{"name": "k", "counts": {"waves": 1 << 54}}]}}),
        (
            Ran,
            RAN
            | {
                "trace": {
                    "launches": [{"name": "k", "counts": {str(i): i for i in range(1 << 12)}}]
                }
            },
        ),
        (Ran, RAN | {"trace": {"ended": 0}}),
        (BuiltFiles, {"artifact": {}, "files": [], "seconds": 0.0}),
    ],
)
def test_what_no_worker_says_is_refused_by_its_type(kind: type[object], said: object) -> None:
    with pytest.raises(FormError) as refused:
        read(kind, said)
    assert 0 < len(str(refused.value)) < 500


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_line_with_a_constant_that_json_lacks_is_refused(constant: str) -> None:
    line = f'{{"ok": true, "reply": {{"samples": [{constant}]}}}}'.encode()
    with pytest.raises(FormError, match="is not a number of JSON"):
        _parse(line)


def test_a_number_that_overflows_is_refused_though_json_reads_it() -> None:
    with pytest.raises(FormError, match="inf is not a finite number"):
        read(Timed, json.loads('{"samples": [1e999]}'))


def test_a_scalar_of_an_op_may_be_infinite() -> None:
    request = protocol.Stage((1,), 2, {"n": 3}, {"fill": float("-inf"), "causal": True})
    assert protocol.request_of(json.loads(request.line())) == request


def test_a_worker_is_not_told_who_wrote_a_kernel() -> None:
    written = Candidate("softmax", "cpu", "c++", "x", "softmax", author="someone", parents=("a",))
    where = target.load(host_targets()[0])
    build = Build(written, ops.load("softmax").signature, "float32", where, {}, {})
    assert b"someone" not in protocol.BuildKernel(protocol.anonymous(build)).line()


@pytest.mark.parametrize("traced", [False, True])
def test_a_trace_that_was_not_asked_for_or_is_missing_is_refused(traced: bool) -> None:
    run = protocol.Run((), (), (), (), (), {}, {}, traced)
    kept, other = (protocol.Trace(), None) if traced else (None, protocol.Trace())
    ran = Ran(1, (OutputForm((3,), "float32"),), 0.1, (), trace=kept)
    assert run.read(plain(ran)) == ran
    with pytest.raises(FormError, match="trace"):
        run.read(plain(replace(ran, trace=other)))
    assert run.read(plain(Ran(2, (), 0.1, ()))) == Ran(2, (), 0.1, ())


def test_an_error_is_not_hidden_by_a_warning_of_its_place() -> None:
    """A path that the code contains is a warning; a call that takes the path makes it an error."""
    seen = [
        protocol.CheckerFinding("object-wait", kind, "m", "a.hip:7")
        for kind in ("warning", "error")
    ]
    for at_once, later in ((seen, []), (seen[:1], seen[1:]), (seen[1:], seen[:1])):
        told = worker_reports.findings(later, worker_reports.findings(at_once, ()))
        assert [finding.severity for finding in told] == ["error"]
