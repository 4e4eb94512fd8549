"""Which tests of many a commit draws by its date."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import tiers
from tools.failed import CHANGED, failed


def items(count: int, *markers: str) -> list[pytest.Item]:
    made: list[Any] = [
        SimpleNamespace(nodeid=f"tests/test_x.py::test[{n}]", get_closest_marker=markers.count)
        for n in range(count)
    ]
    return cast("list[pytest.Item]", made)


def test_a_day_draws_about_a_tenth_always_the_same_and_the_next_one_others() -> None:
    many = items(400, "full", "drawn")
    left = [{one.nodeid for one in tiers.left_out(many, day)} for day in ("a", "a", "b")]
    assert 335 < len(left[0]) < 385
    assert left[0] == left[1]
    assert 285 < len(left[0] & left[2]) < 360
    ever = set.union(*({one.nodeid for one in many} - left[k] for k in (0, 2)))
    assert len(ever) > 50


def test_what_is_not_one_of_many_is_never_left_out() -> None:
    assert not tiers.left_out(items(400, "full"), "a")


@pytest.mark.parametrize(
    ("markers", "first", "others"),
    [
        ({"full"}, {"full"}, {"full", "drawn"}),
        ({"drawn"}, {"full", "drawn"}, {"full", "drawn"}),
        ({"full", "drawn"}, {"full", "drawn"}, {"full", "drawn"}),
    ],
)
def test_of_a_test_that_is_full_by_itself_the_first_case_is_always_run(
    markers: set[str], first: set[str], others: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "_test", lambda item: ("tests/test_x.py", "test"))
    marked = [set(markers) for _ in range(3)]
    cases: list[Any] = [
        SimpleNamespace(
            nodeid=f"test[{n}]",
            get_closest_marker=lambda name, has=has: name if name in has else None,
            add_marker=has.add,
        )
        for n, has in enumerate(marked)
    ]
    tiers.assign(cases, "a")
    assert marked == [first, others, others]


def test_without_git_there_is_no_date_and_the_draw_is_still_one(tmp_path: Path) -> None:
    assert tiers.day_of(tmp_path) == ""
    assert 335 < len(tiers.left_out(items(400, "full", "drawn"), "")) < 385
    assert len(tiers.day_of(Path(__file__).parent)) in (0, 10)


def test_of_two_kinds_a_day_tries_one_first_and_the_others_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "_kind", lambda item: item.nodeid)
    halved = pytest.mark.sampled("case", quick=2).mark
    late = []
    for day in ("a", "a", "b"):
        marked: dict[str, list[str]] = {f"test[{n}]": [] for n in range(200)}
        for_day: list[Any] = [
            SimpleNamespace(
                nodeid=nodeid,
                get_closest_marker={"sampled": halved}.get,
                add_marker=markers.append,
            )
            for nodeid, markers in marked.items()
        ]
        tiers.assign(for_day, day)
        assert all(markers in ([], ["full"]) for markers in marked.values())  # none is left out
        late.append({nodeid for nodeid, markers in marked.items() if markers})
    assert 70 < len(late[0]) < 130
    assert late[0] == late[1] != late[2]


def test_only_names_of_tests_are_tried_again(tmp_path: Path) -> None:
    assert not failed(tmp_path)
    names = ["tests/test_x.py::test[a b]", "tests/test_x.py::TestX::test"]
    write_failed(tmp_path, *names)
    assert failed(tmp_path) == names
    (tmp_path / CHANGED).parent.mkdir()
    (tmp_path / CHANGED).write_text('[".bashrc"]')
    assert not failed(tmp_path), "a second run would not see what is changed"


def write_failed(kept: Path, *names: str) -> None:
    cache = kept / "cache/lastfailed"
    cache.parent.mkdir()
    cache.write_text(json.dumps(dict.fromkeys(names, True)))


@pytest.mark.parametrize("other", ["gw0", "tests/test_y.py", ""])
def test_nothing_is_tried_again_where_something_else_than_tests_failed(
    tmp_path: Path, other: str
) -> None:
    write_failed(tmp_path, "tests/test_x.py::test", other)
    assert not failed(tmp_path)
