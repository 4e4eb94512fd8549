"""A sweep's page in a real browser, and the same as Markdown, CSV, JSON and on a terminal."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from portkern.agent.attempt import Status
from portkern.cli.verbs import report
from portkern.errors import ConfigError
from portkern.experiment.compare import page as views
from portkern.experiment.compare.comparison import ModelComparison, compare
from portkern.experiment.compare.page import category, packed, tidy
from portkern.experiment.compare.page.exchange import Exchanges
from portkern.experiment.compare.page.markdown import MOST_CHARACTERS
from portkern.experiment.compare.page.words import told
from portkern.experiment.compare.result import SampleScope, Venue
from portkern.experiment.compare.sample import Sample
from tests.browser import act, browse, needs_browser
from tests.compare_samples import BITES, SUITED, samples, write_runs

#: Samples are unpacked when they are looked at, which the browser must be given time for.
LATER = ("--virtual-time-budget=10000", "--dump-dom")


@dataclass(frozen=True)
class Sweep:
    folder: Path
    rows: list[Sample]
    comparison: ModelComparison

    @property
    def page(self) -> Path:
        return self.folder / "compare.html"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    rows = samples(ops=SUITED[1::2], n=2)
    write_runs(folder, [row for row in rows if row.op == "softmax"])
    comparison = compare(rows)
    views.write(folder, comparison, rows, title=f"Of three {BITES}", facts={"preset": BITES})
    return Sweep(folder, rows, comparison)


def number_of(rows: list[Sample], **wanted: object) -> int:
    """The number of the first such sample, as the page counts them."""
    same = (all(getattr(row, k) == v for k, v in wanted.items()) for row in rows)
    return list(same).index(True)


@needs_browser
def test_the_page_shows_the_numbers_of_the_comparison(sweep: Sweep) -> None:
    shown = browse(sweep.page, *LATER)
    assert 'data-ready="1"' in shown and 'data-tasks="6"' in shown
    board = shown[shown.index('id="board"') : shown.index("</section>", shown.index('id="board"'))]
    places: tuple[Venue, ...] = ("measured", "emulated")
    for venue in places:
        table = board[board.index(f'data-venue="{venue}"') :]
        table = table[: table.index("</table>")]
        heads = [_plain(head) for head in re.findall("<th scope=.col.*?</th>", table, re.DOTALL)]
        for model in sweep.comparison.models:
            row = next(r for r in re.findall("<tr>.*?</tr>", table, re.DOTALL) if model in r)
            cells = [_plain(cell) for cell in re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL)]
            figure = sweep.comparison.figure(SampleScope(model, venue), "pass", 2)
            value = re.sub(r"[\[\] ,]", "", told(figure))
            assert re.sub("[ ,]", "", cells[heads.index("pass@2")]) == value
            timed = cells[heads.index("fast_1@2")]
            assert timed.startswith("not timed") == (venue == "emulated")


def _plain(html: str) -> str:
    return re.sub("<[^>]+>", "", html)


@needs_browser
def test_a_sample_opens_with_its_prompt_and_reply_and_a_reply_cannot_run(sweep: Sweep) -> None:
    number = number_of(sweep.rows, op="softmax", backend="hip", model="local/small", index=1)
    shown = browse(sweep.page, *LATER, fragment=f"op=softmax:float32&sample={number}")
    panel = shown[shown.index('<aside id="panel"') : shown.index("</aside>")]
    assert "Write softmax for hip on gfx942." in panel
    assert "Sample 1 of local/small: &lt;/script&gt;&lt;script&gt;" in panel
    assert panel.count("data-sample=") == len(sweep.rows) // 6
    assert "data-bitten" not in shown.partition("<main")[0] and "<img" not in shown
    assert 'href="./samples/local-small/softmax-hip-gfx942/1/calls.jsonl"' in panel


@needs_browser
@pytest.mark.full
def test_the_address_filters_the_page(sweep: Sweep) -> None:
    shown = browse(sweep.page, *LATER, fragment="venue=emulated&backend=hip&suite=core&find=gelu")
    assert 'data-tasks="1"' in shown
    assert 'data-venue="emulated"' in shown and 'data-venue="measured"' not in shown
    heat = shown[shown.index('id="heat"') : shown.index("</table>", shown.index('id="heat"'))]
    assert re.findall('<th scope="col">(.*?)<', heat) == ["hip"]


@needs_browser
@pytest.mark.full
def test_what_was_not_timed_is_neither_zero_nor_a_colour_in_the_heat_map(sweep: Sweep) -> None:
    shown = browse(sweep.page, *LATER, fragment="heat=fast:1")
    heat = shown[shown.index('id="heat"') : shown.index("</table>", shown.index('id="heat"'))]
    emulated = heat[heat.index("emulated") :]
    assert emulated.count('class="untimed"') == 9 and "%" not in emulated
    assert 'class="untimed"' not in heat[: heat.index("emulated")]


@needs_browser
@pytest.mark.full
def test_a_path_from_outside_is_not_a_link(sweep: Sweep) -> None:
    paths = ["javascript:alert(1)", "../../etc", "a/../../etc", "/etc", "samples/a/0"]
    script = f"return {json.dumps(paths)}.map((path) => (links(path) ? 1 : 0)).join('')"
    assert act(sweep.page, script) == "00001"


@needs_browser
@pytest.mark.full
def test_results_without_evidence_tokens_or_prices_make_a_page(tmp_path: Path) -> None:
    unknown = {"evidence": "", "tokens_in": None, "tokens_out": None, "usd": None, "path": ""}
    unknown |= {"seconds": None, "speedup": None, "efficiency": None, "us": None, "heldout": None}
    rows = [row.model_copy(update=unknown) for row in samples(n=2)]
    comparison = compare(rows)
    views.write(tmp_path, comparison, rows)
    shown = browse(tmp_path / "compare.html", *LATER, fragment="op=softmax:float32&sample=3")
    assert 'data-venue=""' in shown and "evidence not known" in shown
    assert re.search('id="s-cost"[^>]*hidden', shown)
    assert "prompt and reply were not kept" in shown
    assert "fast_1@2" not in views.summary(comparison) or "not timed" in views.summary(comparison)


@needs_browser
@pytest.mark.full
def test_on_a_phone_nothing_is_wider_than_the_screen(sweep: Sweep) -> None:
    number = number_of(sweep.rows, op="softmax")
    text = sweep.page.read_text(encoding="utf-8")
    size = "[document.documentElement.scrollWidth, innerWidth].join(' ')"
    measure = f"setInterval(() => {{ document.body.dataset.result = {size}; }}, 100)"
    phone = sweep.folder / "phone.html"
    phone.write_text(text.replace("</body>", f"<script>{measure}</script></body>"))
    for fragment in ("", f"op=softmax:float32&sample={number}"):
        shown = browse(phone, "--window-size=500,900", *LATER, fragment=fragment)
        found = re.search(r'data-result="(\d+) (\d+)"', shown)
        assert found is not None
        assert int(found[1]) <= int(found[2])


@needs_browser
@pytest.mark.full
def test_a_heading_sorts_and_a_filter_is_in_the_address(sweep: Sweep) -> None:
    script = """
      const table = document.querySelector('#board table');
      const heads = [...table.querySelectorAll('thead th')];
      const at = heads.findIndex((th) => th.textContent === 'tokens per solved task');
      const first = () => table.tBodies[0].rows[0].cells[0].textContent;
      heads[at].firstChild.click(); const down = first(); heads[at].firstChild.click();
      document.querySelector('[data-filter="venue"][data-option="measured"]').click();
      return `${down} ${first()} ${location.hash}`;
    """
    said = act(sweep.page, script).split()
    assert said[0] == "local/small" and said[1] != said[0] and said[2] == "#venue=measured"


def test_texts_keep_to_their_room_and_have_the_first_sample_of_each_task_first(
    sweep: Sweep,
) -> None:
    whole = packed.texts(sweep.rows, sweep.folder, room=10**6)
    kept, prompts = whole["samples"], whole["prompts"]
    softmax = [str(i) for i, row in enumerate(sweep.rows) if row.op == "softmax"]
    assert isinstance(kept, dict) and isinstance(prompts, list)
    assert sorted(kept, key=int) == softmax
    assert len(prompts) == 6  # one for each place: models and samples share it
    size = sum(map(len, [*prompts, *kept.values()]))
    half = packed.texts(sweep.rows, sweep.folder, room=size // 2)
    less = half["samples"]
    assert isinstance(less, dict) and 0 < len(less) < len(kept)
    assert all(sweep.rows[int(number)].index == 0 for number in less)
    assert len(json.dumps(half)) <= size // 2


def test_prompts_that_are_not_quoted_are_told_apart_by_their_digests(sweep: Sweep) -> None:
    asked = Exchanges(sweep.folder)
    [call] = next(one.calls for row in sweep.rows if (one := asked.of(row)))
    quoted, told = (
        packed.texts(sweep.rows, sweep.folder, room=10**6, quoted=quoted)
        for quoted in (True, False)
    )
    assert told["samples"] == quoted["samples"]
    prompts = told["prompts"]
    assert isinstance(prompts, list) and len(prompts) == 6
    texts = [json.loads(gzip.decompress(base64.b64decode(str(one)))) for one in prompts]
    first = call.messages[0].content
    digest = hashlib.sha256(first.encode()).hexdigest()
    assert any(f"{len(first)} characters, sha256 {digest}" in text[0][1] for text in texts)
    assert not any(first in said for text in texts for _, said in text)


def test_exchanges_are_read_below_the_sweeps_folder_alone(tmp_path: Path) -> None:
    sweep, outside = tmp_path / "sweep", tmp_path / "outside"
    [row] = samples(n=1)[:1]
    write_runs(outside, [row])
    write_runs(sweep, [row])
    other = row.model_copy(update={"path": f"../outside/{row.path}"})
    torn = row.model_copy(update={"path": "torn"})
    (sweep / "torn").mkdir()
    (sweep / "torn" / "attempts.jsonl").write_text("no JSON\n")
    exchanges = Exchanges(sweep)
    found = exchanges.of(row)
    assert found is not None and BITES in found.calls[0].reply
    assert exchanges.of(other) is None and exchanges.of(torn) is None


def test_the_csv_has_a_row_for_each_number_and_no_formula(tmp_path: Path) -> None:
    rows = [row.model_copy(update={"model": "=1+1"}) for row in samples(("a",), n=1)]
    comparison = compare(rows)
    views.write(tmp_path, comparison, rows)
    with (tmp_path / "compare.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(comparison.figures)
    assert {line["model"] for line in lines} == {"'=1+1"}
    for line, figure in zip(lines, comparison.figures, strict=True):
        assert (line["value"] == "") == (figure.estimate is None)
        assert line["value"] or line["reason"]
        if figure.estimate:
            assert float(line["value"]) == figure.estimate.value
            assert (line["low"] == "") == (figure.estimate.ci95 is None)


def test_the_markdown_fits_a_comment_and_shows_names_literally(tmp_path: Path) -> None:
    models = [f"lab/*model* |{number}| <b>" for number in range(12)]
    rows = samples(models, ops=(("", "relu"), ("", "softmax")), n=1)
    views.write(tmp_path, compare(rows), rows)
    text = (tmp_path / "compare.md").read_text(encoding="utf-8")
    assert 1000 < len(text) < MOST_CHARACTERS + 100
    assert "<b>" not in text and "|0|" not in text
    assert r"lab/\*model\* &#124;0&#124; &lt;b&gt;" in text


def test_a_summary_says_what_is_shown_in_twenty_lines(sweep: Sweep) -> None:
    lines = views.summary(sweep.comparison, ["the budget ended it"] * 30).splitlines()
    assert len(lines) == 20 and "more lines" in lines[-1]
    few = samples(("lab/strong", "lab/middling"), ops=(("", "relu"), ("", "gelu")), n=1)
    assert "no difference shown" in views.summary(compare(few))
    assert "not timed" in views.summary(compare(few))


def test_equal_samples_make_equal_files(sweep: Sweep, tmp_path: Path) -> None:
    few = samples(n=1)[:30]
    for name in ("a", "b"):
        views.write(tmp_path / name, compare(few), few, title="t")
    for name in ("compare.html", "compare.md", "compare.csv", "compare.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_report_writes_a_sweeps_views_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "sweep"
    rows = samples(ops=SUITED[:2], n=1)
    write_runs(folder, rows)
    (folder / "samples.jsonl").write_text("".join(f"{row.to_json()}\n" for row in rows))
    sources = {row.digest: f"// kernel {row.index} of {row.model}\n" for row in rows}
    views.write(folder, compare(rows, sources=sources), rows, title="mine", facts={"spent": "5"})
    names = ("compare.html", "compare.md", "compare.csv", "compare.json")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names[:3]:
        (folder / name).unlink()
    assert report.main(["sweep"]) == 0
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert "report: reports/sweep/compare.html" in capsys.readouterr().out
    (folder / "samples.jsonl").write_text(f"{rows[0].to_json()}\n" * 2)
    with pytest.raises(ConfigError, match=r"samples.jsonl: Sample 0 of .* is there twice"):
        report.main(["sweep"])


@needs_browser
@pytest.mark.full
def test_a_page_of_75000_samples_is_made_quickly_and_opens(tmp_path: Path) -> None:
    """5 models, 250 operators, 6 backends, 10 samples."""
    ops = [(f"kernelbench/level{k % 3 + 1}", f"{k:03}_an_operator") for k in range(250)]
    rows = samples([f"lab/model-{k}" for k in range(5)], ops, n=10)
    comparison = compare(rows)
    write_runs(tmp_path, rows[:60], reply="int x;\n" * 500)
    start = time.process_time()
    views.write(tmp_path, comparison, rows)
    took_s = time.process_time() - start
    page = tmp_path / "compare.html"
    assert len(rows) == 75_000 and took_s < 30
    assert page.stat().st_size <= 10 << 20
    shown = browse(page, *LATER, fragment="op=001_an_operator:float32&sample=30")
    panel = shown[shown.index('<aside id="panel"') : shown.index("</aside>")]
    assert panel.count("data-sample=") == 300
    assert "Write 001_an_operator for cuda on h200." in panel


def test_a_table_by_category_and_backend_has_the_form_of_multikernelbench(tmp_path: Path) -> None:
    """Three categories of two operators each, on two backends of which one is emulated."""

    def sample(model: str, backend: str, suite: str, op: int) -> Sample:
        strong, measured = model == "m|x", backend == "cuda"
        right = suite == "activation" if not strong else suite != "loss" and op < 1 + measured
        known = Sample(
            model=model,
            op=f"{suite}{op}",
            suite=f"mkb/{suite}",
            backend=backend,
            target="h200" if measured else "gfx942",
            index=0,
            status=Status.PASSED,
            evidence="measured" if measured else "emulated",
            speedup=2.0 if measured else None,
        )
        wrong = {"status": Status.BUILD_FAILED, "evidence": "", "speedup": None}
        return known if right else known.model_copy(update=wrong)

    rows = [
        sample(model, backend, suite, op)
        for model in ("m|x", "weak")
        for backend in ("cuda", "hip")
        for suite in ("activation", "loss", "matmul")
        for op in (0, 1)
    ]
    (tmp_path / "compare.csv").write_text(tidy.render(compare(rows)), encoding="utf-8")
    numbers = "| Comp@1 | Pass@1 | SU1@1 | Comp@1 | Pass@1 | SU1@1 |"
    assert category.table(tmp_path).splitlines() == [
        "| Models | cuda (%) |  |  | hip (%) |  |  | Total Pass (#) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        f"|  {numbers}  |",
        r"| m\|x | 66.7 | 66.7 | 66.7 | 33.3 | 33.3 | – | 6 |",
        "| weak | 33.3 | 33.3 | 33.3 | 33.3 | 33.3 | – | 4 |",
        "",
        "cuda, by category:",
        "",
        r"| Categories | m\|x (%) |  |  | weak (%) |  |  | Avg Pass@1 (%) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        f"|  {numbers}  |",
        "| activation | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0 |",
        "| matmul | 100.0 | 100.0 | 100.0 | 0.0 | 0.0 | 0.0 | 50.0 |",
        "| Others | All Pass@1 = 0.0 |  |  |  |  |  | 0.0 |",
        "",
        "hip, by category:",
        "",
        r"| Categories | m\|x (%) |  |  | weak (%) |  |  | Avg Pass@1 (%) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        f"|  {numbers}  |",
        "| activation | 50.0 | 50.0 | – | 100.0 | 100.0 | – | 75.0 |",
        "| matmul | 50.0 | 50.0 | – | 0.0 | 0.0 | – | 25.0 |",
        "| Others | All Pass@1 = 0.0 |  |  |  |  |  | 0.0 |",
    ]
    with pytest.raises(ConfigError, match="no numbers at k=5; it has k=1"):
        category.table(tmp_path, 5)
