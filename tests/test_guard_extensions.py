"""The receiver of a call decides which library does the work, not the name of the method."""

from __future__ import annotations

import textwrap

import pytest

from portkern import guard
from portkern.spec import catalogue, registry
from portkern.spec.candidate import Candidate

_HEAD = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
src = "torch::Tensor conv(torch::Tensor x) { return x; }"
"""
_BUILT = 'load_inline(name="own", cpp_sources=src, functions=["conv", "matmul", "softmax"])'


def _candidate(text: str, author: str = "m") -> Candidate:
    source = _HEAD + textwrap.dedent(text)
    return catalogue.of_module(source, op="conv", backend=registry.load("cpu"), author=author)


def _rules(text: str) -> set[str]:
    hits = guard.inspect(_candidate(text), guard.GuardPolicy())
    return {hit.rule.id for hit in hits if hit.severity == "reject"}


HONEST = {
    "a name of the module": f"""
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.conv(x)
        """,
    "an attribute": f"""
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.kernels = ext
            def forward(self, x):
                return self.kernels.softmax(x)
        """,
    "built in the constructor": f"""
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.lib = {_BUILT}
            def forward(self, x):
                return self.lib.matmul(x, x)
        """,
    "a function that builds it once": f"""
        _ext = None
        def kernels():
            global _ext
            if _ext is None:
                _ext = {_BUILT}
            return _ext
        class ModelNew(nn.Module):
            def forward(self, x):
                return kernels().relu(x)
        """,
    "imported in a function": f"""
        def make():
            import torch.utils.cpp_extension as cpp
            return cpp.{_BUILT}
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.made = make()
            def forward(self, x):
                y = self.made
                return y.layer_norm(x)
        """,
    "at once": f"""
        class ModelNew(nn.Module):
            def forward(self, x):
                return {_BUILT}.softmax(x)
        """,
    "operators of its own": """
        more = "TORCH_LIBRARY(mine, m) { m.def(\\"softmax(Tensor x) -> Tensor\\"); }"
        load_inline(name="own", cpp_sources=src + more, functions=["conv"])
        class ModelNew(nn.Module):
            def forward(self, x):
                return torch.ops.mine.softmax(x)
        """,
    "a method of a class of its own": """
        class Kernels:
            conv = staticmethod(lambda x: x)
        class ModelNew(nn.Module):
            def forward(self, x):
                load_inline(name="own", cpp_sources=src, functions=["conv"])
                return Kernels().conv(x)
        """,
}
OTHERS = {
    "a tensor": f"""
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.conv(x).softmax(-1)
        """,
    "a tensor under the name of the extension": f"""
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def forward(self, ext):
                return ext.softmax(-1)
        """,
    "a name that is a tensor elsewhere": f"""
        def forward(x):
            ext = {_BUILT}
            ext = x * 2
            return ext.matmul(x)
        class ModelNew(nn.Module):
            def forward(self, x):
                return forward(x)
        """,
    "the framework": f"""
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def forward(self, x):
                return torch.softmax(x, -1)
        """,
    "the framework's operators by their namespace": """
        more = "TORCH_LIBRARY_FRAGMENT(aten, m) { }"
        load_inline(name="own", cpp_sources=src + more, functions=["conv"])
        class ModelNew(nn.Module):
            def forward(self, x):
                return torch.ops.aten.softmax(x, -1)
        """,
    "operators that nobody here defines": """
        load_inline(name="own", cpp_sources=src, functions=["conv"])
        class ModelNew(nn.Module):
            def forward(self, x):
                return torch.ops.theirs.softmax(x)
        """,
    "the framework within the extension": f"""
        src = "torch::Tensor conv(torch::Tensor x) {{ return torch::softmax(x, -1); }}"
        ext = {_BUILT}
        class ModelNew(nn.Module):
            def forward(self, x):
                return ext.conv(x)
        """,
}


@pytest.mark.parametrize("name", HONEST)
def test_a_function_of_an_extension_may_have_any_name(name: str) -> None:
    assert not _rules(HONEST[name])


@pytest.mark.parametrize("name", OTHERS)
def test_what_others_compute_is_theirs_whatever_stands_beside_it(name: str) -> None:
    assert _rules(OTHERS[name]) == {"G301"}


def test_the_place_is_the_authors_file_and_line() -> None:
    text = HONEST["a name of the module"].replace("ext.conv(x)", "torch.relu(x)")
    hits = guard.inspect(_candidate(text, "file:model_named.py"), guard.GuardPolicy())
    [hit] = [hit for hit in hits if hit.rule.id == "G301"]
    line = 1 + (_HEAD + textwrap.dedent(text)).split("\n").index("        return torch.relu(x)")
    assert hit.place == f"model_named.py:{line}"
    [other] = [
        hit
        for hit in guard.inspect(_candidate(text, "openai/m"), guard.GuardPolicy())
        if hit.rule.id == "G301"
    ]
    assert other.place == f"conv.py:{line}"
