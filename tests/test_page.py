"""attempts.html and attempts.md, also as a browser shows them."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from portkern.agent import page
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock, Status
from portkern.agent.log import Log
from portkern.errors import StorageError
from portkern.records.record import Cost
from tests.browser import browse, needs_browser

HOSTILE = '</pre><script>alert(1)</script> & "quotes" | `code` 漢字 \x1b[31mred\x07'


def attempt(name: str, score: float = 0.0, **facts: Any) -> Attempt:
    """Correct and timed when it has a score."""
    slot, number = map(int, name.split("."))
    told: dict[str, Any] = {
        "status": Status.PASSED if score else Status.WRONG,
        "author": "openai/scripted",
        "source": f"int relu() {{\n  return {slot};\n}}\n",
        "digest": name,
        "operator": "mutate",
        "detail": "" if score else "max error 0.31 at [3, 7]",
        "speedups": {"4096": score} if score else {},
    }
    return Attempt(
        id=name,
        slot=slot,
        number=number,
        score=score,
        op="relu",
        target="h200",
        backend="cuda",
        language="cuda",
        **(told | facts),
    )


def logged(*attempts: Attempt) -> Log:
    log = Log()
    for one in attempts:
        log.add([one])
    return log


def summary(best: str | None = None, **told: str) -> dict[str, Any]:
    return {"author": "Models: coder openai/scripted", "best": best, "told": {"best": "x"} | told}


def family() -> Log:
    """A root with two children, of which one has a child; a second root."""
    return logged(
        attempt("0.0", 1.0, operator="init"),
        attempt("1.0", 1.5, parents=("0.0",), idea="tile"),
        attempt("2.0", parents=("0.0",), idea="fuse"),
        attempt("3.0", 2.5, parents=("1.0",)),
        attempt("4.0", 0.7),
    )


def long(seed: int = 0, count: int = 60) -> Log:
    """A run as they are: chains, failures, duplicates, long texts."""
    drawn = random.Random(seed)
    lines = [
        f"  const int step_{k} = {k} * blockDim.x;  // a line of the kernel" for k in range(60)
    ]
    log = Log()
    for k in range(count):
        known = [one.id for one in log]
        parents = tuple(drawn.sample(known, min(len(known), drawn.choice([0, 1, 1, 1, 1, 2]))))
        if k > 30:
            parents = (known[-1],)  # a long chain
        lines[drawn.randrange(60)] = f"  const int changed_{k} = {k};"
        status = drawn.choice(
            [Status.PASSED] * 5
            + [Status.WRONG, Status.BUILD_FAILED, Status.DUPLICATE, Status.NO_CODE, Status.REJECTED]
        )
        passed = status is Status.PASSED
        idea = " ".join(
            drawn.choices(
                ["stage", "tile", "rows", "of", "shared", "memory", "padded", "vectorise"],
                k=drawn.choice([3, 8, 60]),
            )
        )
        log.add(
            [
                attempt(
                    f"{k}.0",
                    drawn.uniform(0.5, 1.0 + k / 20) if passed else 0.0,
                    parents=parents,
                    status=status,
                    idea=idea,
                    arm=drawn.choice(["", "tiling"]),
                    operator="plan",
                    source="" if status is Status.NO_CODE else "\n".join(lines) + "\n",
                    rationale=f"Because {idea}.",
                    calls=("0/coder#1", "0/planner#1"),
                    cost=Cost(usd=0.0123, tokens_in=900, tokens_out=200),
                    detail="" if passed else "kernel.cu:12: error: " + "no such thing; " * 30,
                    feedback=(
                        PromptBlock(kind="timing", title="Timing", text="median_us: 12.3 µs"),
                    ),
                    diagnosis=Diagnosis(
                        critic="rules", problem="memory at 83 %", fix="load more", why="so"
                    ),
                    notes=("2 of 3 verifiers expect it to work",),
                )
            ]
        )
    return log


def written(folder: Path, log: Log, told: dict[str, Any] | None = None) -> tuple[str, str]:
    page.write(log, folder, told or summary())
    html, markdown = (folder / f"attempts.{kind}" for kind in ("html", "md"))
    return html.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """The parts of a page: for each ``details`` its attributes and its texts by class or
    heading."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "details":
            self.rows.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def levels(self) -> list[tuple[str | None, int]]:
        return [(row["id"], int((row["style"] or "").rpartition(" ")[2])) for row in self.rows]


