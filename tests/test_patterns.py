"""Patterns that meet text of others take a time that grows as the text does."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from portkern.agent import replies
from portkern.agent.feedback import subject
from portkern.cli.verbs import run
from portkern.cuda_source import constants

#: Each text made the pattern that meets it go back over what it had taken, for every place in it.
SLOW: dict[str, Callable[[int], object]] = {
    "a size that never ends": lambda n: constants.integer("sizeof(" + " " * n, {}),
    "a size of many words": lambda n: constants.integer("sizeof(const " + "a " * n, {}),
    "namespaces without a kernel": lambda n: subject.bare("a::" * n),
    "namespaces within arguments": lambda n: subject.bare("void k" + "a::b " * n),
    "a fence that is none": lambda n: replies.blocks("~" * n + "`"),
    "a fence behind blanks": lambda n: replies.blocks(" " * n + "``"),
    "lines without anything": lambda n: run._EXTENSION.search("\n" * n + "//"),
    "comments in an extension": lambda n: run._EXTENSION.search(" //\n" * n),
}


@pytest.mark.parametrize("which", SLOW)
def test_text_of_others_is_read_in_time(which: str) -> None:
    begin = time.process_time()
    SLOW[which](20_000)
    assert time.process_time() - begin < 1.0


def test_the_patterns_still_find_what_they_are_for() -> None:
    assert constants.integer("4 * sizeof( unsigned int )", {}) == 16
    assert constants.integer("sizeof(float)*2", {}) == 8
    assert subject.bare("void ns::k<float>(float*)") == "k"
    assert subject.bare("(anonymous namespace)::k<4>(int)") == "k"
    assert replies.blocks("~~~cpp\nint a;\n~~~")[0][0].code.strip() == "int a;"
    assert run._EXTENSION.search("// a\n  PYBIND11_MODULE(x, m) {")
    assert not run._EXTENSION.search("int a;\n  // PYBIND11_MODULE(x, m) {")
