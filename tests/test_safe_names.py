"""Names of strangers become paths in one place, and their documents are read by one module: the
type, and the rules that keep all other code to it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from portkern.errors import ConfigError
from portkern.spec.safe_name import MOST_BYTES, SafeName, file_of, inside, refuse_collisions
from tests.path_joins import Paths

ROOT = Path(__file__).parents[1] / "portkern"
#: Packages whose names of files are a compiler's or the system's, within a jail or a cache.
INNER = {"cuda_source", "isa", "sandbox", "simt", "toolchain", "worker", "testing"}
KNOWN = Path(__file__).parent / "data" / "path_joins.txt"
#: The callers that may call a parser by itself: the module of limits, and those who read what
#: portkern wrote in the same process, or a worker's line, which has limits of its own.
PARSERS = {
    "spec.foreign_text",
    "project.document",  # which checks first, and then needs the nodes with their lines
    "sandbox.jail.programs",  # of a worker and its launcher, both ours
    "sandbox.message",
    "sandbox.session",
    "worker.forkserver",
    "worker.worker",
    "cli.warm",  # the server's file and answers, before anything is imported
    "agent.feedback.profile",
    "deploy.library",  # not gone through yet
    "deploy.package._plans",  # stands alone, where no portkern is
    "deploy.package._signature",
    "deploy.package.runtime",
    "agent.memory.encoder",
    "agent.run",
    "evaluator.artifact_cache",
    "formats.flashinfer_traces",
    "formats.templates.task_runner",  # stands alone, in a task's own container
    "port.emit.launch_opencl",
    "port.proof.coverage",
    "port.proof.recording",
    "port.proof.suite",
    "port.triton_worker",
    "simt.execute.emulate",
    "simt.execute.source_lines",
    "simt.torch_extension.bindings",
    "simt.torch_extension.script",
    "simt.torch_extension.suite",
}
CALLS = {
    f"{module}.{name}"
    for module, names in {
        "json": "load loads",
        "yaml": "load safe_load load_all safe_load_all compose unsafe_load full_load",
        "tomllib": "load loads",
        "pickle": "load loads",
    }.items()
    for name in names.split()
}


#: Rooms that look at the folders of strangers.
LOOKING = ("port", "project", "spec", "toolchain", "formats", "experiment", "cli.verbs")


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def joins(trees: dict[Path, ast.Module]) -> set[str]:
    paths = Paths(modules())
    return {
        f"{path.relative_to(ROOT).with_suffix('')}: {join}"
        for path, tree in trees.items()
        if module(path).partition(".")[0] not in INNER
        for join in paths.joins(tree)
    }


def test_no_name_becomes_a_path_but_by_the_type_that_checks_it() -> None:
    known = set(KNOWN.read_text("utf-8").splitlines())
    new = sorted(joins(modules()) - known)
    assert not new, (
        "join SafeName(name), or use file_of or inside of portkern.spec.safe_name; a name that no "
        f"stranger chooses belongs to {KNOWN.name}: {new}"
    )


def test_a_strangers_path_is_followed_by_what_raises_of_no_link() -> None:
    """Path.resolve() does of one that leads to itself, until Python 3.13."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, tree in modules().items()
        if module(path).startswith(LOOKING) and path.name != "task_runner.py"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and not call.args and not call.keywords
        if isinstance(call.func, ast.Attribute) and call.func.attr == "resolve"
    ]
    assert not found, f"use real_path of portkern.spec.safe_name: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "def f(folder: Path, name: str) -> Path: return folder / name",
        "def f(root: Path, plan) -> Path: return root / plan.name",
        "def f(root: Path, name: str) -> Path: return root / f'{name}.json'",
        "def f(root: Path, name: str) -> Path: return root.joinpath('a', name)",
        "def f(root: Path, name: str) -> Path: return root.with_name(name)",
        "def f(root: Path, name: str):\n    inner = root / 'x'\n    return inner / name",
        "def f(said: str, name: str): return Path(said) / name",
    ],
)
def test_the_rule_sees_a_join_however_it_is_written(line: str) -> None:
    assert joins({ROOT / "formats" / "x.py": ast.parse(line)})


