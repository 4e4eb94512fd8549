"""The tests that the page on security names are there, one for each guarantee."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "security.md").read_text(encoding="utf-8")
#: Attacks that once reached files, by the names that they were reported by.
CASES = ("port_escape", "run_leak", "plan_traversal", "import_traversal", "plan_exfil")


@cache
def all_tests() -> frozenset[str]:
    trees = (ast.parse(path.read_text("utf-8")) for path in HERE.glob("test_*.py"))
    return frozenset(
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def rows(title: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    _, found, after = PAGE.partition(f"| {title} | ")
    assert found, title
    lines = after.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def test_every_test_that_the_page_names_is_there() -> None:
    assert not named(PAGE) - all_tests()
    assert not [
        f for f in re.findall(r"(?:tests/)?(test_\w+\.py)", PAGE) if not (HERE / f).exists()
    ]


def test_every_guarantee_names_a_test_of_its_own() -> None:
    guarantees = rows("guarantee")
    assert len(guarantees) >= 15
    first = [sorted(named(row[-1])) for row in guarantees]
    assert all(first) and len({names[0] for names in first}) == len(first)


@pytest.mark.parametrize("case", CASES)
def test_each_attack_that_reached_files_has_its_tests(case: str) -> None:
    (row,) = (
        one
        for one in rows("attack that once reached a file of the user")
        if f"(`{case}`)" in one[0]
    )
    assert named(row[1]), row
