"""How a command ends: its exit code, one line that says why, and text that a terminal may have."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portkern.cells.selection import host_targets
from portkern.cli import main
from portkern.cli.config import resolve
from portkern.cli.ranges import RANGES
from portkern.cli.verbs import doctor
from portkern.printable import printable
from portkern.report import coverage
from portkern.report.table import MatrixTable
from portkern.sandbox import session
from portkern.sandbox.jail import Layers

from .report_records import make

HOST = host_targets()[0]
PORTKERN = f"{sys.executable} -m portkern.cli"
NUMERIC = [
    (verb, field.name)
    for verb in main.VERBS
    for field in dataclasses.fields(
        getattr(
            importlib.import_module(f"portkern.cli.verbs.{verb}"), f"{verb.capitalize()}Options"
        )
    )
    if str(field.type) in ("int", "float", "int | None", "float | None")
]
REQUIRED = {
    "check": ["op=relu", "backend=cpu", "source=x.cpp"],
    "generate": ["op=relu"],
    "experiment": ["name=search"],
    "tune": ["ops=relu"],
    "run": ["source=x.cu"],
}


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


# ---- numbers


def test_there_are_numeric_options() -> None:
    assert {("matrix", "rounds"), ("check", "budget_s"), ("run", "timeout_s")} <= set(NUMERIC)


@pytest.mark.sampled("verb")
@pytest.mark.parametrize(("verb", "name"), NUMERIC)
def test_a_number_out_of_its_range_is_a_usage_error(
    verb: str, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a range, and what the help says of it is what is checked."""
    monkeypatch.setattr(session.ForkServer, "begin", lambda _: False)  # none is needed, five times
    allowed = RANGES[name]
    for value in ("-1", "nan", "inf", "-inf", "1e300"):
        if value == "1e300" and float(value) in allowed:
            continue
        assert main.run([verb, *REQUIRED.get(verb, []), f"{name}={value}"]) == 2, value
        error = capsys.readouterr().err
        assert error.startswith("portkern: error: ") and error.count("\n") == 1, error
    assert main.run([verb, "--help"]) == 0
    assert f"{name} {allowed}" in " ".join(capsys.readouterr().out.replace("#", "").split())


@pytest.mark.parametrize("override", ["budget.usd=nan", "budget.attempts=-1", "strategy.turns=inf"])
def test_a_number_of_a_group_is_finite_and_in_its_range(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["generate", "op=relu", "target=x86_64", override]) == 2
    assert f"Got {override}" in capsys.readouterr().err


# ---- places


@pytest.mark.parametrize("reports", ["file", "file/below"])
def test_a_file_where_a_folder_is_expected_is_a_usage_error(
    reports: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    argv = ["matrix", "ops=relu", "targets=gfx942", "backends=cpu", "track=false", "run=a"]
    assert main.run([*argv, f"reports={tmp_path / reports}"]) == 2
    assert f"{tmp_path / 'file'} is a file; expected a folder" in capsys.readouterr().err


def test_a_place_that_cannot_be_used_is_not_a_defect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / "records.jsonl").mkdir(parents=True)
    assert main.run(["report", "run", f"reports={tmp_path}"]) == 3
    error = capsys.readouterr().err
    assert f"Cannot use {tmp_path / 'run' / 'records.jsonl'}: Is a directory" in error
    assert error.count("\n") == 1


