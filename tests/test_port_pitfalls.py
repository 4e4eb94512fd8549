"""The table of tools beside each other says what was seen of each snippet."""

from __future__ import annotations

import json

from benchmarks import _script, port_pitfalls
from benchmarks.port_pitfalls import Row
from portkern.spec import target as targets


def judged(*rows: Row, hipify: bool = True) -> list[dict[str, str]]:
    return [dict(row.states) for row in port_pitfalls.judged(rows, hipify=hipify)]


def row(kind: port_pitfalls.Kind = "bad", **fields: object) -> Row:
    facts = {"code": "PK003", "number": 1, "file": "kernel.cu", "target": "gfx942", **fields}
    return Row(kind=kind, **facts)  # type: ignore[arg-type]


def test_snippets_become_whole_files_with_what_they_take_for_granted() -> None:
    texts = {snippet.name: snippet.whole for snippet in port_pitfalls.snippets()}
    assert texts["PK046-bad-1"].startswith("#include <cuda_runtime.h>\nstruct Parameters")
    assert texts["PK025-bad-1"].startswith("NVCC_FLAGS")
    assert texts["PK019-good-4"].startswith("#include <hip/hip_runtime.h>")
    assert "PK018-good-3" not in texts, "NVIDIA's own targets are not ports"


def test_a_rejection_is_not_about_the_pitfall_when_a_correct_snippet_has_the_same() -> None:
    bad, good = judged(row(rejected="no 'f' in 12"), row("good", rejected="no 'f' in 7"))
    assert (bad["clang"], good["clang"]) == ("unbuilt", "seen")
    [absent] = judged(row(rejected="rocwmma.hpp is not here", absent=True))
    assert absent["clang"] == "unbuilt"
    [other] = judged(row(rejected="no 'f'"))
    assert (other["clang"], other["hipify-perl or clang"]) == ("seen", "seen")


def test_what_the_translation_mends_is_told_apart_from_what_is_named() -> None:
    mended, named, neither = judged(
        row(gone=True), row(named=("PK003",)), row(gone=True, own_rejected="no 'f'")
    )
    assert [mended["portkern"], named["portkern"], neither["portkern"]] == [
        "mended",
        "seen",
        "seen",
    ]


def test_a_line_is_mended_where_it_or_a_value_in_it_is_another() -> None:
    lines = ["auto m = __ballot(p);", "int n = __popc(m);"]
    text = "\n".join(["__global__ void k(int p, int* y) {", *lines, "*y = n; }"])
    snippet = port_pitfalls.Snippet("PK006", "bad", 1, text, "kernel.cu", targets.load("gfx942"))
    whole = snippet.whole
    assert port_pitfalls.mended(snippet, whole.replace("__popc(m)", "__popcll(m)"))
    assert port_pitfalls.mended(snippet, whole.replace("__ballot(p)", "low(__ballot(p))"))
    assert not port_pitfalls.mended(snippet, whole.replace("*y = n", "y[0] = n"))


def test_columns_of_a_tool_that_is_not_here_are_empty() -> None:
    rows = port_pitfalls.judged([row(named=("PK003",))], hipify=False)
    assert "| hipify-perl |  |  |" in port_pitfalls.summary(rows)
    assert "| portkern | 1 | 0 |" in port_pitfalls.summary(rows)


def test_a_pitfall_is_seen_when_all_its_snippets_are() -> None:
    assert port_pitfalls.verdict(["seen", "seen"]) == "seen"
    assert port_pitfalls.verdict(["seen", "mended"]) == "mended"
    assert port_pitfalls.verdict(["seen", "silent"]) == "in part"
    assert port_pitfalls.verdict(["unbuilt", "silent"]) == "silent"
    assert port_pitfalls.verdict(["unbuilt", "seen"]) == "seen"
    assert port_pitfalls.verdict(["unbuilt", "unread"]) == "unbuilt"
    assert port_pitfalls.verdict([]) == "no text"


def test_the_committed_run_has_every_snippet_and_the_pages_table() -> None:
    path = _script.RESULTS / "port-pitfalls.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    said = {(row["code"], row["kind"], row["number"]) for row in document["snippets"]}
    known = {(s.code, s.kind, s.number) for s in port_pitfalls.snippets()}
    assert len(document["pitfalls"]) == 57
    assert len(said & known) > 0.9 * len(known)
    table = port_pitfalls.summary([Row(**row) for row in document["snippets"]])
    assert table in port_pitfalls.PAGE.read_text(encoding="utf-8")
