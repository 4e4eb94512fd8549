"""matrix.html in a real browser: what its script makes of the data, without a network."""

from __future__ import annotations

import math
import re
import runpy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scale
from portkern.records.record import Evidence, Record
from portkern.regression.comparison import CellChange
from portkern.regression.document import RunChanges
from portkern.regression.rule import ChangeKind
from portkern.regression.series import Series
from portkern.report import html
from portkern.report.table import MatrixTable
from tests.browser import act, browse, dom, needs_browser

records: Callable[[], list[Record]] = runpy.run_path(
    str(Path(__file__).with_name("report_records.py"))
)["records"]

pytestmark = needs_browser


@pytest.fixture(scope="module")
def table() -> MatrixTable:
    return MatrixTable.of(records())


@pytest.fixture(scope="module")
def page(table: MatrixTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "matrix.html"
    path.write_text(html.render(table, title="nightly <b>&"), encoding="utf-8")
    return path


def test_the_grid_agrees_with_the_table(page: Path, table: MatrixTable) -> None:
    shown = dom(page)
    assert 'data-ready="1"' in shown
    assert 'data-records="702"' in shown
    cells = _cells(shown)
    possible = {key: c for key, c in table.cells.items() if key[1] in table.supported}
    assert len(cells) == len(possible)
    for (op, column), cell in possible.items():
        text = cells[f"{op}:{column}"]
        if cell.verdict.bad:
            assert str(cell.verdict).replace("_", " ") in text
        elif cell.speedup is not None:
            assert str(cell.speedup) in text
        elif cell.evidence is not Evidence.NONE:
            assert str(cell.evidence) in text


def test_the_cards_count_what_the_records_show(page: Path, table: MatrixTable) -> None:
    found = Counter(r.evidence for r in table.records if not r.verdict.bad)
    between = (Evidence.EMULATED, Evidence.EXECUTED, Evidence.VERIFIED)
    shown = {b: a for a, b in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", dom(page))}
    assert found[Evidence.MEASURED] and shown["measured"] == str(found[Evidence.MEASURED])
    assert shown["verified, executed or emulated"] == str(sum(found[one] for one in between))


def _cells(shown: str) -> dict[str, str]:
    buttons = re.findall(r'<button[^>]*data-key="([^"]+)"[^>]*>(.*?)</button>', shown, re.DOTALL)
    return {key: re.sub("<[^>]+>", "", inner) for key, inner in buttons}


def test_the_address_filters_the_matrix(page: Path) -> None:
    shown = dom(page, "backend=cuda&dtype=float32&set=typical")
    assert 'data-records="54"' in shown  # 3 targets, 9 ops, 2 sizes
    assert {key.partition(":")[2] for key in _cells(shown)} == {
        "cuda@h200",
        "cuda@sm_80",
        "cuda@sm_100",
    }
    assert re.search(r'data-filter="backend=cuda" aria-pressed="true"', shown)


def test_the_address_opens_a_cell_with_its_records_and_curve(page: Path) -> None:
    shown = dom(page, "cell=matmul:cuda@h200")
    panel = shown[shown.index('<aside id="panel"') : shown.index("</aside>")]
    assert "matmul on cuda@h200" in panel
    assert "6 workloads" in panel
    assert panel.count("<circle") > 20
    assert "max error 0.31" in panel


@pytest.mark.full
def test_the_panel_shows_what_a_cell_was_in_earlier_runs(
    table: MatrixTable, tmp_path: Path
) -> None:
    cell = next(r for r in table.records if r.op == "relu" and r.target == "h200" and r.timing)
    moved = CellChange(
        Series.of(cell), ChangeKind.SLOWER, "+31 % against eager", recent=(1.0, 0.98, 1.02, 1.31)
    )
    path = tmp_path / "matrix.html"
    changes = RunChanges("monday", "tuesday", [moved])
    path.write_text(html.render(replace(table, changes=changes), title="t"), encoding="utf-8")
    shown = dom(path, f"cell=relu:{table.column(cell)}")
    panel = shown[shown.index('<aside id="panel"') : shown.index("</aside>")]
    assert "Since earlier runs" in panel
    assert "1.00×, 0.98×, 1.02×, 1.31×" in panel and "+31 % against eager" in panel
    assert "Since earlier runs" not in dom(path, "cell=gelu:cuda@h200").partition("<script")[0]


def test_an_opened_cell_has_its_operators_roofline_too(page: Path) -> None:
    shown = dom(page, "cell=relu:cuda@h200")
    assert "Share of the roofline of relu over size" in shown
    assert re.search(r"<title>cuda@h200 \w+ [^<]*: \d+ % of the bound by ", shown)
    emulated = dom(page, "backend=hip&find=gfx942&cell=relu:hip@gfx942")
    assert "<h3>Share of the roofline" not in emulated and "<h3>Share of the roofline" in shown


def test_portability_counts_targets_and_takes_the_harmonic_mean(
    page: Path, table: MatrixTable
) -> None:
    shown = dom(page, "find=relu")
    start = shown.index('<table id="portability"')
    part = shown[start : shown.index("</table>", start)]
    rows = [re.sub("<[^>]+>", " ", row).split() for row in part.split("<tr")[2:]]
    by_tool = {row[row.index("plain") + 1] if "plain" in row else row[1]: row for row in rows}
    shares = [
        record.roofline.fraction
        for record in table.records
        if record.op == "relu" and record.backend == "triton" and record.target == "h200"
        if record.timing and record.comparable and record.roofline and record.roofline.fraction
    ]
    efficiency = math.exp(math.fsum(map(math.log, shares)) / len(shares))
    triton = " ".join(by_tool["triton"])
    assert "1 measured" in triton and "1 emulated" in triton
    assert triton.endswith(f"{efficiency:.2f} not known")
    assert "with failures" not in triton
    failing = dom(page, "find=transpose")
    assert "1 with failures" in failing[failing.index('<table id="portability"') :]


def test_a_products_name_finds_its_architectures_evidence(page: Path) -> None:
    shown = dom(page, "find=mi300x")
    assert {key.partition("@")[2] for key in _cells(shown)} == {"gfx942"}
    assert (
        "AMD Instinct MI300X (mi300x) is gfx942: what is shown was found for gfx942, not on that "
        "product." in shown
    )
    assert "Nothing matches" in dom(page, "find=mi9999")


def test_the_panel_of_a_cell_shows_its_build_and_how_to_run_it_again(page: Path) -> None:
    shown = dom(page, "cell=relu:hip@gfx942")
    panel = shown[shown.index('<aside id="panel"') : shown.index("</aside>")]
    assert "portkern matrix ops=relu backends=hip targets=gfx942" in panel
    assert "VGPRs" in panel and "LDS" in panel


@pytest.mark.full
def test_no_mean_is_taken_over_backends(page: Path) -> None:
    assert "geomean vs eager" not in dom(page)[: dom(page).index('id="filters"')]
    one = dom(page, "find=cuda@h200")
    assert "geomean vs eager" in one[: one.index('id="filters"')]


def test_text_from_the_records_never_becomes_markup(page: Path) -> None:
    shown = dom(page, "cell=matmul:cuda@h200")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert shown.count("<script") == 2
    assert "<h1>nightly &lt;b&gt;&amp;</h1>" in shown


def test_the_matrix_works_from_the_keyboard(page: Path) -> None:
    script = """
      const press = (key) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      const seen = [];
      document.querySelector('.cell[tabindex="0"]').focus();
      seen.push(document.activeElement.dataset.key, document.getElementById("tip").hidden);
      press("ArrowRight"); press("ArrowDown");
      seen.push(document.activeElement.dataset.key);
      document.activeElement.click();
      seen.push(document.getElementById("panel").hidden, document.activeElement.id, location.hash);
      press("Escape");
      seen.push(document.getElementById("panel").hidden, document.activeElement.dataset.key);
      return seen.join(" ");
    """
    assert act(page, script) == (
        "relu:cuda@h200 false gelu:hip@h200 false panel #cell=gelu:hip@h200 true gelu:hip@h200"
    )


def test_the_resource_table_sorts_by_a_heading(page: Path) -> None:
    script = """
      const table = document.getElementById("resources");
      const heads = [...table.querySelectorAll("th")];
      const heading = heads.findIndex((th) => th.textContent === "Spills");
      const first = () => table.tBodies[0].rows[0].cells[heading].textContent;
      const click = () => heads[heading].firstChild.click();
      click(); const down = first(); click();
      return `${down} ${first()} ${heads[heading].getAttribute("aria-sort")}`;
    """
    assert act(page, script) == "8 0 ascending"


def test_unsupported_pairs_are_shown_on_request(page: Path) -> None:
    assert "cuda@gfx942" in {key.partition(":")[2] for key in _cells(dom(page, "unsupported=1"))}


def test_clearing_a_filter_brings_everything_back(page: Path) -> None:
    script = """
      const chip = document.querySelector('[data-filter="dtype=bfloat16"]');
      const count = () => document.body.dataset.records;
      chip.click(); const filtered = `${count()} ${location.hash}`; chip.click();
      return `${filtered} ${count()} [${location.hash}]`;
    """
    assert act(page, script) == "351 #dtype=bfloat16 702 []"


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Path) -> None:
    script = "return [document.documentElement.scrollWidth, innerWidth].join(' ')"
    acted = page.with_name("phone.html")
    text = page.read_text(encoding="utf-8")
    run = f"<script>document.body.dataset.result = (() => {{ {script} }})();</script></body>"
    acted.write_text(text.replace("</body>", run), encoding="utf-8")
    for fragment in ("", "cell=relu:cuda@h200"):
        shown = browse(acted, "--window-size=500,900", "--dump-dom", fragment=fragment)
        failures = shown[shown.index('id="failures"') :]
        assert 'class="plain stacked"' in failures[:80], "each failure is a card"
        found = re.search(r'data-result="(\d+) (\d+)"', shown)
        assert found is not None
        assert int(found[1]) <= int(found[2])


@pytest.mark.full
def test_a_page_of_five_thousand_cells_is_small_and_quickly_drawn(tmp_path: Path) -> None:
    """The page has as many cells as a nightly has, with the builds and findings of each."""
    path = tmp_path / "matrix.html"
    path.write_text(
        html.render(MatrixTable.of(scale.cells(5_000)), title="night"), encoding="utf-8"
    )
    assert path.stat().st_size < 2 << 20
    script = """
      const [paint] = performance.getEntriesByType("navigation");
      return Math.round(performance.now() - paint.startTime);
    """
    assert int(act(path, script)) < 5_000  # a second on a machine with nothing else to do


@pytest.mark.full
def test_light_and_dark_are_both_drawn(page: Path, tmp_path: Path) -> None:
    pictures = []
    for name, scheme in (("light", 1), ("dark", 0)):
        shot = tmp_path / f"{name}.png"
        preference = f"--blink-settings=preferredColorScheme={scheme}"
        browse(page, preference, "--window-size=1400,900", f"--screenshot={shot}")
        pictures.append(shot.read_bytes())
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 30_000 for picture in pictures)
    assert pictures[0] != pictures[1]