def test_what_a_path_or_the_type_gives_may_be_joined() -> None:
    text = "def f(a: Path, b: Path, n: str): return a / b.name / SafeName(n) / 'x' / f'{FILE}.x'"
    assert not joins({ROOT / "formats" / "x.py": ast.parse(text)})


def test_documents_of_others_are_parsed_within_limits() -> None:
    beyond = {
        f"{module(path)}: {ast.unparse(node.func)}"
        for path, tree in modules().items()
        if module(path) not in PARSERS
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS
    }
    assert not beyond, "json_value, json_object and yaml_value of portkern.spec.foreign_text do it"


# ---- the type

WORDS = st.text(max_size=40) | st.from_regex(r"[-._/\\:a-zA-Z\x00\n ]{0,12}", fullmatch=True)


@given(WORDS)
def test_a_name_is_one_file_of_the_folder_or_none(word: str) -> None:
    try:
        name = SafeName(word)
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
        return
    path = Path("/a/b") / name
    assert name == word and path.parent == Path("/a/b") and len(path.parts) == 4
    assert name.encode() and "\0" not in name


@given(WORDS, WORDS)
def test_any_word_has_a_name_and_different_words_different_ones(one: str, other: str) -> None:
    first, second = SafeName.like(one), SafeName.like(other)
    assert SafeName(str(first)) == first
    assert (first == second) == (one == other)


@pytest.mark.parametrize(
    "word",
    [
        "", ".", "..", "/", "a/b", "a\\b", "a:b", "-x", ".x", " x", "x ", "x.", "a\0",
        "a\n", "a\x1b[2J", "CON", "con.txt", "Aux", "lpt1", "a\u202eb", "a\u200bb", "\ud800",
        "e\u0301", "\ue000",
        "x" * (MOST_BYTES + 1), "語" * MOST_BYTES, "~", "~root", "$HOME", "*", "?", "|x", "'x",
        "#x",
    ],
)  # fmt: skip
def test_what_is_the_name_of_no_file_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r"^Got the name .*; expected the name of one file"):
        SafeName(word)
    with pytest.raises(ValidationError):
        TypeAdapter(dict[SafeName, int]).validate_python({word: 1})
    assert SafeName.like(word) != word


@pytest.mark.parametrize(
    "word", ["relu", "größe.py", "日本語", "a b", "_x", "1+2", "v1.2-rc_3.json"]
)
def test_what_people_call_files_is_a_name(word: str) -> None:
    assert SafeName(word) == word == SafeName.like(word)
    assert TypeAdapter(dict[SafeName, int]).validate_python({word: 1}) == {word: 1}


def test_names_that_are_the_same_file_somewhere_are_refused() -> None:
    refuse_collisions(["a", "b", "ab"])
    for one, other in [("Relu", "relu"), ("straße", "STRASSE"), ("ﬁle", "file")]:
        with pytest.raises(ConfigError, match="the same file on some systems"):
            refuse_collisions([one, other])


@given(st.lists(st.sampled_from(["..", ".", "", "a", "link", "own", "x.py", "\0"]), max_size=6))
def test_a_file_of_a_document_is_in_its_folder(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    top = tmp_path_factory.getbasetemp() / "documents"
    box = top / "box"
    if not top.exists():
        (box / "a").mkdir(parents=True)
        (box / "link").symlink_to(top)
        (box / "own").symlink_to("a")
        (box / "a" / "link").symlink_to("../link")
    for word in ("/".join(parts), f"/{'/'.join(parts)}", f"{box}/{'/'.join(parts)}"):
        for call in (file_of, inside):
            try:
                path = call(box, word)
            except ConfigError as error:
                assert "\n" not in str(error)
            else:
                assert (path if call is file_of else path.parent).resolve().is_relative_to(box)
