"""The report is a view of the records: nothing is promoted, dropped or broken by what they say."""

from __future__ import annotations

import io
import json
import random
import re
import runpy
import struct
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from portkern import report
from portkern.cells.run import MatrixProgress
from portkern.cli import heartbeat
from portkern.cli.verbs import run_folder
from portkern.errors import StorageError
from portkern.printable import printable
from portkern.records.record import Evidence, Record, Verdict
from portkern.regression import document
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import Night
from portkern.regression.runs import FACTS, Revision, RunFacts
from portkern.report import badge, ci_annotations, comment, html, markdown, summary, terminal
from portkern.report.table import MatrixColumn, MatrixTable, current, natural, times

# Run by path: with --import-mode=importlib a test cannot import its sibling.
_builder = runpy.run_path(str(Path(__file__).with_name("report_records.py")))
records: Callable[[], list[Record]] = _builder["records"]
make: Callable[..., Record] = _builder["make"]

FILES = {"summary.json", "matrix.md", "matrix.html", "matrix.png", "junit.xml", "codequality.json"}
FILES |= {"gate.sarif", "comment.md", "badge.svg", "badge.json"}
HOSTILE = "</script><script>alert(1)</script> | \u2028 \x1b[1m]]> & $\\frac$ \x00 <!-- 漢字 é"


@pytest.fixture(scope="module")
def table() -> MatrixTable:
    return MatrixTable.of(records())


def measured(value: float, **changes: object) -> Record:
    return make(speedup={"eager": {"value": value, "ci95": [value, value]}}, **changes)


def unmeasured(verdict: Verdict, evidence: Evidence, **changes: object) -> Record:
    gone: dict[str, object] = {
        "timing": None,
        "speedup": {},
        "baselines": {},
        "errors": None,
        "venue": "",
    }
    return make(**{**gone, "verdict": verdict, "evidence": evidence, **changes})


def sized(name: str) -> dict[str, object]:
    return {"set": "ci", "name": name, "dims": {"n": int(name)}, "dtype": "float32"}


def on(machine: str) -> dict[str, object]:
    return {"machine": machine, "device": "x", "harness_version": "0.1.0"}


# ---- the pivot


def test_a_cell_is_the_worst_of_its_parts() -> None:
    cell = _only_cell(
        measured(2.0, workload=sized("1")),
        unmeasured(Verdict.UNAVAILABLE, Evidence.BUILT, workload=sized("2"), missing="no GPU"),
        unmeasured(Verdict.WRONG, Evidence.BUILT, workload=sized("3"), detail="off by 1"),
    )
    assert cell.verdict is Verdict.WRONG
    assert cell.evidence is Evidence.BUILT
    assert cell.rungs == {Evidence.MEASURED: 1, Evidence.BUILT: 2}
    assert cell.missing == ("no GPU",)
    assert [r.detail for r in cell.failing] == ["off by 1"]


def test_the_speedup_is_the_geometric_mean_of_measured_records_alone() -> None:
    cell = _only_cell(
        measured(2.0, workload=sized("1")),
        measured(8.0, workload=sized("2")),
        unmeasured(Verdict.UNAVAILABLE, Evidence.BUILT, workload=sized("3")),
    )
    assert cell.speedup is not None
    assert cell.speedup.value == pytest.approx(4.0)
    assert cell.speedup.n == 2


def test_a_noisy_time_is_shown_and_enters_no_mean() -> None:
    quiet = measured(2.0)
    assert quiet.timing is not None
    uncertain = quiet.timing.model_copy(update={"noisy": "1.65 to 143.6"})
    noisy = measured(85.6, timing=uncertain)
    table = MatrixTable.of([quiet, noisy.model_copy(update={"key": "other", "op": "other"})])
    assert table.whole.speedup is not None
    assert table.whole.speedup.value == pytest.approx(2.0)
    assert table.whole.speedup.n == 1
    assert (table.whole.noisy, summary.document(table, title="t")["noisy"]) == (1, 1)
    console = Console(width=200, record=True, file=io.StringIO())
    terminal.show(table, console)
    assert "1 of them noisy" in console.export_text()
    assert "1 measured with too much noise" in markdown.render(table, title="t")