# ---- streams


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"{PORTKERN} --help | head -c 1 > /dev/null", 0),
        (f"{PORTKERN} matrix --help >&-", 0),
        (f"{PORTKERN} --help > /dev/full", 3),
        (f"{PORTKERN} matrx >&- 2>&-", 2),
    ],
)
def test_a_stream_that_is_gone_changes_no_exit_code(command: str, code: int) -> None:
    done = shell(command)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_an_ascii_terminal_gets_a_replacement() -> None:
    code = "from portkern.cli import streams; streams.prepare(); print('2.5\\u00d7 in 3 \\u00b5s')"
    done = shell(f"{sys.executable} -c {code!r}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "2.5? in 3 ?s\n")


# ---- defects


def test_a_defect_is_one_line_that_says_where_the_traceback_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise KeyError("sk-verysecret \x1b[31m")

    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SERVICE_API_KEY", "sk-verysecret")
    monkeypatch.setattr(doctor, "main", fail)
    assert main.run(["doctor"]) == 4
    error = capsys.readouterr().err
    [kept] = (tmp_path / "crash").iterdir()
    assert error.startswith("portkern: defect: KeyError: ") and error.count("\n") == 1
    assert str(kept) in error
    text = kept.read_text()
    assert "Traceback" in text and "raise KeyError" in text
    assert "verysecret" not in text + error and "\x1b" not in error


def test_a_defect_whose_traceback_cannot_be_kept_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(doctor, "main", lambda _: 1 // 0)
    assert main.run(["doctor"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_the_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{code} {meaning}" in text for code, meaning in main.EXIT_CODES.items())


# ---- text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[1;31merror\x1b[0m", "error"),
        ("\x9b31merror\x9bm", "error"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d52;c;aGk=\x9ca", "a"),
        ("\x1bPq#0\x1b\\a", "a"),
        ("\x1b]0;never ended\nthe error", "0;never ended\nthe error"),
        ("\x1b(Ba\x1bMb\x1b", "ab"),
        ("a\x00\x08\x0b\x7f\x85b\r\nc", "ab\nc"),
        ("if (x) \u202e/* \u2066", "if (x) <U+202E>/* <U+2066>"),
        ("µ × 日本", "µ × 日本"),
    ],
)
def test_text_from_outside_holds_no_control_characters(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_every_range_is_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    used = {name for _, name in NUMERIC} | {"seeds"}
    assert {name for name in RANGES if "." not in name} == used
    assert resolve("matrix", _matrix(), ["rounds=1"]).rounds == 1


def _matrix() -> type:
    from portkern.cli.verbs.matrix import MatrixOptions

    return MatrixOptions


def test_doctor_says_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    able: doctor.Abilities = {
        "build": "no tool; pip install 'portkern[hip]'", "emulate": False, "emulate_missing": "",
        "execute": False, "execute_missing": "",
        "run": False, "run_missing": "[/red] \x1b[2J\u202e",
    }  # fmt: skip
    examined: doctor.Examined = {
        "toolchain": {"a[b]": "[dim]"},
        "terms": {},
        "targets": {"gfx942": able},
    }
    doctor._print(doctor._machine(), Layers(frozenset(), {"seccomp": "[x]"}), {"hip": examined})
    shown = " ".join(capsys.readouterr().out.split())
    assert "pip install 'portkern[hip]'" in shown and "a[b] [dim]" in shown and "[/red]" in shown
    assert "seccomp" in shown and "[x]" in shown and "\x1b" not in shown and "<U+202E>" in shown


# ---- coverage


def test_a_backend_that_was_named_and_ran_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["matrix", "ops=relu", f"targets={HOST}", "backends=[cpu,opencl]", "run=a"]
    built = ["venue=emulator", "track=false"]  # where a busy machine cannot make it suspicious
    assert main.run([*argv, *built, f"reports={tmp_path}"]) == 0
    error = capsys.readouterr().err
    reason = f"opencl does not compile for {HOST}"
    assert f"portkern: warning: nothing ran by opencl for {HOST}: {reason}\n" in error
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["uncovered"] == [{"backend": "opencl", "targets": [HOST], "reason": reason}]


def test_nothing_but_what_cannot_run_exits_3_with_the_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["matrix", "ops=relu", "targets=[gfx942,gfx90a]", "backends=[cpu]", "run=a"]
    assert main.run([*argv, "track=false", f"reports={tmp_path}"]) == 3
    error = capsys.readouterr().err
    assert error.count("portkern: warning: nothing ran by cpu for gfx90a gfx942: ") == 1


@pytest.mark.parametrize(
    ("backends", "targets", "told"),
    [
        ([], [], []),
        (["cpu"], [], []),
        (["cuda"], [], [("cuda", ("gfx942", "x86_64"))]),
        (["cpu", "cuda"], [], [("cuda", ("gfx942", "x86_64"))]),
        (["cpu"], ["x86_64", "gfx942"], [("cpu", ("gfx942",)), ("cuda", ("gfx942",))]),
        ([], ["gfx942"], [("cpu", ("gfx942",)), ("cuda", ("gfx942",))]),
        ([], ["x86_64"], []),
    ],
)
def test_only_what_was_asked_by_name_is_missed(
    backends: list[str], targets: list[str], told: list[tuple[str, tuple[str, ...]]]
) -> None:
    no: dict[str, object] = {
        "verdict": "unsupported",
        "evidence": "none",
        "timing": None,
        "speedup": {},
    }
    records = [
        make(backend="cpu", target="x86_64"),
        *(
            make(backend=backend, target=where, missing=f"no {where}", **no)
            for backend, where in (("cpu", "gfx942"), ("cuda", "x86_64"), ("cuda", "gfx942"))
        ),
    ]
    gaps = coverage.asked(MatrixTable.of(records), backends=backends, targets=targets)
    assert sorted((gap.backend, gap.targets) for gap in gaps) == told
