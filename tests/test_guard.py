"""The guard's rejections, its notes, and the honest sources that it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern import guard, ops
from portkern.cells.selection import Selection
from portkern.cells.to_record import unbuilt
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.guard.rules import NATIVE, NATIVE_CALLS, PYTHON, RULES
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry
from portkern.spec.candidate import Candidate

STRICT = guard.GuardPolicy()
HEADS = {
    "triton": "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x): pass\n",
    "pallas": "import jax\nimport jax.numpy as jnp\nfrom jax.experimental import pallas as pl\n"
    "def kernel(x_ref, y_ref): y_ref[...] = jnp.exp(x_ref[...])\n"
    "def run(x, interpret): return pl.pallas_call(kernel, interpret=interpret)(x)\n",
    "numba": "import numba\n@numba.njit\ndef inner(x, y): pass\n",
}


def inspect(
    language: str, source: str, policy: guard.GuardPolicy = STRICT
) -> tuple[guard.Hit, ...]:
    whole = HEADS.get(language, "") + source
    return guard.inspect(Candidate("op", "backend", language, whole, "op"), policy)


def rejected(language: str, source: str) -> set[str]:
    return {hit.rule.id for hit in inspect(language, source) if hit.severity == "reject"}


def noted(language: str, source: str) -> set[str]:
    return {hit.rule.id for hit in inspect(language, source) if hit.severity == "note"}


BAD_PYTHON = [
    ("G101", "import socket\ns = socket.socket()"),
    ("G101", "from urllib.request import urlopen as fetch\nfetch('http://x')"),
    ("G102", "import os\nos.system('x')"),
    ("G102", "from os import *\nfork()"),
    ("G102", "import os as o\np = o\nq = p.fork\nq()"),
    ("G102", "__import__('subprocess').run(['x'])"),
    ("G102", "getattr(__import__('os'), 'sys' + 'tem')('x')"),
    ("G102", "import importlib\nimportlib.import_module('os').popen('x')"),
    ("G102", "import sys\nsys.modules['os'].system('x')"),
    ("G102", "import os\nvars(os)['system']('x')"),
    ("G102", "try:\n    import os\nexcept ImportError:\n    os = None\nos.system('x')"),
    ("G102", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.fork()"),
    ("G102", "exec('import os; os.system(1)')"),
    ("G302", "from numba.extending import get_cython_function_address as f\nf('blas', 'dgemm')"),
    ("G302", "import ctypes\nctypes.cdll.LoadLibrary('libmkl_rt.so').go()"),
    ("G103", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.ptrace(0)"),
    ("G103", "open('/proc/self/mem', 'r+b')"),
    ("G103", "open('/proc/' + '1/environ')"),
    ("G104", "open('/work/kernel.py', 'w')"),
    ("G104", "from pathlib import Path\nPath('conftest.py').write_text('')"),
    ("G104", "import os\nos.open('x', os.O_WRONLY | os.O_CREAT)"),
    ("G105", "import os\nos.environ['OMP_NUM_THREADS'] = '1'"),
    ("G105", "import os\nos.environ.update(A='1')"),
    ("G106", "import os\nos._exit(0)"),
    ("G106", "import atexit\natexit.register(print)"),
    ("G106", "import signal\nsignal.signal(14, print)"),
    ("G201", "import sys\ndef op(x): return sys._getframe(1)"),
    ("G201", "import inspect\ndef op(x): return inspect.stack()"),
    ("G201", "def op(x):\n    try: 1 / 0\n    except OSError as e: return e.tb.tb_frame"),
    ("G201", "def op(f): return getattr(f, 'f_back')"),
    ("G201", "def op(f): f.__globals__['rtol'] = 1"),
    ("G202", "import gc\ndef op(x): return gc.get_objects()"),
    ("G202", "def op(x): return object.__subclasses__()"),
    ("G203", "import time\ntime.perf_counter = lambda: 0.0"),
    ("G203", "import time\nsetattr(time, 'perf_counter', None)"),
    ("G203", "import time\ntime.__dict__['perf_counter'] = None"),
    ("G203", "import torch\ntorch.Tensor.sum = None"),
    ("G203", "import numpy.testing as t\ndef op(x): t.assert_allclose = print"),
    ("G203", "from unittest import mock\nmock.patch('time.time').start()"),
    ("G203", "import sys\nsys.settrace(print)"),
    ("G203", "import torch\nclass Lazy(torch.Tensor): pass"),
    ("G204", "import portkern.evaluator.compare"),
    ("G204", "import sys\nsys.modules['__main__'].x"),
    ("G303", "import os\nos.environ['TRITON_INTERPRET'] = '1'"),
    ("G206", "import os\nslow = os.environ.get('TRITON_INTERPRET', '0') == '1'"),
    ("G206", "import os\nNAME = 'TRITON_INTERPRET'\nslow = NAME in os.environ"),
    ("G206", "import sys\nslow = 'triton.runtime.interpreter' in sys.modules"),
    ("G206", "import triton\nslow = triton.knobs.runtime.interpret"),
]


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    {line}
    tl.store(y + i, v, mask=i < n)

def relu(x, y):
    k[(1,)](x, y, x.numel(), B=1024)
"""


@pytest.mark.parametrize(
    "line",
    [
        "v = tl.where(v > 0, v, 0.0) if hasattr(v, 'handle') else v",
        "v = tl.where(v > 0, v, 0.0) if v.handle.data is not None else v",
        "v = v if repr(v.type).count('x') else tl.where(v > 0, v, 0.0)",
        "v = v if 'data' in dir(v) else tl.where(v > 0, v, 0.0)",
        "h = getattr(v, 'hand' + 'le')",
    ],
)
def test_a_triton_kernel_may_not_ask_what_its_values_are_made_of(line: str) -> None:
    assert "G206" in rejected("triton", KERNEL.format(line=line))


