"""SARIF of a port: its structure, relative names, lines of the original, and strangers' text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from portkern.cli import main
from portkern.port import sarif
from portkern.port.kernel_port import HazardLine, KernelPort, ProofLine
from portkern.port.result import FileResult, PortResult

VOTES = """__global__ void votes(unsigned* x) {
  asm volatile("bar.sync %0, 64;" :: "r"(1));
  x[0] = 1;
}
"""


def run_of(document: dict[str, Any]) -> dict[str, Any]:
    """The one run, whose structure is SARIF's."""
    assert document["version"] == "2.1.0" and set(document) == {"$schema", "version", "runs"}
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "portkern" and driver["version"]
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("note", "warning", "error")
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        uri = place["artifactLocation"]["uri"]
        assert uri.isascii() and not uri.startswith("/") and ":" not in uri and " " not in uri
        assert place.get("region", {"startLine": 1})["startLine"] >= 1
    return dict(run)


def linted(folder: Path, file: Path) -> dict[str, Any]:
    main.run(["port", str(folder), "lint=only", f"sarif={file}", f"reports={folder.parent / 'r'}"])
    return run_of(json.loads(file.read_text()))


@pytest.mark.parametrize("name", ["votes.cu", "a b/vo [t](x) %2e é.cu"])
def test_hazards_are_at_their_lines_of_the_file_as_it_is_in_the_checkout(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "lib" / name
    source.parent.mkdir(parents=True)
    source.write_text(VOTES)  # the port has a further line before it, for an include
    monkeypatch.chdir(tmp_path)
    run = linted(tmp_path / "lib", tmp_path / "found.sarif")
    (found,) = [result for result in run["results"] if result["ruleId"] == "PK019"]
    place = found["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == f"lib/{name}"
    assert place["region"] == {"startLine": 2}
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


def test_a_library_elsewhere_has_names_from_its_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "lib" / "votes.cu").write_text(VOTES)
    monkeypatch.chdir(tmp_path / "here")
    text = json.dumps(linted(tmp_path / "lib", tmp_path / "found.sarif"))
    assert '"uri": "votes.cu"' in text and str(tmp_path) not in text


def test_a_strangers_text_is_neither_link_nor_placeholder_nor_control(tmp_path: Path) -> None:
    message = "see [here](http://evil) {0}\x1b[31m \u202e \\"
    port = KernelPort(
        key="k",
        path="k.cu",
        line=3,
        kernel="k",
        target="gfx942",
        width=64,
        not_built=message,
        hazards=(HazardLine(code="PK019", severity="error", message=message, line=4),),
        proof=ProofLine(outcome="wrong", why=message),
    )
    files = (FileResult("k.cu", 1, 0, lines={3: 2, 4: 3}), FileResult("x.cu", 0, 0, (), message, 0))
    result = PortResult("lib", tmp_path, tmp_path, "hip", ("gfx942",), files, (port,))
    run = run_of(json.loads(json.dumps(sarif.document(result, 1))))
    texts = [found["message"]["text"] for found in run["results"]]
    assert len(texts) == 3
    for text in texts:
        assert "\\[here\\](http://evil) {{0}}" in text and text.endswith("\\\\")
        assert text.isprintable()
    lines = [f["locations"][0]["physicalLocation"].get("region") for f in run["results"]]
    assert lines == [None, {"startLine": 3}, {"startLine": 2}]


def test_a_file_that_cannot_be_written_is_said_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "votes.cu").write_text(VOTES)
    file = tmp_path / "absent" / "found.sarif"
    assert main.run(["port", str(tmp_path / "votes.cu"), "lint=only", f"sarif={file}"]) == 2
    assert "its folder is not there" in capsys.readouterr().err