# ---- the tree


def test_each_attempt_stands_below_the_first_one_that_it_was_made_of(tmp_path: Path) -> None:
    html, markdown = written(tmp_path, family())
    order = [("0.0", 0), ("1.0", 1), ("3.0", 2), ("2.0", 1), ("4.0", 0)]
    assert Outline(html).levels == order
    rows = [line.split(" | ")[0].strip("| ") for line in markdown.splitlines() if "| " in line]
    assert rows == ["attempt", *(name for name, _ in order)]


def test_an_attempt_whose_parent_is_not_in_the_log_is_a_root(tmp_path: Path) -> None:
    html, _ = written(tmp_path, logged(attempt("5.0", 1.0, parents=("2.0",))))
    assert Outline(html).levels == [("5.0", 0)]


def test_every_attempt_of_a_long_run_is_there_once(tmp_path: Path) -> None:
    log = long()
    html, markdown = written(tmp_path, log)
    assert sorted(str(row["id"]) for row in Outline(html).rows) == sorted(one.id for one in log)
    assert markdown.count("\n| ") == 1 + len(log)  # and the head


def test_a_chain_of_a_thousand_attempts_needs_no_recursion(tmp_path: Path) -> None:
    names = [f"{k}.0" for k in range(1000)]
    log = Log()
    log.add(
        [
            attempt(name, parents=(before,) if before else (), source="")
            for name, before in zip(names, ["", *names], strict=False)
        ]
    )
    assert Outline(written(tmp_path, log)[0]).levels[-1] == ("999.0", 999)


# ---- what is told of an attempt


def test_the_best_is_marked_and_open(tmp_path: Path) -> None:
    html, markdown = written(tmp_path, family(), summary("3.0"))
    marked = [row["id"] for row in Outline(html).rows if "open" in row]
    assert marked == ["3.0"]
    assert html.count("★") == 1 and "2.5× ★" in html
    assert "| 3.0 | 1.0 | 2.5× ★ | mutate |" in markdown


def test_without_a_best_nothing_is_marked(tmp_path: Path) -> None:
    html, markdown = written(tmp_path, logged(attempt("0.0")))
    assert "★" not in html + markdown and "<svg" not in html
    assert "1 wrong" in html and "1 wrong" in markdown


def test_a_correct_kernel_that_was_not_timed_has_no_speedup(tmp_path: Path) -> None:
    html, markdown = written(tmp_path, logged(attempt("0.0", 1.0, speedups={})))
    assert "correct, not timed" in html and "correct, not timed" in markdown
    assert "1×" not in html + markdown and "<svg" not in html


def test_a_failure_tells_how_it_failed(tmp_path: Path) -> None:
    log = logged(attempt("0.0", status=Status.BUILD_FAILED, detail="kernel.cu:3: error: no such x"))
    html, _ = written(tmp_path, log)
    assert "build failed" in html and "kernel.cu:3: error: no such x" in html


def test_a_duplicate_tells_of_what(tmp_path: Path) -> None:
    same = attempt("1.0", status=Status.DUPLICATE, detail="the same kernel as attempt 0.0", idea="")
    html, markdown = written(tmp_path, logged(attempt("0.0", 1.2), same))
    assert "the same kernel as attempt 0.0" in html
    assert "| 1.0 |  | duplicate | mutate |" in markdown
    assert "1 duplicate" in markdown


def test_what_an_attempt_changes_is_told_against_its_parent(tmp_path: Path) -> None:
    html, _ = written(tmp_path, family())
    assert html.count("What it changes") == 3 and html.count("<h3>Source</h3>") == 2
    assert '<span class="del">-  return 0;</span><span class="add">+  return 1;</span>' in html


def test_a_parent_without_code_has_nothing_to_differ_from(tmp_path: Path) -> None:
    log = logged(attempt("0.0", source=""), attempt("1.0", 1.0, parents=("0.0",)))
    html, _ = written(tmp_path, log)
    assert "What it changes" not in html and html.count("<h3>Source</h3>") == 1


def test_a_long_difference_is_cut_and_says_so() -> None:
    shown = page.difference("", "x\n" * 1000)
    assert len(shown) == page.MOST_LINES + 1
    assert shown[-1] == ("at", "… 600 more lines")
    assert page.difference("same\n", "same\n") == []
    assert page.difference("old\n", "") == []


