"""Constraints that people put on a kernel: read from a file, told to authors, and enforced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.agent.constraints import ConstraintRule, Constraints, Most, without_comments
from portkern.errors import ConfigError
from portkern.records.record import BuildResources
from tests import report_records

EVERYTHING = """
must:
  - {pattern: __shfl, why: reduce within the wave}
never: [atomicAdd, {pattern: '\\basm\\b'}]
pinned: ["#define LAYOUT 3"]
precision: strict
resources: {registers: 128, shared_bytes: 49152, spills: 0, threads: 512}
advice: [prefer one pass over the rows]
"""
GOOD = "#define LAYOUT   3  \nint relu() { return __shfl(1); }\n"
OPENCL = '''WG = 256

SOURCE = r"""
kernel void relu(global float* x) {{
  {line}
}}
"""


def relu(queue, program, x, y, *, n):
    """Enqueues it, {said}."""
    program.relu(queue, (n,), None, x, y)  # {noted}
'''


def read(folder: Path, text: str) -> Constraints:
    path = folder / "constraints.yaml"
    path.write_text(text, encoding="utf-8")
    return Constraints.read(path)


def opencl(line: str = "", said: str = "", noted: str = "") -> str:
    return OPENCL.format(line=line, said=said, noted=noted)


# ---- the file


def test_a_file_of_everything_is_read_and_told(tmp_path: Path) -> None:
    constraints = read(tmp_path, EVERYTHING)
    assert constraints.lines == [
        "The source must contain: __shfl (reduce within the wave)",
        "The source must not contain: atomicAdd",
        r"The source must not contain: \basm\b",
        "Keep this line as it is: #define LAYOUT 3",
        "Use at most 128 registers per thread",
        "Use at most 49152 bytes of shared memory per block",
        "Use at most 0 spills per thread",
        "Use at most 512 threads per block",
        "Precision: strict",
        "prefer one pass over the rows",
    ]


def test_one_rule_needs_no_list_and_nothing_is_not_a_rule(tmp_path: Path) -> None:
    constraints = read(tmp_path, "never: atomicAdd\nmust: {pattern: a}\npinned: x\nadvice:\n")
    assert constraints.never == (ConstraintRule(pattern="atomicAdd"),)
    assert constraints.must == (ConstraintRule(pattern="a"),)
    assert constraints.pinned == ("x",) and constraints.advice == ()


def test_nothing_asked_is_nothing_told() -> None:
    constraints = Constraints()
    assert constraints.lines == []
    assert constraints.broken_by("anything", "cuda") == []


def test_what_was_read_is_the_same_after_json(tmp_path: Path) -> None:
    constraints = read(tmp_path, EVERYTHING)
    assert Constraints.model_validate_json(constraints.model_dump_json()) == constraints


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got nothing, expected keys such as never:"),
        ("- never", "got a list, expected keys such as never:"),
        ("nevr: [a]", "No constraint 'nevr'; did you mean 'never'"),
        ("1: [a]", "No constraint '1'"),
        ("never: [3]", "never.0: "),
        ("never: [{pattern: '('}]", "never.0.pattern: not a regular expression: "),
        ("must: [{pattern: a, wy: b}]", "must.0.wy: "),
        ("must: [{why: b}]", "must.0.pattern: Field required"),
        ("pinned: [3]", "pinned.0: "),
        ("precision: exact", "precision: Input should be 'strict', 'allow_tf32'"),
        ("resources: {registers: many}", "resources.registers: "),
        ("resources: {registers: -1}", "resources.registers: Input should be greater than"),
        ("resources: {regs: 1}", "resources.regs: "),
        ("resources: 3", "resources: "),
        ("advice: [{a: b}]", "advice.0: "),
        ("never: [", "Cannot read "),
    ],
)
def test_a_bad_file_is_told_in_one_line_that_names_the_field(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value) and "constraints.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_or_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="Cannot read"):
            Constraints.read(path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        Constraints.read(tmp_path / "bytes.yaml")


# ---- rules about the source


def test_a_source_that_keeps_all_is_not_complained_about(tmp_path: Path) -> None:
    assert read(tmp_path, EVERYTHING).broken_by(GOOD, "hip") == []


def test_each_rule_that_is_broken_is_told_with_its_line_and_reason(tmp_path: Path) -> None:
    source = '#define LAYOUT 4\nint relu() {\n  atomicAdd(x);\n  asm volatile("");\n}\n'
    assert read(tmp_path, EVERYTHING).broken_by(source, "hip") == [
        "the constraints ask for __shfl (reduce within the wave), which the source does not have",
        "line 3 has 'atomicAdd', which the constraints forbid: atomicAdd",
        r"line 4 has 'asm', which the constraints forbid: \basm\b",
        "the pinned line '#define LAYOUT 3' was changed or is missing",
    ]


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("cuda", "int a; // no atomicAdd\n/* nor\n atomicAdd */ int b;"),
        ("c++", "char q = '\"'; // atomicAdd\nchar r = '\"';"),
        ("hip", "int a; // goes on \\\n atomicAdd\nint b;"),
        ("triton", "x = 1  # no atomicAdd\ny = '#'  # atomicAdd\n"),
        ("numba", '"""Needs no atomicAdd."""\ndef f():\n    """Nor atomicAdd\n\n    here."""\n'),
        ("pallas", "def f():\n    r'''atomicAdd'''\n    é = 1; 'atomicAdd'\n"),
        ("opencl", opencl(said="without atomicAdd", noted="atomicAdd")),
        ("opencl", opencl("x[0] = 1; // not atomicAdd\n  /* nor atomicAdd */")),
    ],
)
def test_comments_do_not_count(language: str, source: str) -> None:
    never, must = (
        Constraints.model_validate({key: ({"pattern": "atomicAdd"},)}) for key in ("never", "must")
    )
    assert never.broken_by(source, language) == []
    assert len(must.broken_by(source, language)) == 1


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("cuda", '// harmless\nvoid f() { asm("atomicAdd"); }'),
        ("c++", 'const char* s = "//"; atomicAdd();'),
        ("triton", "y = '#'; atomicAdd()"),
        ("triton", 'inline_asm(\n    "atomicAdd",\n)'),
        ("opencl", opencl("atomicAdd(x);")),
        ("opencl", opencl('s = "//"; atomicAdd(x);')),
        ("triton", "def f(:\n    atomicAdd()  # not Python at all"),
    ],
)
def test_code_and_strings_of_code_do(language: str, source: str) -> None:
    never = Constraints(never=(ConstraintRule(pattern="atomicAdd"),))
    line = source[: source.index("atomicAdd")].count("\n") + 1
    (told,) = never.broken_by(source, language)
    assert told.startswith(f"line {line} has 'atomicAdd'")


def test_the_ends_of_a_pattern_are_those_of_a_line() -> None:
    constraints = Constraints(must=(ConstraintRule(pattern=r"^#pragma unroll$"),))
    assert constraints.broken_by("int a;\n#pragma unroll\nint b;", "cuda") == []
    assert constraints.broken_by("int a; #pragma unroll", "cuda")


def test_a_pinned_line_in_a_comment_is_not_there() -> None:
    constraints = Constraints(pinned=("#define LAYOUT 3",))
    for source in (
        "/*\n#define LAYOUT 3\n*/",
        "// x \\\n#define LAYOUT 3\n",
        "// #define LAYOUT 3",
    ):
        assert constraints.broken_by(source, "cuda")
    assert constraints.broken_by("x\n\t#define  LAYOUT 3\r\ny", "cuda") == []


def test_a_pinned_comment_and_pinned_lines_together_are_kept() -> None:
    constraints = Constraints(pinned=("// generated: keep", "int a;\nint b;  // two\n"))
    assert constraints.broken_by("// generated: keep\nint a;\nint b; // two\n", "c++") == []
    assert len(constraints.broken_by("int a;", "c++")) == 2
    assert constraints.lines[1:] == [
        "Keep this line as it is: int a;",
        "Keep this line as it is: int b;  // two",
    ]


@given(
    st.text(st.sampled_from(list("ab\"'\\/*#\n \r\u2028é\x0c")), max_size=60) | st.text(),
    st.sampled_from(["cuda", "c++", "triton", "opencl"]),
)
def test_any_source_is_read_and_keeps_its_lines(source: str, language: str) -> None:
    code = without_comments(source, language)
    assert len(code) == len(source) and code.count("\n") == source.count("\n")
    assert all(new in (old, " ") for old, new in zip(source, code, strict=True))
    everything = Constraints(
        must=(ConstraintRule(pattern="a"),),
        never=(ConstraintRule(pattern="b"),),
        pinned=("a b", "# c"),
    )
    assert all("\n" not in told for told in everything.broken_by(source, language))


# ---- what builds use, and precision


def record(**used: Any) -> Any:
    return report_records.make(resources=[BuildResources(kernel="k", **used)])


def test_builds_that_use_too_much_are_told_once() -> None:
    constraints = Constraints(resources=Most(registers=64, spills=0, threads=256))
    records = [record(registers=65, spills=0, threads=256), record(registers=65, spills=2)]
    assert constraints.exceeded_by(records) == [
        "k uses 65 registers per thread, the constraints allow 64",
        "k uses 2 spills per thread, the constraints allow 0",
    ]


def test_what_no_compiler_said_is_not_exceeded() -> None:
    constraints = Constraints(resources=Most(registers=1, shared_bytes=1))
    assert constraints.exceeded_by([record()]) == []
    assert Constraints().exceeded_by([record(registers=999)]) == []


@pytest.mark.parametrize(
    ("asked", "policy", "holds"),
    [
        (None, "allow_tf32", "allow_tf32"),
        ("strict", "allow_reduced", "strict"),
        ("allow_reduced", "strict", "strict"),
        ("allow_tf32", "allow_reduced", "allow_tf32"),
    ],
)
def test_people_may_ask_for_more_precision_not_for_less(
    asked: Any, policy: Any, holds: str
) -> None:
    assert Constraints(precision=asked).precision_of(policy) == holds
