"""The check of the project's English finds riddles, and leaves plain sentences alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import english


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ('def f(): """Of short axes what they are."""', 1),
        ('def f(): """Who plays it."""', 1),
        ('def f(): """In which messages take little."""', 1),
        ('class C: """Those that there are."""', 1),
        ('def f(): """The lengths of short axes."""', 0),
        ('def f(): """Offers what there is."""', 0),
        ('x = f"{y} is no number"', 1),
        ("x = 1  # these are no files", 1),
        ("x = 1  # there are no files", 0),
        ('x = "it is no longer there"', 0),
        ('x = "it is not a number"', 0),
        ("is_no = 1", 0),
    ],
)
def test_a_riddle_is_found_with_its_line(line: str, kinds: int, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"import os\n{line}\n")
    hits = list(english.found(file))
    assert [place for _, place, _ in hits] == [2] * kinds