@pytest.mark.parametrize(
    "line",
    [
        "v = tl.where(v > 0, v, 0.0).to(y.dtype.element_ty)",
        "v = tl.exp(v) if hasattr(tl, 'exp') else v",
        "v = v if isinstance(B, tl.constexpr) else v * 2",
    ],
)
def test_a_triton_kernel_may_ask_for_types_and_for_what_its_language_has(line: str) -> None:
    assert not rejected("triton", KERNEL.format(line=line))


@pytest.mark.parametrize(("rule", "source"), BAD_PYTHON)
def test_python_that_is_rejected(rule: str, source: str) -> None:
    languages = ["triton", "numba", "pallas", "opencl"]
    assert {one: rejected(one, source) for one in languages} == {one: {rule} for one in languages}


@pytest.mark.parametrize(
    ("rule", "language", "source"),
    [
        ("G301", "triton", "import torch\ndef op(x, y): y.copy_(torch.softmax(x, -1))"),
        ("G301", "triton", "import torch.nn.functional as F\ndef op(x, y): y.copy_(F.gelu(x))"),
        ("G301", "triton", "import torch\ndef op(a, b, c): torch.ops.aten.mm.out(a, b, out=c)"),
        ("G301", "triton", "import torch\nf = torch.matmul\ndef op(a, b): return f(a, b)"),
        ("G301", "triton", "import torch\ndef op(x): return list(map(torch.relu, [x]))"),
        ("G301", "triton", "def op(a, b, c): c.copy_(a @ b)"),
        ("G301", "triton", "def mm(a): return a @ a\nhelp = mm\ndef op(a): return help(a)"),
        ("G301", "triton", "def mm(a): return a @ a\ndef op(a): return globals()['m' + 'm'](a)"),
        ("G301", "triton", "def op(x, y): y.copy_(x.sum(0))"),
        ("G301", "pallas", "def op(a, b): return a @ b"),
        ("G301", "pallas", "def op(a, b): return jnp.dot(a, b)"),
        ("G301", "pallas", "def op(x): return jax.nn.softmax(x)"),
        ("G301", "numba", "import numpy as np\n@numba.njit\ndef op(a, b, c): c[:] = np.dot(a, b)"),
        ("G301", "numba", "@numba.njit\ndef op(a, b, c): c[:] = a @ b"),
        ("G301", "numba", "import operator\ndef op(a, b, c): c[:] = operator.matmul(a, b)"),
        ("G302", "numba", "import ctypes\nblas = ctypes.CDLL('libopenblas.so.0')"),
        ("G302", "numba", "from scipy.linalg import blas\ndef op(a, b): blas.sgemm(1, a, b)"),
        ("G302", "numba", "import ctypes\nlib = ctypes.CDLL(None)\nlib.cblas_sgemm(1)"),
        ("G302", "triton", "import cupy\ndef op(x): return cupy.asarray(x)"),
        ("G303", "numba", "numba.config.DISABLE_JIT = True"),
        ("G303", "pallas", "def op(x): return pl.pallas_call(kernel, interpret=True)(x)"),
        ("G401", "numba", "@numba.njit(fastmath=True)\ndef op(x, y): pass"),
        ("G401", "numba", "@numba.njit(fastmath={'contract', 'nnan'})\ndef op(x, y): pass"),
        ("G401", "opencl", 'HEAD = "#pragma clang fp reassociate(on)"\nSOURCE = HEAD + "int x;"'),
        ("G403", "opencl", 'SOURCE = """\n#include "/etc/passwd"\n"""'),
        ("G401", "opencl", 'SOURCE = "\\n" + """#pragma GCC optimize("fast-math")\n"""'),
    ],
)
def test_python_that_leaves_the_work_or_the_contract(rule: str, language: str, source: str) -> None:
    assert rejected(language, source) == {rule}


#: A module of functions that Numba kernels may import.
ROWS = "portkern.backends.cpu.include.rows"


@pytest.mark.parametrize(
    "source",
    [
        f"from {ROWS} import copy, fill\n@numba.njit\ndef op(x, y): copy(x, y); fill(x, y)",
        f"@numba.njit\ndef op(x, y):\n    from {ROWS} import copy as move\n    move(x, y)",
        "from portkern.backends.cpu.include.sums import summing\ntotal = summing(8)\n"
        "@numba.njit\ndef op(x, y): y[0] = total(x)",
    ],
)
def test_a_numba_kernel_may_import_the_functions_that_numba_kernels_share(source: str) -> None:
    assert not inspect("numba", source)
    assert rejected("triton", source) == rejected("", source) == {"G204"}


@pytest.mark.parametrize(
    "source",
    [
        # other ways to import them, which give names for more than them
        f"import {ROWS}",
        f"import {ROWS} as rows",
        f"from {ROWS} import *",
        "from portkern.backends.cpu.include import rows",
        f"__import__('{ROWS}')",
        f"import importlib\nimportlib.import_module('{ROWS}')",
        f"import sys\nsys.modules['{ROWS}'].numba",
        # what the modules hold besides, under names that no rule knows
        "from portkern.backends.cpu.include.product import np\ndef op(a, b): return np.dot(a, b)",
        f"from {ROWS} import numba as n\n@n.njit(fastmath=True)\ndef op(x, y): pass",
        f"from {ROWS} import __builtins__ as all\nall['open']('x', 'w')",
        f"from {ROWS} import __loader__",
        "from portkern.backends.cpu.include.sums import _itself",
        # what the functions lead to
        f"from {ROWS} import copy\nhome = copy.py_func.__module__",
        f"from {ROWS} import copy\nother = getattr(copy, 'py_func')",
        f"from {ROWS} import copy\nc = copy\nall = vars(c)",
        # the rest of portkern
        "from portkern.backends.cpu import jit",
        "from portkern.backends.cpu.include.rows import fill\nfrom portkern.ops import softmax",
        "from portkern.evaluator.compare import compare",
    ],
)
def test_nothing_else_of_portkern_comes_with_the_shared_functions(source: str) -> None:
    assert "G204" in rejected("numba", source)


PRODUCT = "portkern.backends.opencl.include.product"


