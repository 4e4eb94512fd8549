"""Each tutorial is followed word by word: its files are written and its commands run, in that
order, and what they print has the lines that the page shows.

A page's file is the code block after a paragraph that ends with its path and a colon. In a block
``console`` a line that begins with ``$`` is a command, with its exit code in a comment where that
is not 0; what follows is printed, in that order. ``…`` stands for whatever was left out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(?P<language>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/.-]+\.\w+)`:$")
EXIT_CODE = re.compile(r"# exit code (\d+)$")


@dataclass(frozen=True)
class Command:
    """``shown`` are the lines that the page has below it."""

    line: str
    shown: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        said = EXIT_CODE.search(self.line)
        return int(said[1]) if said else 0


def steps(page: str) -> Iterator[tuple[str, str] | Command]:
    """The files, as path and text, and the commands of a page."""
    for block in BLOCK.finditer(page):
        named = FILE.search(page[: block.start()].rstrip())
        if block["language"] == "console":
            for part in re.split(r"^\$ ", block["text"], flags=re.M)[1:]:
                line, *shown = part.splitlines()
                yield Command(line, tuple(shown))
        elif named:
            yield named[1], block["text"]


@contextmanager
def fresh_environment(folder: Path) -> Iterator[dict[str, str]]:
    """A virtual environment with the packages of this one; home folder and caches are new."""
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({path!r})" for path in packages]
    (site / "packages.pth").write_text("\n".join(lines))
    script = folder / "venv" / "bin" / "portkern"
    script.write_text(
        f"#!{folder}/venv/bin/python\nimport sys\nfrom portkern.cli.main import main\n"
        "sys.exit(main())\n"
    )
    script.chmod(0o755)
    (folder / "home").mkdir()
    yield {
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "COLUMNS": "120",
        "LANG": "C.UTF-8",
    }


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """The lines of a page that were not printed, or not in that order."""
    left, lacking = iter(printed.splitlines()), []
    for line in shown:
        if line == "…":
            continue
        wanted = re.compile(".*".join(map(re.escape, words(line).split("…"))))
        if not any(wanted.fullmatch(words(one)) for one in left):
            lacking.append(line)
    return lacking


def words(line: str) -> str:
    """The line with one space wherever there are some: columns are as wide as their cells."""
    return " ".join(line.split())


@pytest.mark.drawn
@pytest.mark.drawn
@pytest.mark.parametrize("name", sorted(page.stem for page in PAGES.glob("*.md")))
def test_a_tutorial_says_what_happens(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    behind = []
    with fresh_environment(tmp_path) as environment:
        try:
            for step in steps(page):
                if isinstance(step, tuple):
                    path = folder / step[0]
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(step[1], encoding="utf-8")
                elif step.line.endswith(" &"):
                    words = step.line.removesuffix(" &").split()
                    behind.append(subprocess.Popen(words, cwd=folder, env=environment))
                    time.sleep(1)
                else:
                    follow(step, folder, environment)
        finally:
            for process in behind:
                process.send_signal(signal.SIGTERM)
                process.wait()


def follow(command: Command, folder: Path, environment: dict[str, str]) -> None:
    ran = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{command.line}\n{ran.stdout}\n{ran.stderr}"
    assert ran.returncode == command.exit_code, said
    assert missing(command.shown, ran.stdout) == [], said


def test_a_line_that_was_not_printed_is_found() -> None:
    printed = "a  b\nsecond 12 of 13\nlast\n"
    assert missing(("a …", "second … of 13", "…", "last"), printed) == []
    assert missing(("last", "a …"), printed) == ["a …"]
    assert missing(("second … of 14",), printed) == ["second … of 14"]


def test_files_and_commands_of_a_page_are_found() -> None:
    page = """So `a/b.cu`:

```cuda
int x;
```

now

```text
of no name
```

```console
$ one    # exit code 1
said
$ two
```
"""
    assert list(steps(page)) == [
        ("a/b.cu", "int x;\n"),
        Command("one    # exit code 1", ("said",)),
        Command("two", ()),
    ]
