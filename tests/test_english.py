"""The check of the project's English finds riddles, and leaves plain sentences alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import english


def test_pages_headers_and_prompts_are_read_as_well(tmp_path: Path) -> None:
    for name in ("a.md", "a.h", "a.j2"):
        (tmp_path / name).write_text("Plain.\n\nThis is\nno riddle, and this is no number.\n")
        assert [line for _, line, _ in english.found(tmp_path / name)] == [3, 4]
    suffixes = {path.suffix for path in english.read()}
    assert {".md", ".h", ".j2", ".yaml"} <= suffixes


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ('def f(): """Of short axes what they are."""', 1),
        ('def f(): """Who plays it."""', 1),
        ('def f(): """In which messages take little."""', 1),
        ('class C: """Those that there are."""', 1),
        ('def f(): """The lengths of short axes."""', 0),
        ('def f(): """Offers what there is."""', 0),
        ("#: Of one file.\ny = 2", 1),
        ("#: The bytes\n#: of one file.\ny = 2", 0),
        ("#: What a limit counts.\ny = 2", 0),
        ('x = f"{y} is no number"', 1),
        ("x = 1  # these are no files", 1),
        ("x = 1  # there are no files", 0),
        ('x = "it is no longer there"', 0),
        ('x = "it is not a number"', 0),
        ("is_no = 1", 0),
        ("def f_is_no_number(): pass", 1),
        ("def there_is_no_number(): pass", 0),
        ("x = 1  # what is\n# no number", 1),
    ],
)
def test_a_riddle_is_found_with_its_line(line: str, kinds: int, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"import os\n{line}\n")
    hits = list(english.found(file))
    assert [place for _, place, _ in hits] == [2] * kinds