def test_an_opencl_kernel_may_import_what_opencl_kernels_share() -> None:
    honest = f'from {PRODUCT} import multiply\nSOURCE = ""\ndef op(q, p, a): multiply(q, p, a)'
    assert not inspect("opencl", honest)
    assert rejected("numba", honest) == rejected("triton", honest) == {"G204"}


@pytest.mark.parametrize(
    "source",
    [
        f"from {PRODUCT} import numpy",
        f"from {PRODUCT} import _Call",
        f"from {ROWS} import copy",
        f"from {PRODUCT} import multiply\nall = multiply.__globals__",
        f"from {PRODUCT} import multiply\nall = vars(multiply)",
    ],
)
def test_nothing_else_comes_with_what_opencl_kernels_share(source: str) -> None:
    assert "G204" in rejected("opencl", source)


WINDOWS = "portkern.backends.tpu.include.windows"


def test_a_kernel_for_tpus_may_import_what_they_share_and_has_its_own_call() -> None:
    call = "def op(x): return pl.pallas_call(tap, grid=(1,))(x)"
    head = f"from jax.experimental import pallas as pl\nfrom {WINDOWS} import tap\n"
    assert not inspect("pallas-tpu", head + call)
    assert rejected("pallas", head + call) == {"G204"}
    assert rejected("pallas-tpu", f"{head}def op(x): return tap(x)") == {"G304"}
    for other in (
        f"from {WINDOWS} import jnp",
        f"from {WINDOWS} import COLUMNS",
        f"import {WINDOWS}",
    ):
        assert "G204" in rejected("pallas-tpu", f"{head}{other}\n{call}"), other


@pytest.mark.parametrize(
    "change", ["copy.py_func = print", "setattr(copy, 'py_func', print)", "del copy.py_func"]
)
def test_a_shared_function_is_not_replaced(change: str) -> None:
    assert "G203" in rejected("numba", f"from {ROWS} import copy\ndef op(x): {change}")


#: Ways to the evaluator's modules, each with what honest sources do that looks like them.
WAYS_TO_THE_EVALUATOR = {
    "a package of its own choice": (
        [
            "__package__ = 'portkern.ops'\nfrom . import softmax",
            "__package__, n = 'portkern', 1\nfrom .ops import softmax",
            "(__package__ := 'portkern.ops')\nfrom .softmax import run",
            "for __package__ in ['portkern']:\n    from .ops import softmax",
            "__package__ += 'portkern.ops'\nfrom . import softmax",
            "match 'portkern.ops':\n    case __package__:\n        from . import softmax",
            "from constants import NAME as __package__\nfrom . import softmax",
            "def op(x):\n    global __package__\n    __package__ = 'portkern.ops'",
            "__package__ = __spec__ = None\n__name__ = 'portkern.ops.x'\nfrom . import softmax",
            "__package__ = None\n__spec__.name = 'portkern.ops.x'\nfrom . import softmax",
        ],
        [
            "try:\n    from .helpers import tile\nexcept ImportError:\n    tile = None",
            "if __package__:\n    from . import tiles\nelse:\n    tiles = None",
            "from importlib.resources import files\ndef op(x): return files(__package__)",
            "if __name__ == '__main__' and __package__ is None:\n    __package__ = 'kernels'",
            "import importlib.util\nfrom .tiles import tile\nimportlib.util.find_spec('scipy')",
        ],
    ),
    "a package set by text": (
        [
            "globals()['__package__'] = 'portkern.ops'\nfrom . import softmax",
            "globals().update(__package__='portkern.ops')\nfrom . import softmax",
            "vars().__setitem__('__package__', NAME)\nfrom . import softmax",
            "import sys\nsys.modules[__name__].__package__ = NAME\nfrom . import softmax",
            "import sys\nsetattr(sys.modules[__name__], '__package__', NAME)",
            "import types\ntypes.FunctionType(code, {'__package__': NAME})()",
            "__import__('softmax', dict(__package__=NAME), None, [], 1)",
            "exec('from . import softmax', {'__package__': NAME})",
            "def op(key, value):\n    globals()[key] = value\n    from . import softmax",
        ],
        [
            "tile_4 = 1\ndef op(x, n): return globals()[f'tile_{n}']",
            "import sys\ndef op(x, n): return getattr(sys.modules[__name__], 'tile')",
            "def op(x): return x.__name__, type(x).__module__, __name__, __package__",
        ],
    ),
    "the builtins": (
        [
            "globals()['__builtins__']['__import__']('portkern.ops')",
            "globals().get('__builtins__').__import__('portkern')",
            "vars()['__builtins__']['__import__']('portkern.ops')",
            "print.__self__.__import__('portkern')",
            "[__import__][0]('portkern.ops')",
            "list(map(__import__, ['portkern.ops']))",
            "def op(x, get=__import__): return get('portkern.ops')",
            "def op(x): return object.__getattribute__(x, name)['__import__']('portkern')",
        ],
        [
            "import torch\nlibrary = torch.library.Library('portkern', 'DEF')",
            "def op(x): print('made for', 'portkern')",
        ],
    ),
    "the import system": (
        [
            "import importlib\nimportlib.import_module('.softmax', 'portkern.ops')",
            "import importlib\nimportlib.import_module(name='portkern.ops')",
            "from importlib import *\nimport_module('portkern.ops')",
            "import importlib.util\nimportlib.util.find_spec('portkern').loader.load_module()",
            "import importlib.util as u\nu.spec_from_file_location('x', '/lib/portkern/ops/a.py')",
            "from importlib.machinery import SourceFileLoader as L\nL('portkern.ops', path)",
            "from importlib.resources import files\nfiles('portkern')",
            "import importlib\nimportlib._bootstrap._gcd_import('portkern.ops')",
            "import _frozen_importlib as f\nf._gcd_import('portkern.ops')",
            "import pkgutil\npkgutil.resolve_name('portkern.ops:softmax')",
            "import runpy\nrunpy.run_module('portkern.ops.softmax')",
            "import pydoc\npydoc.locate('portkern.ops')",
            "type(__loader__)('portkern.ops', path).load_module()",
            "__spec__.loader.__class__('portkern.ops', path).load_module()",
            "import numpy\ntype(numpy.__loader__)('portkern.ops', path).load_module()",
            "import ctypes\nctypes.PyDLL(None).PyImport_ImportModule(b'portkern.ops')",
        ],
        [
            "import importlib.util\nfast = importlib.util.find_spec('scipy') is not None",
            "import importlib\nnp = importlib.import_module('numpy')",
            "text = __loader__.get_source(__name__) if __spec__ else ''",
            "import pkgutil\ndef op(x): return pkgutil.get_data(__name__, 'table')",
            "import importlib\nif __name__ == '__main__':\n"
            "    importlib.import_module('portkern.testing')",
            "import importlib\nMAIN = __name__ == '__main__'\nimportlib.import_module('numpy')",
        ],
    ),
    "modules that hold others": (
        [
            "import os\nos.sys.modules['portkern.ops']",
            "from os import sys as s\ns.modules['portkern.ops']",
            "import os\nvars(os)['sys'].modules['portkern.ops']",
            "import sys\nsys.modules.get('portkern.ops')",
            "import sys\nsys.modules.get('__main__')",
            "import sys\n[sys][0].modules['portkern.ops']",
            "import sys\ndef op(x, m=sys): return m.modules['portkern.ops']",
            "import sys\n[m for n, m in sys.modules.items() if n.startswith('portkern.')]",
            "import sys\n[m for m in sys.modules.values() if m.__name__ == '__main__']",
            "import operator, sys\noperator.itemgetter('portkern.ops')(sys.modules)",
            "import operator, os\noperator.attrgetter('sys.modules')(os)['portkern.ops']",
        ],
        [
            "import os, sys\nwindows = os.name == 'nt' or sys.platform == 'win32'",
            "import sys\nhas_numpy = 'numpy' in sys.modules",
            "import operator\ndef op(x): return max(x, key=operator.itemgetter('portkern'))",
        ],
    ),
    "texts in parts": (
        [
            "NAME = 'portkern.ops'\n__import__(NAME)",
            "__import__(''.join(['port', 'kern.ops']))",
            "__import__(f'{\"portkern\"}.ops')",
            "__import__('portkern.%s' % name)",
            "__import__(b'portkern.ops'.decode())",
            "exec(f'from portkern.ops import {name}')",
            "import timeit\ntimeit.timeit('import portkern.ops', number=1)",
            "import sys\ndef op(x: sys.modules['portkern.ops'].run): pass",
            "import typing\ndef op(x: '__import__(\"portkern.ops\")'): pass\n"
            "typing.get_type_hints(op)",
            "import cloudpickle\ncloudpickle.loads(b'\\x8c\\x0cportkern.ops\\x94')",
            "import pickle\npickle.loads(b'cportkern.ops.softmax\\nrun\\n.')",
        ],
        [
            '"""Made like __import__("portkern.ops") and portkern.ops.softmax."""\n'
            "import importlib.util\nimportlib.util.find_spec('scipy')",
            "'portkern.ops'\nimport importlib.util\nimportlib.util.find_spec('scipy')",
            "name = f'portkern_{len(HEAD)}'\nimport importlib.util\n"
            "importlib.util.find_spec('scipy')",
        ],
    ),
}