def test_calls_prices_diagnoses_and_notes_are_told(tmp_path: Path) -> None:
    html, _ = written(tmp_path, long(count=3))
    for said in (
        "2 calls of models, 0.0123 USD",
        "Diagnosis (rules)",
        "load more",
        "Timing",
        "2 of 3 verifiers expect it to work",
        "By openai/scripted, plan",
    ):
        assert said in html


# ---- text that bites


def test_text_of_models_and_compilers_never_becomes_markup(tmp_path: Path) -> None:
    blocks = (PromptBlock(kind="compile", title=HOSTILE, text=HOSTILE),)
    diagnosis = Diagnosis(critic=HOSTILE, problem=HOSTILE, fix=HOSTILE, lessons=(HOSTILE,))
    bad = attempt(
        "0.0",
        idea=HOSTILE,
        rationale=HOSTILE,
        source=HOSTILE,
        detail=HOSTILE,
        author=HOSTILE,
        arm=HOSTILE,
        donor=HOSTILE,
        notes=(HOSTILE,),
        feedback=blocks,
        diagnosis=diagnosis,
    )
    told = summary(None, **{HOSTILE: HOSTILE}) | {"author": HOSTILE}
    html, markdown = written(tmp_path, logged(bad), told)
    outline = Outline(html)
    assert "script" not in outline.tags and "<script>alert(1)" in outline.text
    for control in ("\x1b", "\x07"):
        assert control not in html + markdown
    assert "<script" not in markdown
    row = next(line for line in markdown.splitlines() if line.startswith("| 0.0"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_a_title_comes_from_the_folder_and_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "run <b>&"
    folder.mkdir()
    html, markdown = written(folder, family())
    assert "<h1>run &lt;b&gt;&amp;</h1>" in html
    assert markdown.startswith("# run &lt;b&gt;&amp;\n")


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    with pytest.raises(StorageError, match=r"Cannot write .*attempts\.html"):
        page.write(family(), tmp_path / "none", summary())


# ---- the curve


def test_the_curve_only_rises_and_ends_with_the_best(tmp_path: Path) -> None:
    html, _ = written(tmp_path, family())
    found = re.search(r'<polyline points="([^"]*)"', html)
    assert found is not None
    heights = [float(point.split(",")[1]) for point in found[1].split()]
    assert heights == sorted(heights, reverse=True)  # down the screen is less
    assert html.count("<circle") == 4
    assert "it ends at 2.5" in html and ">2.5×</text>" in html


# ---- in a browser


@needs_browser
def test_a_browser_shows_the_tree_and_refuses_nothing(tmp_path: Path) -> None:
    log = long()
    written(tmp_path, log, summary(log.best()[0].id))
    shown = Outline(browse(tmp_path / "attempts.html", "--dump-dom"))
    assert len(shown.rows) == len(log)
    assert shown.text.count("★") == 1


@pytest.mark.full
@needs_browser
def test_light_dark_and_narrow_are_drawn_without_sideways_scrolling(tmp_path: Path) -> None:
    log = long()
    html, _ = written(tmp_path, log, summary(log.best()[0].id))
    # The page's policy allows no script; this copy has one that measures.
    measured = tmp_path / "measured.html"
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    script = (
        "<script>for (const one of document.querySelectorAll('details')) one.open = true;"
        "const wide = document.documentElement;"
        "document.body.dataset.result = `${wide.scrollWidth} ${wide.clientWidth}`;</script></body>"
    )
    measured.write_text(policy.sub("", html).replace("</body>", script), encoding="utf-8")
    for width in (500, 1300):
        shown = browse(measured, f"--window-size={width},900", "--dump-dom")
        found = re.search(r'data-result="(\d+) (\d+)"', shown)
        assert found is not None and int(found[1]) <= int(found[2])
    pictures = []
    for scheme in (1, 0):
        shot = tmp_path / f"{scheme}.png"
        preference = f"--blink-settings=preferredColorScheme={scheme}"
        browse(
            tmp_path / "attempts.html", preference, "--window-size=1200,900", f"--screenshot={shot}"
        )
        pictures.append(shot.read_bytes())
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 30_000 for picture in pictures)
    assert pictures[0] != pictures[1]
