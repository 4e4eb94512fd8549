"""The documentation builds, its links lead somewhere, and the reference has what is public."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import portkern

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_pages_are_built_without_a_warning_and_have_the_public_names(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    reference = (tmp_path / "reference" / "index.html").read_text(encoding="utf-8")
    for name in portkern.__all__:
        assert f".{name}" in reference, name


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in contents]
    assert missing == []


def test_paths_that_contributing_answers_with_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    answers = text.partition("### Where is")[2].partition("A package imports")[0]
    paths = re.findall(r"`((?:portkern|targets|tests)/[\w/.]+)`", answers)
    assert len(paths) > 10
    assert not [path for path in paths if "VERB" not in path and not (ROOT / path).exists()]


def test_what_pages_import_of_portkern_is_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    line = re.compile(r"(?m)^from portkern[\w.]* import [\w, ]+$")
    found = [known for page in pages for known in line.findall(page.read_text("utf-8"))]
    assert len(found) > 3
    for statement in found:
        try:
            exec(statement, {})
        except ModuleNotFoundError as error:  # a package that is not installed here
            assert not (error.name or "").startswith("portkern"), statement