@pytest.mark.parametrize(
    "source", [source for bad, _ in WAYS_TO_THE_EVALUATOR.values() for source in bad]
)
def test_no_way_leads_to_the_evaluator_s_modules(source: str) -> None:
    languages = ["triton", "numba", "pallas", "opencl"]
    assert {name: rejected(name, source) for name in languages} == {
        name: {"G204"} for name in languages
    }


@pytest.mark.parametrize(
    "source", [source for _, twins in WAYS_TO_THE_EVALUATOR.values() for source in twins]
)
def test_what_looks_like_a_way_to_the_evaluator_s_modules_is_accepted(source: str) -> None:
    for language in ("triton", "numba", "pallas", "opencl"):
        assert not rejected(language, source), language


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("G102", "import pathlib\npathlib.os.system('x')"),
        ("G102", "from shutil import os as o\no.fork()"),
        ("G102", "import os\ndef op(x: os.system('x')): pass"),
        ("G102", "import os\ndef op(x) -> os.system('x'): pass"),
        ("G102", "import os\nn: os.system('x') = 1"),
        ("G301", "import torch\ndef op(x: torch.softmax(x, 0)): pass"),
        ("G102", "import os\nglobals()['os'].system('x')"),
        ("G202", "def op(x): return op.__builtins__"),
        ("G203", "import pathlib\npathlib.os.stat = print"),
    ],
)
def test_what_runs_is_read_under_whatever_name_and_wherever_it_stands(
    rule: str, source: str
) -> None:
    assert rejected("numba", source) == {rule}


def test_a_c_function_s_types_may_be_stated() -> None:
    source = "import ctypes\nlibm = ctypes.CDLL('libm.so.6')\nlibm.cosf.restype = ctypes.c_float"
    assert not rejected("numba", source)


@pytest.mark.parametrize("language", ["triton", "pallas", "numba"])
def test_a_source_without_a_kernel_of_its_language_is_rejected(language: str) -> None:
    bare = Candidate("op", "b", language, "def op(x, y):\n    y[:] = x\n", "op")
    assert [hit.rule.id for hit in guard.inspect(bare, STRICT)] == ["G304"]