def test_a_terminal_ends_with_what_was_seen_in_words() -> None:
    table = MatrixTable.of(
        [
            measured(2.0, workload=sized("1")),
            unmeasured(Verdict.PASSED, Evidence.EMULATED, workload=sized("2")),
            unmeasured(Verdict.UNAVAILABLE, Evidence.BUILT, workload=sized("3")),
            unmeasured(Verdict.WRONG, Evidence.BUILT, workload=sized("4")),
        ]
    )
    assert list(terminal.in_words(table)) == [
        "2 of 4 cells passed: 1 right and timed on the hardware, 1 right in an emulator.",
        "1 could not be run or built here; the report says why of each.",
        "1 failed.",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_where_there_is_no_terminal_lines_say_how_far_a_run_is(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for module in (heartbeat, run_folder):
        monkeypatch.setattr(module, "FIRST_S", 0.05)
    record, said = measured(2.0), ""
    with run_folder._progress(3, quiet) as show:
        show(MatrixProgress(3, 2, record))
        until = time.monotonic() + (0.3 if quiet else 30)
        while not said and time.monotonic() < until:
            time.sleep(0.05)
            said = capsys.readouterr().err
    what = f"{record.op} · {record.backend} · {record.target}: passed"
    assert said.startswith("" if quiet else f"  … 2 of 3 done, the last {what}, ")
    assert bool(said) is not quiet


def test_a_cell_without_a_measurement_has_no_speedup() -> None:
    cell = _only_cell(unmeasured(Verdict.PASSED, Evidence.EMULATED, venue="emulator: x"))
    assert cell.speedup is None


def _only_cell(*parts: Record) -> report.table.TableCell:
    (cell,) = MatrixTable.of(parts).cells.values()
    return cell


def test_a_column_shows_its_language_only_where_a_backend_has_several(table: MatrixTable) -> None:
    assert MatrixColumn("cpu", "x86_64", "numba") in table.columns
    assert MatrixColumn("cuda", "h200") in table.columns


def test_targets_with_the_best_evidence_come_first_and_numbers_sort_as_numbers(
    table: MatrixTable,
) -> None:
    assert table.targets == ("h200", "x86_64", "gfx942", "gfx1100", "sm_80", "sm_100")
    assert sorted(["sm_100", "sm_90"], key=natural) == ["sm_90", "sm_100"]


def test_totals_count_every_record_once(table: MatrixTable) -> None:
    assert sum(len(total) for total in table.totals.values()) == len(table.records) == 756
    assert len(table.whole.failing) == 10


@pytest.mark.parametrize(("value", "text"), [(1.316, "1.32"), (12.34, "12.3"), (456.7, "457")])
def test_speedups_have_three_digits(value: float, text: str) -> None:
    assert times(value) == f"{text}\N{MULTIPLICATION SIGN}"


# ---- which record of a cell counts


def test_the_newest_record_of_a_machine_counts() -> None:
    old, new = measured(2.0, time="2026-01-01"), measured(3.0, time="2026-01-02")
    assert current([new, old]) == [new]


def test_another_machine_without_the_device_does_not_hide_a_measurement() -> None:
    here = measured(2.0, environment=on("gpu"), time="1")
    there = unmeasured(Verdict.UNAVAILABLE, Evidence.BUILT, environment=on("cpu"), time="2")
    assert current([here, there]) == [here]


def test_a_failure_on_any_machine_counts() -> None:
    good = measured(2.0, environment=on("a"), time="2")
    bad = unmeasured(Verdict.CRASHED, Evidence.BUILT, environment=on("b"), time="1")
    assert current([good, bad]) == [bad]


def test_a_new_source_replaces_what_other_machines_said_of_the_old_one() -> None:
    old = measured(2.0, environment=on("a"), time="1", source_hash="old")
    new = unmeasured(
        Verdict.UNAVAILABLE, Evidence.BUILT, environment=on("b"), time="2", source_hash="new"
    )
    assert current([old, new]) == [new]


def test_superseded_attempts_are_counted_and_said() -> None:
    table = MatrixTable.of([measured(2.0, time="1"), measured(3.0, time="2")])
    assert table.superseded == 1
    assert "1 earlier attempts superseded" in markdown.render(table, title="t")


# ---- the files


def test_write_makes_every_view_and_leaves_nothing_else(tmp_path: Path) -> None:
    done = report.write(records(), tmp_path / "run", title="nightly")
    assert {path.name for path in done.written} == FILES
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    assert not done.skipped


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        report.write(records(), tmp_path / folder, title="nightly")
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_no_records_is_a_report_too(tmp_path: Path) -> None:
    done = report.write([], tmp_path, title="empty")
    assert {path.name for path in done.written} == FILES
    assert json.loads((tmp_path / "summary.json").read_text())["cells"] == 0


def test_hostile_text_in_every_field_breaks_no_view(tmp_path: Path) -> None:
    bad = unmeasured(
        Verdict.CRASHED,
        Evidence.BUILT,
        op=HOSTILE,
        detail=HOSTILE,
        author=HOSTILE,
        backend=HOSTILE,
        target=HOSTILE,
        guard=[HOSTILE],
        workload={"set": HOSTILE, "name": HOSTILE, "dims": {HOSTILE: 3}, "dtype": HOSTILE},
    )
    done = report.write([bad, *records()], tmp_path, title=HOSTILE)
    assert not done.skipped
    ElementTree.parse(tmp_path / "junit.xml")
    assert "<script" not in (tmp_path / "matrix.md").read_text()
    page = (tmp_path / "matrix.html").read_text()
    assert page.count("</script>") == 2
    assert _data(page)["strings"]


def test_without_the_extra_the_reason_is_returned_and_no_stale_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.write(records(), tmp_path, title="t")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = report.write(records(), tmp_path, title="t")
    assert {path.name for path in done.written} == FILES - {"matrix.png"}
    assert "matplotlib is not installed" in str(done.skipped["matrix.png"])
    assert "portkern[report]" in str(done.skipped["matrix.png"])
    assert not (tmp_path / "matrix.png").exists()


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.write([], tmp_path, title="old")
    before = (tmp_path / "summary.json").read_bytes()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        report.write(records(), tmp_path, title="new")
    assert (tmp_path / "summary.json").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == FILES


# ---- summary.json


def test_the_summary_counts_columns_and_bad_cells(table: MatrixTable) -> None:
    found = json.loads(summary.render(table, title="t"))
    assert found["generated"] == max(r.time for r in table.records)
    assert sum(found["verdicts"].values()) == sum(found["evidence"].values()) == 756
    assert len(found["bad"]) == found["failed"] == 10
    cuda = next(c for c in found["columns"] if (c["backend"], c["target"]) == ("cuda", "h200"))
    assert cuda["ops"]["failed"] == ["matmul"]
    assert cuda["speedup"]["n"] == 52
    built = next(c for c in found["columns"] if c["target"] == "sm_80")
    assert built["speedup"] is None
    assert built["missing"] == ["no device of this architecture on this machine"]


# ---- matrix.md


def test_every_markdown_table_is_rectangular(table: MatrixTable) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", markdown.render(table, title="t"), re.MULTILINE)
    assert len(blocks) >= 6
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_a_pair_that_cannot_exist_is_told_but_takes_no_room(table: MatrixTable) -> None:
    impossible = MatrixColumn("cuda", "gfx942")
    assert impossible in table.columns
    assert impossible not in table.supported
    assert "| unsupported <sup>" in markdown.render(table, title="t")


def test_markdown_shows_failures_bold_and_numbers_the_reasons(table: MatrixTable) -> None:
    text = markdown.render(table, title="t")
    assert "**wrong** 2/6" in text
    assert "8/9 measured" in text
    assert "&lt;script&gt;" in text
    assert re.search(r"^\d\. no device of this architecture on this machine$", text, re.MULTILINE)
    marks = {int(n) for found in re.findall(r"<sup>([\d,]+)", text) for n in found.split(",") if n}
    assert marks == set(range(1, len(marks) + 1))


def test_the_overview_does_not_depend_on_the_order_of_the_records() -> None:
    shuffled = records()
    random.Random(1).shuffle(shuffled)
    assert markdown.overview(shuffled) == markdown.overview(records())
    assert "`sm_100`" not in markdown.overview(records(), most=3)
    assert "`h200`" not in markdown.overview(records(), targets=["x86_64"])


# ---- matrix.html


def test_the_page_refers_to_nothing_outside_itself(table: MatrixTable) -> None:
    page = html.render(table, title="t").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn|@import|url\(|\bsrc=|\bhref=|<link|<img|fetch\(", page)


def test_the_page_carries_every_record_and_no_samples(table: MatrixTable) -> None:
    data = _data(html.render(table, title="t"))
    assert len(data["rows"]) == 756
    assert "samples" not in data["fields"]
    assert len(html.render(table, title="t")) < 400 * 756


def test_an_infinite_error_reaches_the_page_as_a_word() -> None:
    errors = {"max_abs": float("inf"), "max_rel": float("nan"), "vs_fp64": float("inf")}
    wrong = make(errors={**errors, "reference_vs_fp64": 1e-7})
    data = _data(html.render(MatrixTable.of([wrong]), title="t"))
    assert data["rows"][0][data["fields"].index("errors")] == ["inf", 1e-7, "inf", "nan"]


def test_a_record_with_an_infinite_error_can_be_read_back() -> None:
    errors = {"max_abs": float("inf"), "max_rel": 1.0, "vs_fp64": 1.0, "reference_vs_fp64": 0.0}
    read = Record.from_json(make(errors=errors).to_json()).errors
    assert read is not None and read.max_abs == float("inf")


def test_cleaning_removes_colours_and_control_characters() -> None:
    assert printable("\x1b[1;31merror\x1b[0m\tat\r\nline\x07 é") == "error\tat\nline é"


def _data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# ---- matrix.png, junit.xml


def test_the_picture_grows_with_the_matrix(tmp_path: Path) -> None:
    sizes = []
    for name, some in (("small", records()[:60]), ("large", records())):
        report.write(some, tmp_path / name, title="t")
        head = (tmp_path / name / "matrix.png").read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        sizes.append(struct.unpack(">II", head[16:24]))
    assert sizes[1][1] > sizes[0][1]
    assert max(sizes[1]) < 4000


def test_junit_has_one_case_per_judged_cell(tmp_path: Path) -> None:
    report.write(records(), tmp_path, title="t")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    cases = list(root.iter("testcase"))
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 451 + 10
    assert len(list(root.iter("failure"))) == 10
    suite = next(s for s in root.iter("testsuite") if s.get("name") == "cuda@h200")
    assert suite.get("hostname") and suite.get("timestamp", "").startswith("20")
    assert suite.get("errors") == suite.get("skipped") == "0"
    assert suite.get("tests") == str(len(list(suite.iter("testcase"))))
    assert root.get("tests") == str(len(cases)) and root.get("failures") == "10"
    assert not list(root.iter("property")), "nothing is known of where the run is from"


def test_junit_says_which_commit_and_job_a_run_is_of(tmp_path: Path) -> None:
    git = Revision(commit="c0ffee", branch='a "branch"\n<b>', dirty=True)
    facts = RunFacts(git=git, job="https://ci.example/7", tags={"release": "", "by": "night"})
    (tmp_path / FACTS).write_text(facts.to_json())
    report.write([measured(2.0, op="relu")], tmp_path, title="t")
    [suite] = ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testsuite")
    assert {one.get("name"): one.get("value") for one in suite.iter("property")} == {
        "git.commit": "c0ffee",
        "git.branch": 'a "branch"\n<b>',
        "git.dirty": "true",
        "ci.job": "https://ci.example/7",
        "tag.release": "",
        "tag.by": "night",
    }


# ---- against an earlier run


def changed(tmp_path: Path, *after: Record) -> Path:
    """A folder with what became of a measured relu, a softmax that is gone, and ``after``."""
    before = [measured(2.0, op="relu"), measured(2.0, op="softmax")]
    nights = Night.of("monday", before), Night.of("tuesday", after)
    document.write(RunComparison.of(*nights, [nights[0]]), tmp_path)
    return tmp_path


def test_what_regressed_comes_first_in_every_view(tmp_path: Path) -> None:
    wrong = unmeasured(Verdict.WRONG, Evidence.BUILT, op="relu", detail="max error 3 at [0]")
    done = report.write([wrong], changed(tmp_path, wrong), title="t")
    assert not done.skipped
    page, text = ((tmp_path / name).read_text() for name in ("matrix.html", "matrix.md"))
    for view in (page, text):
        assert "red: 1 new failure, 1 lost coverage; 2 of them since this run" in view
        first = view.index("tuesday against monday: 1 new failure, 1 lost coverage")
        assert first < view.index("softmax") < view.index("Failures")
    assert page.index("tuesday against monday") < page.index(">Matrix<")
    counts = json.loads((tmp_path / "summary.json").read_text())["regressions"]
    assert counts == {"before": "monday", "counts": {"new failure": 1, "lost coverage": 1}}
    failures = ElementTree.parse(tmp_path / "junit.xml").getroot().iter("failure")
    assert [failure.get("type") for failure in failures] == ["wrong", "lost coverage"]


def test_the_page_begins_with_green_or_red_and_links_what_changed(tmp_path: Path) -> None:
    wrong = unmeasured(Verdict.WRONG, Evidence.BUILT, op="relu", detail="max error 3 at [0]")
    facts = RunFacts(job="javascript:alert(1)", remarks=("cpu: not compared: <no> run",))
    folder = changed(tmp_path, wrong)
    (folder / FACTS).write_text(facts.to_json())
    report.write([wrong], folder, title="t")
    page = (folder / "matrix.html").read_text()
    first, remark = (
        page.index('<p class="verdict red">'),
        page.index("not compared: &lt;no&gt; run"),
    )
    assert first < remark < page.index('id="cards"')
    assert 'href="#cell=relu%3A' in page and 'href="javascript' not in page
    assert "not compared" in (folder / "comment.md").read_text()
    report.write([measured(2.0)], tmp_path / "alone", title="t")
    assert '<p class="verdict green">' in (tmp_path / "alone" / "matrix.html").read_text()


def test_a_comparison_that_cannot_be_read_is_named_and_the_rest_is_written(tmp_path: Path) -> None:
    for broken in ("{", "[]", '{"before": 1}'):
        (tmp_path / "regressions.json").write_text(broken)
        done = report.write([measured(2.0)], tmp_path, title="t")
        assert list(done.skipped) == ["regressions.json"]
        assert {path.name for path in done.written} == FILES


@pytest.mark.parametrize(("until", "fails"), [("2099-12-31", False), ("2001-01-01", True)])
def test_a_cell_in_quarantine_fails_nothing_in_any_view(
    tmp_path: Path, until: str, fails: bool
) -> None:
    """The quarantine holds until its day, and the cell is shown apart."""
    (tmp_path / "decisions.yaml").write_text(
        f"quarantine: [{{op: relu, until: {until}, why: the runner moves}}]"
    )
    wrong = unmeasured(Verdict.WRONG, Evidence.BUILT, op="relu", detail="max error 3 at [0]")
    folder = tmp_path / "run"
    wrong = wrong.model_copy(update={"author": "file:relu.cpp"})
    done = report.write([wrong, measured(2.0, op="softmax")], folder, title="t")
    assert len(done.table.failing) == fails and len(done.table.quarantined) == (not fails)
    words = "1 of 2 cells passed: 1 right and timed on the hardware."
    assert [*terminal.in_words(done.table)] == [words, *["1 failed."] * fails]
    cases = ElementTree.parse(folder / "junit.xml").getroot()
    assert len(list(cases.iter("failure"))) == fails
    assert len(list(cases.iter("skipped"))) == (not fails)
    assert len(json.loads((folder / "codequality.json").read_text())) == fails
    assert len(json.loads((folder / "gate.sarif").read_text())["runs"][0]["results"]) == fails
    assert json.loads((folder / "badge.json").read_text())["isError"] == fails
    assert ("**red: 1 of 2 cells" in (folder / "comment.md").read_text()) == fails
    said = json.loads((folder / "summary.json").read_text())
    assert len(said["bad"]) == fails and len(said["quarantined"]) == (not fails)
    text = (folder / "matrix.md").read_text()
    assert ("In quarantine, which fails nothing (1)" in text) != fails
    assert ("## Failures (1)" in text) == fails


# ---- where people look


def compared(tmp_path: Path, *names: str) -> MatrixTable:
    """Two nights, in the second of which kernels of these files fail."""
    good = [measured(2.0, op=f"op{n}", author=f"file:{name}") for n, name in enumerate(names)]
    bad = [
        unmeasured(Verdict.WRONG, Evidence.BUILT, op=f"op{n}", detail=f"line 7: {HOSTILE}")
        for n, _ in enumerate(names)
    ]
    bad = [
        new.model_copy(update={"author": old.author}) for old, new in zip(good, bad, strict=True)
    ]
    one, two = Night.of("monday", good), Night.of("tuesday", bad)
    document.write(RunComparison.of(one, two, [one]), tmp_path)
    return MatrixTable.of(bad, document.read(tmp_path))


def test_a_comment_says_what_changed_and_how_it_is_seen_again(tmp_path: Path) -> None:
    table = compared(tmp_path, "a b.cpp", "c`d.cpp")
    text = comment.render(table, title=HOSTILE)
    assert text.startswith(comment.MARK) and "**red: 2 new failure; 2 of them since this" in text
    assert "'source=a b.cpp'" in text and "# last good: monday" in text
    assert "    portkern bisect tuesday" in text
    assert text.count("<!--") == 1 and "<script" not in text and "\x1b" not in text
    many = compared(tmp_path, *(f"{n}.cpp" for n in range(200)))
    assert len(comment.render(many, title="t").encode()) < 20_000


@pytest.mark.parametrize("remark", ["gap: cpu is missing", "problem: x.cu: not a kernel"])
def test_a_run_that_lacks_what_is_expected_is_red(tmp_path: Path, remark: str) -> None:
    passed = [measured(2.0)]
    facts = RunFacts(remarks=("warning: gap: none", "a100: gap: filled here", remark))
    table = MatrixTable.of(passed, facts=facts)
    assert (comment.colour(table), comment.said(table)[:21]) == ("red", "red: 1 cells passed; ")
    assert json.loads(badge.endpoint(table, title="t"))["message"] == "1 missing"
    before, after = Night.of("a", passed), Night.of("b", passed)
    document.write(RunComparison.of(before, after, []), tmp_path)
    table = MatrixTable.of(passed, document.read(tmp_path), facts=facts)
    assert comment.said(table).startswith("red: nothing is worse") and comment.gaps(table) == 1


def test_sarif_names_the_kernels_file_and_line(tmp_path: Path) -> None:
    said = json.loads(ci_annotations.as_sarif(compared(tmp_path, "a b.cpp"), title=HOSTILE))
    [run] = said["runs"]
    [result] = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.cpp" and place["region"]["startLine"] == 7
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [result["ruleId"]]
    assert said["version"] == "2.1.0" and result["level"] == "error"
    brackets = result["message"]["text"].replace("\\[", "").replace("\\]", "")
    assert "bold" in brackets and not {"[", "]"} & set(brackets), "SARIF would read a link"


@pytest.mark.parametrize(
    ("records", "colour", "message"),
    [
        ([measured(2.0)], "#2da44e", "1 passed"),
        ([unmeasured(Verdict.WRONG, Evidence.BUILT)], "#cf222e", "1 failing"),
        ([unmeasured(Verdict.UNAVAILABLE, Evidence.NONE)], "#6e7781", "nothing ran"),
    ],
    ids=["green", "red", "grey"],
)
def test_a_badge_has_the_colour_of_the_run(
    records: list[Record], colour: str, message: str
) -> None:
    table = MatrixTable.of(records)
    assert json.loads(badge.endpoint(table, title="t"))["message"] == message
    picture = badge.svg(table, title=HOSTILE)
    assert colour in picture and message in picture
    assert ElementTree.fromstring(picture).tag.endswith("svg") and "<script" not in picture


# ---- beside the kernel's line


def test_a_bad_kernel_is_annotated_at_the_line_that_its_checker_names(tmp_path: Path) -> None:
    race = {"code": "SX201", "severity": "error", "message": "race", "place": "sums.cu:17"}
    mine: dict[str, object] = {"author": "file:kernels/sums.cu", "op": "sum"}
    bad = [
        unmeasured(
            Verdict.WRONG, Evidence.BUILT, findings=[race], detail="race", workload=sized(n), **mine
        )
        for n in ("1", "2")
    ]
    build = unmeasured(
        Verdict.BUILD_FAILED,
        Evidence.NONE,
        detail="sums.cu:4:9: error: 'x', no: %",
        workload=sized("3"),
        **mine,
    )
    theirs = unmeasured(Verdict.WRONG, Evidence.BUILT, author="catalogue", op="relu")
    table = MatrixTable.of([*bad, build, theirs])
    found = ci_annotations.of(table)
    assert [(a.file, a.line, a.cells) for a in found] == [
        ("kernels/sums.cu", 17, 2),
        ("kernels/sums.cu", 4, 1),
    ]
    first, second = ci_annotations.github(found)
    assert first.startswith("::error file=kernels/sums.cu,line=17,title=wrong%3A sum ")
    assert first.endswith("(and 1 more cells)")
    assert second.endswith("::build_failed: " + second.rpartition("::build_failed: ")[2])
    assert "no: %25" in second
    entries = json.loads(ci_annotations.gitlab(table, title="t"))
    assert entries[0]["location"] == {"path": "kernels/sums.cu", "lines": {"begin": 17}}
    assert len({entry["fingerprint"] for entry in entries}) == 2
    report.write([*bad, build], tmp_path, title="t")
    cases = list(ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testcase"))
    assert {(c.get("file"), c.get("line")) for c in cases} == {
        ("kernels/sums.cu", "17"),
        ("kernels/sums.cu", "4"),
    }


#: A path in brackets is not markup, and nothing of this may reach a terminal or a page.
HOSTILE = "/tmp/[bold]/[/red] \x1b]0;title\x07 \x9b2J \u202egnp.exe \u2066a"


def test_a_terminal_and_the_pages_show_text_from_outside_as_text(tmp_path: Path) -> None:
    bad: dict[str, object] = {"timing": None, "speedup": {}}
    bad |= {"verdict": "crashed", "evidence": "none"}
    hostile = make(detail=HOSTILE, missing=HOSTILE, author=HOSTILE, guard=[HOSTILE], **bad)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=300, no_color=True)
    terminal.show(MatrixTable.of([hostile]), console)
    shown = out.getvalue()
    assert "/tmp/[bold]/[/red]" in shown and "<U+202E>gnp.exe <U+2066>a" in shown
    report.write([hostile], tmp_path, title=HOSTILE)
    pages = [(tmp_path / name).read_text() for name in FILES - {"matrix.png"}]
    for text in [*pages, hostile.to_json(), shown]:
        assert not re.search(r"\x1b\]|[\x07\x9b\u202e\u2066]", text)
        assert "\\u202e" not in text