BAD_NATIVE = [
    ("G101", "#include <sys/socket.h>"),
    ("G101", "void f() { int s = socket(2, 1, 0); }"),
    ("G102", 'void f() { std::system("x"); }'),
    ("G102", 'void f() { ::system ("x"); }'),
    ("G102", "void f() { auto g = &fork; g(); }"),
    ("G102", "void f() { sys\\\ntem(0); }"),
    ("G102", "#define RUN system\nvoid f() { RUN(0); }"),
    ("G102", "#define RUN(x) system(x)\nvoid f() { RUN(0); }"),
    ("G102", "#define CHECK(x) do { puts(#x); fork(); } while (0)"),
    ("G102", "#define JOIN fo##rk\nvoid f() { JOIN(); }"),
    ("G101", "%:include <sys/socket.h>"),
    ("G101", "/**/%:include <sys/socket.h>"),
    ("G101", "/* a\n*/ %: include <sys/socket.h>"),
    ("G102", "// x\rvoid f() { fork(); }"),
    ("G101", "#inc\\ \t\nlude <sys/socket.h>"),
    ("G204", 'void f() { PyImport_ImportModule("portkern.ops"); }'),
    ("G204", 'void f() { PyRun_SimpleString("import portkern"); }'),
    ("G103", "#include <sys/ptrace.h>"),
    ("G103", 'void f() { fopen("/proc/self/mem", "r+"); }'),
    ("G103", 'void f() { open("/pro" "c/1/environ", 0); }'),
    ("G103", "void f() { mprotect(p, 4096, 7); }"),
    ("G104", 'void f() { fopen("/work/x", "w"); }'),
    ("G104", 'void f() { remove("conftest.py"); }'),
    ("G105", 'void f() { setenv("A", "1", 1); }'),
    ("G106", "void f() { _exit(0); }"),
    ("G106", "void f() { atexit(g); }"),
    ("G106", "void f() { signal(14, g); }"),
    ("G103", 'const char* maps = "/proc/self/maps"; void f() { fopen(maps, "r"); }'),
    ("G103", '#include <fstream>\nvoid f() { std::ifstream maps("/proc/self/" "maps"); }'),
    ("G103", "void f(char* p) { unsigned char in; mincore(p, 4096, &in); }"),
    ("G206", "#ifdef SIMT_HERE\nint emulated;\n#endif"),
    ("G206", "#ifndef SIMT_HERE\n#define SIMT_HERE\nint hardware;\n#endif"),
    ("G206", "#if defined(__SANITIZE_THREAD__)\nint watched;\n#endif"),
    ("G206", 'extern "C" __attribute__((weak)) int simt_configure(const char*);'),
    ("G206", "int f() { return simt::facts.warp; }"),
    ("G206", "using namespace simt;"),
    ("G206", 'bool f() { return dlsym(nullptr, "simt_configure"); }'),
    ("G206", "bool f() { Dl_info info; return dladdr((void*)f, &info); }"),
    ("G206", 'bool f() { return getenv("PORTKERN_SIMT") != nullptr; }'),
    ("G206", 'extern "C" int op() {\n#ifdef __CUDA_ARCH__\nreturn 1;\n#endif\nreturn 0;\n}'),
    ("G206", "int f() {\n#if __CUDA_ARCH__ >= 800\nk<<<1, 1>>>();\n#endif\nreturn 0;\n}"),
    ("G206", "int f() {\n#ifdef __CUDA_ARCH__\n#endif\nk << <1, 1 >> >();\nreturn 0;\n}"),
    ("G206", "#define GO(f) f<<<1, 1>>>()\nint f() {\n#ifdef __CUDA_ARCH__\n#endif\nGO(k);\n}"),
    ("G206", "int f() {\n#ifdef __CUDA_ARCH__\n#endif\ncudaLaunchKernelEx(&c, k, 1);\n}"),
    ("G205", 'extern "C" int clock_gettime(int, void* t) { return 0; }'),
    ("G205", 'extern "C" int cudaEventElapsedTime(float* ms, void*, void*) { return 0; }'),
    ("G301", "void f() { y = torch::softmax(x, -1); }"),
    ("G302", "#include <cublas_v2.h>\nauto product = cublasSgemm;"),
    (
        "G302",
        "#if 0\nvoid cudnnAddTensor() {}\n#endif\n#include <cudnn.h>\nauto f = cudnnAddTensor;",
    ),
    ("G302", "#include <cublas_v2.h>\n#define OF(a, b) a##b\nvoid f() { OF(cublas, Sgemm)(h); }"),
    ("G302", "#include <cublas_v2.h>\n#define A <cublasSgemm>\nvoid f() { call A (1); }"),
    ("G302", "#include <cublas_v2.h>\nvoid f() { cub\\u006casSgemm(h); }"),
    ("G302", "#include <mkl.h>\nvoid f() { vsExp(n, a, b); SGEMM(1); }"),
    ("G302", "#include <mkl.h>\nvoid f() { MKL_Somatcopy('R', a, b); }"),
    ("G302", "#include <lapacke.h>\nvoid f() { LAPACK_sgesv(a, b); }"),
    (
        "G302",
        "#include <Eigen/Dense>\nusing namespace Eigen;\nMatrixXf f(MatrixXf a) { return a * a; }",
    ),
    ("G302", "#define OF(a) <a>\n#include OF(cublas_v2.h)\nauto product = cublasSgemm;"),
    ("G302", "void f() { cublasSgemm(h, 0, 0, m, n, k, &one, a, m, b, k, &zero, c, m); }"),
    ("G302", "void f() { cblas_sgemm(1, 2, 3); }"),
    ("G302", 'void f() { dlopen("libcublas.so.12", 1); }'),
    ("G401", '#pragma GCC optimize("O3,fast-math")'),
    ("G401", '_Pragma("GCC optimize(\\"fast-math\\")");'),
    ("G401", "#pragma clang fp reassociate(on)"),
    ("G401", '__attribute__((optimize("Ofast"))) void f() {}'),
    ("G402", "__attribute__((constructor)) static void f() {}"),
    ("G402", "[[gnu::constructor]] void f();"),
    ("G402", '__attribute__((section(".init_array"))) void (*f)() = g;'),
    ("G403", '#include "/etc/passwd"'),
    ("G403", '#include "../../secrets.h"'),
    ("G403", 'void f() { asm(".incbin \\"/etc/passwd\\""); }'),
    ("G405", 'void f() { asm volatile("syscall" : "=a"(r)); }'),
    ("G405", "void f() { syscall(39); }"),
    ("G402", 'asm(".pushsection .init_array,\\"aw\\"\\n .quad early\\n .popsection");'),
    ("G407", 'void f() { asm volatile(".byte 0x0f, 0x05" : "=a"(r)); }'),
    ("G407", 'void f() { asm("nop; .long 0x050f"); }'),
    ("G407", '__attribute__((section(".text#"))) static const char code[] = {15, 5};'),
    ("G407", "void f() { mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, -1, 0); }"),
    ("G407", "void f() { mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }"),
    ("G407", "void f() { auto g = mmap; g(0, 4096, 7, 34, -1, 0); }"),
    ("G103", "void f() { mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE, -1, 0); }"),
    ("G106", "void f() { sigset(11, g); }"),
]


@pytest.mark.parametrize(("rule", "source"), BAD_NATIVE)
def test_native_source_that_is_rejected(rule: str, source: str) -> None:
    languages = ["c++", "cuda", "hip"]
    assert {one: rejected(one, source) for one in languages} == {one: {rule} for one in languages}


@pytest.mark.parametrize(
    ("rule", "language", "source"),
    [
        ("G107", "c++", "#include <thread>\nvoid f() { std::thread t(g); t.join(); }"),
        ("G107", "c++", "#include <time.h>\nvoid f() { timer_create(1, &event, &timer); }"),
        ("G107", "numba", "import threading\ndef op(x): threading.Thread(target=print).start()"),
        ("G108", "numba", "import os\ndef op(x, tmp): os.unlink(tmp)"),
        ("G108", "numba", "text = open(__file__).read()"),
        ("G109", "cuda", "void f() { if (error) exit(1); }"),
        ("G404", "cuda", '__device__ void f() { asm volatile("bar.sync 1;" ::: "memory"); }'),
        ("G501", "triton", "def make(name): exec(f'def {name}(): pass')"),
        ("G501", "triton", "import torch\ndef op(kind): return getattr(torch, kind)"),
        ("G501", "numba", "import sys\ndef op(kind): return sys.modules[kind]"),
        ("G501", "numba", "import sys\ndef op(x): return [m for m in sys.modules.values()]"),
        ("G502", "cuda", "__global__ void f(long* t) { *t = clock64(); }"),
        ("G502", "numba", "import time\nstart = time.perf_counter()"),
        ("G503", "triton", "_plans = {}\ndef op(x): _plans[x.shape] = 1"),
        ("G503", "triton", "import functools\n@functools.lru_cache\ndef plan(n): return n"),
        ("G504", "triton", "def op(x):\n    if x.max().item() > 0: pass"),
        ("G505", "numba", "import ctypes\nm = ctypes.CDLL('libm.so.6')"),
        ("G506", "cuda", "void f() { cudaStream_t s; cudaStreamCreate(&s); }"),
        ("G507", "pallas", "def op(x): return jnp.sum(run(x, False))"),
        ("G508", "numba", "numba.config.THREADING_LAYER = 'omp'"),
        ("G508", "triton", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True"),
        ("G509", "c++", 'void f() { getenv("OMP_NUM_THREADS"); }'),
        ("G509", "numba", "import os\nn = os.environ.get('OMP_NUM_THREADS')"),
    ],
)
def test_what_only_deserves_a_look_is_a_note(rule: str, language: str, source: str) -> None:
    assert rule in noted(language, source)
    # x.max() on the host is torch's work; the note stands beside that rejection.
    assert rejected(language, source) <= ({"G301"} if rule == "G504" else set())


def test_words_in_comments_strings_and_identifiers_mean_nothing() -> None:
    every = sorted({*PYTHON, *NATIVE, *NATIVE_CALLS, "/proc/self/mem"})
    assert not {
        words: hits for words in every if (hits := list(_hits_where_nothing_is_meant(words)))
    }


def _hits_where_nothing_is_meant(words: str) -> Iterator[object]:
    plain = words.replace(".", "_").replace("/", "_")
    in_python = f'"""{words}(x) is not {words}."""\n# import {words}; {words}()\ntext = "{words}"\n'
    in_python += (
        f"my_{plain} = 1\nprint('{words}', my_{plain})\ndef op(x, {plain}_=0): return {plain}_\n"
    )
    for language in ("triton", "pallas", "numba", "opencl"):
        yield from inspect(language, in_python)
    in_c = (
        f'// {words}();\n/* #include <cublas_v2.h>\n {words}(); */\nconst char* t = "{words}()";\n'
    )
    in_c += (
        f"int my_{plain}(int v) {{ return my_{plain}(v) + at.{plain.split('_')[-1] or 'x'}_; }}\n"
    )
    for language in ("c++", "cuda", "hip"):
        yield from inspect(language, in_c)


@pytest.mark.parametrize(
    ("language", "source"),
    [
        # imported, and not used for anything
        ("triton", "import subprocess, socket, os, sys, ctypes, gc, inspect, signal"),
        ("numba", "import os\nn = os.cpu_count() or os.path.getsize('/')"),
        ("numba", "import multiprocessing\nn = multiprocessing.cpu_count()"),
        ("numba", "import psutil\nn = psutil.cpu_count(logical=False)"),
        ("triton", "import inspect\ndef op(f): return inspect.signature(f), inspect.getsource(f)"),
        ("numba", "import sys\ndef op(x): return getattr(sys.modules[__name__], 'tile')(x)"),
        (
            "triton",
            "import signal, torch\nlast: signal.Signals\n"
            "def op(x: torch.FloatTensor, g: torch.distributed.ProcessGroup = None)"
            " -> torch.LongTensor | None:\n    y: torch.HalfTensor = x",
        ),
        # names of its own that sound like others
        ("numba", "def op(signal, time, exit): return signal.alarm(time.sleep, exit())"),
        ("numba", "def exit(code): return code\nexit(1)"),
        ("numba", "class Net:\n    def __init__(self): self.f_back = 1\nprint(Net().f_back)"),
        ("numba", "class Job:\n    def softmax(self): pass\nJob().softmax()"),
        ("opencl", "def op(queue, program, x): program.matmul(queue, (1,), None, x)"),
        ("c++", "static void connect(int a) {}\nvoid f() { connect(1); }"),
        ("c++", "struct Pipe { void send(int); };\nvoid f(Pipe p) { p.send(1); p.system(2); }"),
        ("cuda", "__device__ float read(const float* p) { return *p; }"),
        ("c++", "#define send(x) ((x) + 1)\nint f() { return send(1); }"),
        ("cuda", "namespace tile { int open(int); }\nvoid f() { tile::open(1); }"),
        ("cuda", "int cublas_like_tile(int n); void f() { cublas_like_tile(1); }"),
        # headers that nothing is called of
        ("cuda", "#include <cublas_v2.h>\ncublasHandle_t h;  // cublasSgemm\nvoid sgemm();"),
        ("cuda", '# include "cudnn.h"\n#include <cufft.h>\nconst char* said = "cudnnAddTensor";'),
        ("c++", "#include <mkl.h>\nstatic void sgemm(int stride) {}\nvoid f() { sgemm(MKL_ALL); }"),
        ("c++", "#include <Eigen/Dense>\nvoid f(float* y) { *y = 1; }"),
        # allocation, views, types
        (
            "triton",
            "import torch\ndef op(x, y):\n    part = torch.empty(4, dtype=torch.float32, "
            "device=x.device)\n    k[(1,)](x.contiguous().view(-1).t(), part.reshape(2, 2))",
        ),
        ("triton", "import torch.nn.functional as F\ndef op(x): return F.pad(x, (0, 1))"),
        ("triton", "import torch\nclass M(torch.nn.Module):\n    def forward(self, x): return x"),
        ("pallas", "def op(x): return run(jnp.pad(x, 1).reshape(-1), False).astype(jnp.float32)"),
        ("numba", "import numpy as np\n@numba.njit\ndef op(x, y): y[0] = np.sum(x) + x.max()"),
        ("numba", "@numba.njit(fastmath={'contract'})\ndef op(x, y): y[0] = x[0] * x[1] + x[2]"),
        # in the kernel the language's operators are the kernel
        (
            "pallas",
            "def mm(a_ref, b_ref, c_ref): c_ref[...] = a_ref[...] @ b_ref[...]\n"
            "def op(a, b):\n    f = mm\n    return pl.pallas_call(f)(a, b)",
        ),
        ("triton", "@triton.jit\ndef k2(x): tl.store(x, tl.sum(tl.load(x)) + tl.load(x).sum())"),
        ("pallas", "def op(x): return pl.pallas_call(lambda a, b: jnp.dot(a[...], b[...]))(x)"),
        (
            "pallas",
            "from jax.experimental.pallas import pallas_call as call\n"
            "def mm(a_ref, c_ref): c_ref[...] = jnp.dot(a_ref[...], a_ref[...])\n"
            "def op(a): return call(mm)(a)",
        ),
        # a reference that the kernel's entry does not use
        (
            "triton",
            "import torch\ndef reference(x): return torch.softmax(x, 0) @ x\n"
            "def op(x, y): k[(1,)](x)\nif __name__ == '__main__':\n    reference(1)",
        ),
        # ordinary caution
        ("numba", "try:\n    import numpy\nexcept ImportError:\n    pass\ncache: dict = {}"),
        (
            "triton",
            "import time, torch, os\nif __name__ == '__main__':\n    os.system('x')\n"
            "    torch.softmax(1)",
        ),
        ("c++", "#if 0\nvoid f() { system(0); }\n#endif\n#include <vector>"),
        ("c++", "#pragma omp parallel for simd reduction(+ : s) // not fast-math\nfor (;;) {}"),
        ("c++", "#pragma GCC unroll 4\n#pragma GCC ivdep\nfor (;;) {}"),
        ("c++", "__attribute__((always_inline)) inline void f() {}"),
        ("cuda", '#include <cuda_fp16.h>\n#include <cub/cub.cuh>\n#include "harness.h"'),
        (
            "cuda",
            "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) {\n"
            "  auto y = torch::empty_like(x); TORCH_CHECK(x.is_cuda());\n"
            "  auto s = at::cuda::getCurrentCUDAStream(); return y; }",
        ),
    ],
)
def test_honest_sources_have_no_hits(language: str, source: str) -> None:
    assert [str(hit) for hit in inspect(language, source)] == []


SHIPPED = [
    (name, candidate)
    for name in registry.names()
    for op in ops.names()
    for candidate in catalogue.candidates(op, registry.load(name))
]


@pytest.mark.full
def test_the_kernels_that_ship_are_accepted() -> None:
    """Inline assembly is the only thing in them that a reader is told of."""
    told = {
        (candidate.backend, candidate.language, candidate.op): hits
        for _, candidate in SHIPPED
        if guard.rejection(hits := guard.inspect(candidate, STRICT))
        or not {hit.rule.id for hit in hits} <= {"G404"}
    }
    assert not told


def test_all_kernels_that_ship_are_among_them() -> None:
    assert {name for name, _ in SHIPPED} == set(registry.names())


@pytest.mark.parametrize(
    ("policy", "language", "source"),
    [
        (
            guard.GuardPolicy(torch_ops="allow"),
            "triton",
            "import torch\ndef op(x): torch.softmax(x, 0)",
        ),
        (guard.GuardPolicy(torch_ops="allow"), "c++", "void f() { cblas_sgemm(1); }"),
        (guard.GuardPolicy(precision="allow_reduced"), "c++", '#pragma GCC optimize("fast-math")'),
    ],
)
def test_what_a_policy_allows_is_still_noted(
    policy: guard.GuardPolicy, language: str, source: str
) -> None:
    assert rejected(language, source)
    relaxed = inspect(language, source, policy)
    assert {hit.severity for hit in relaxed} == {"note"}
    assert not guard.rejection(relaxed)


def test_a_hit_says_where_what_and_what_to_do() -> None:
    hits = inspect("c++", "int x;\nvoid f() {\n  fork();  // now\n}\n")
    assert [str(hit) for hit in hits] == ["op.cpp:3: G102 starts a process: fork();  // now"]
    assert guard.rejection(hits).startswith(str(hits[0]) + " (Compute in this process")


def test_lines_below_a_continued_line_keep_their_numbers() -> None:
    hits = inspect("c++", "#define A \\\n  1 \\\n  + 1\nvoid f() { fork(); }\r\n")
    assert [hit.place for hit in hits] == ["op.cpp:4"]


def test_a_line_of_the_opencl_text_is_a_line_of_the_file() -> None:
    hits = inspect(
        "opencl", 'import numpy\nSOURCE = r"""\nint x;\n#pragma clang fp reassociate(on)\n"""\n'
    )
    assert [hit.place for hit in hits] == ["op.py:4"]


@pytest.mark.parametrize("language", ["triton", "pallas", "numba", "opencl"])
@pytest.mark.parametrize("source", ["def op(:", "\0", "import os\nos.system('x'", "x = 'open"])
def test_broken_syntax_is_left_to_the_compiler(language: str, source: str) -> None:
    assert not inspect(language, source)


def test_what_is_too_deep_to_be_read_is_not_let_through() -> None:
    assert rejected("numba", "x = " + "not " * 700 + "1") == {"G406"}
    assert not inspect("numba", "x = " + " + ".join(["1"] * 700))
    assert not inspect("c++", "int x = " + "(" * 5000 + "1" + ")" * 5000 + ";")
    for opened in ("&a ", "*a ", "mmap and ", "not mmap bitand "):
        assert rejected("cuda", "int x = " + opened * 7000 + "1;") == {"G406"}


@pytest.mark.full
def test_a_source_that_the_parser_does_not_get_through_is_refused_in_time() -> None:
    begin = time.thread_time()
    assert rejected("cuda", "[[a]] " * 20_000) == {"G406"}
    assert time.thread_time() - begin < 20


def test_a_name_of_the_source_is_not_the_systems_unless_the_scope_says_so() -> None:
    own = "int system(int x) { return x; }\n"
    assert not inspect("cuda", own + "int a = system(1);\nint b = mine::system(2);")
    assert rejected("cuda", own + "int a = ::system(1);")
    assert rejected("cuda", "#define A ::system\n" + own)


_PIECES = st.sampled_from(
    [
        "import os\n",
        "os.system('x')\n",
        "def f(x):\n    ",
        "class A(",
        ")",
        "x[",
        "]",
        "lambda a: ",
        "#define A(x) ",
        "#include <",
        "\\\n",
        '"""',
        "'",
        "getattr(os, ",
        "@",
        " = ",
        "*",
        "__import__(",
        "#if 0\n",
        "#endif\n",
        "asm(",
        "<<<1,2>>>",
        "pl.pallas_call(",
        "\0",
        "\ud800",
        "{",
        "}",
        ";",
        "\r",
    ]
)


@given(
    source=st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=30).map("".join),
    language=st.sampled_from(["c++", "cuda", "opencl", "triton", "pallas", "numba", "sycl"]),
)
def test_no_text_makes_the_guard_raise(source: str, language: str) -> None:
    for hit in guard.inspect(Candidate("op", "b", language, source, "op"), STRICT):
        assert hit.rule.id in RULES
        assert "\n" not in str(hit)


def test_every_name_leads_to_a_rule() -> None:
    assert {*PYTHON.values(), *NATIVE.values(), *NATIVE_CALLS.values()} <= set(RULES)


def cell(source: str, **more: Any) -> Any:
    question = Selection(["relu"], ["x86_64"], ["cpu"], ["ci"], ["float32"], **more)
    first = next(c for c in question.cells() if c.language == "c++")
    assert first.candidate is not None
    return replace(first, candidate=replace(first.candidate, source=source))


def test_a_rejected_source_is_a_record_with_its_place_and_never_built() -> None:
    refused = cell("#include <sys/socket.h>\nvoid f() { std::thread t; }\n")
    verdict, reason = refused.ruled_out
    assert verdict is Verdict.REJECTED
    record = unbuilt("run", refused)
    assert record.detail == reason
    assert record.detail.startswith("relu.cpp:1: G101 uses the network: #include <sys/socket.h>")
    assert [remark[:21] for remark in record.guard] == [
        "relu.cpp:1: G101 uses",
        "relu.cpp:2: note: G10",
    ]


def test_what_the_policy_allows_is_built_and_evaluated_anew() -> None:
    source = 'extern "C" int relu(const float* x, float* y, int64_t n) { return cblas_sgemm(1); }'
    strict, relaxed = cell(source), cell(source, torch_ops="allow")
    assert strict.ruled_out[0] is Verdict.REJECTED
    assert relaxed.ruled_out is None
    assert strict.key != relaxed.key


def test_check_shows_the_rejection_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.cpp"
    source.write_text("void g() { cblas_sgemm(1); }\nvoid f() { std::thread t; }\n")
    argv = ["op=relu", "backend=cpu", f"source={source}", "target=x86_64", f"reports={tmp_path}"]
    assert main.run(["check", *argv]) == 1
    shown = capsys.readouterr()
    assert "rejected (none): mine.cpp:1: G302 lets a vendor's library do the work" in shown.out
    assert "    mine.cpp:2: note: G107 starts threads" in shown.err


def test_a_policy_that_does_not_exist_is_an_error_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="No torch_ops policy 'alow'; did you mean 'allow'"):
        guard.torch_ops("alow")


@pytest.mark.parametrize("text", ["/* ", "\n", "\\\n", "  %:", "int x; /* ", "1'0 /*\n"])
def test_a_source_is_read_in_a_time_that_grows_as_it_does(text: str) -> None:
    begin = time.process_time()
    inspect("cuda", text * (100_000 // len(text)))
    assert time.process_time() - begin < 5


def test_what_follows_a_comment_without_an_end_is_read() -> None:
    """A builder may see the comment elsewhere, as in the name of a header."""
    for opened in ("#include <x/*.h>", "/*", "int x; /* a /* b"):
        assert "G405" in rejected("c++", f"{opened}\nvoid f() {{ syscall(39); }}")
