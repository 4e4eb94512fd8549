"""Two "models" of known strength and an agent on this machine, compared: results/compare/.

    .venv/bin/python -m benchmarks.scripted_models kernelbench=PATH backends=[cpu,triton]
    .venv/bin/python -m benchmarks.scripted_models ops=core n=10 heldout=true run=longer
    .venv/bin/python -m benchmarks.scripted_models serve=8765         # the server alone

PATH is a checkout of KernelBench, of whose first level twelve problems are asked for. The models
answer with the kernel that the offline author writes of a problem's graph, or that the catalogue
has of an operator; or with one that does not build, is wrong, cheats, or with words alone: which,
is drawn with the model's own chances from the request and its seed, so that equal requests have
equal answers. The agent (scripted_agent.py) asks the weak one, and has portkern judge what it
says, up to four times. No language model is involved.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import load_op
from portkern.cli import main as cli
from portkern.evaluator import from_torch
from portkern.spec import catalogue, registry

#: How likely each kind of answer is.
CHANCES: Final[Mapping[str, Mapping[str, float]]] = {
    "strong": {"right": 0.70, "wrong": 0.12, "broken": 0.10, "cheat": 0.03, "words": 0.05},
    "weak": {"right": 0.35, "wrong": 0.25, "broken": 0.25, "cheat": 0.05, "words": 0.10},
}
#: The model that the agent asks.
_ASKS: Final = "weak"
#: USD per million tokens.
PRICES: Final = {"strong": (3.0, 15.0), "weak": (0.2, 0.8)}
_BACKENDS: Final = {
    "c++": "cpu",
    "cuda": "cuda",
    "hip": "hip",
    "opencl": "opencl",
    "pallas": "pallas",
    "triton": "triton",
}
_IN_PYTHON: Final = ("opencl", "pallas", "triton")
_LANGUAGE = re.compile(r"You write (\S+) kernels")
_OPERATION = re.compile(r"^## Operation\s+(\w+)", re.MULTILINE)
_CHARACTERS_OF_A_TOKEN: Final = 4
#: What is asked; it is not how fast the catalogue is that is shown.
_ASKED: Final[Mapping[str, str]] = {
    "ops": "basic",
    "n": "1",
    "workloads": "ci",
    "heldout": "false",
    "sanitize": "none",
    "rounds": "3",
    "budget_s": "0",
    "track": "false",
    "reports": "reports",
    "run": "compare-scripted",
}
#: Problems of KernelBench's first level: activations, rows, reductions, losses, a product, a scan,
#: a pool and a convolution.
_PROBLEMS: Final = (
    "1_Square_matrix_multiplication_",
    "19_ReLU",
    "23_Softmax",
    "26_GELU_",
    "40_LayerNorm",
    "42_Max_Pooling_2D",
    "47_Sum_reduction_over_a_dimension",
    "51_Argmax_over_a_dimension",
    "67_conv_standard_1D",
    "89_cumsum",
    "94_MSELoss",
    "95_CrossEntropyLoss",
)
#: The address is part of what decides a sample: a sweep that goes on has to find it again.
_PORT: Final = 8719
_AGENT: Final = Path(__file__).resolve().with_name("scripted_agent.py")
#: What the agent's box shows of this machine.
_SEES: Final = ", ".join((sys.base_prefix, str(_AGENT)))
#: Small files of the sweep that are kept.
_KEPT: Final = ("samples.jsonl", "compare.html", "compare.md", "compare.csv")


@dataclass(frozen=True)
class Problems:
    """``files``: of operators that are asked for, by name."""

    files: Mapping[str, Path]

    @classmethod
    def of(cls, checkout: Path) -> Problems:
        level = checkout / "KernelBench" / "level1"
        missing = [name for name in _PROBLEMS if not (level / f"{name}.py").exists()]
        if missing:
            raise SystemExit(f"{level} has no {missing[0]}.py; expected a checkout of KernelBench")
        paths = [level / f"{name}.py" for name in _PROBLEMS]
        return cls({load_op(str(path)).name: path for path in paths})


_problems = Problems({})
#: One trace at a time: it takes a worker of its own.
_tracing = threading.Lock()


@cache
def _written(path: Path, backend: str) -> str:
    return from_torch.plain_kernel(str(path), backend)


@dataclass(frozen=True)
class AskedKernel:
    op: str
    language: str

    @classmethod
    def read(cls, messages: list[dict[str, str]]) -> AskedKernel | None:
        """The kernel that a prompt asks for; None where it is not one that is known here."""
        text = "\n\n".join(message["content"] for message in messages)
        language, operation = _LANGUAGE.search(text), _OPERATION.search(text)
        if language is None or operation is None:
            return None
        asked = cls(operation[1], language[1])
        known = asked.op in _problems.files or asked.op in ops.CORE
        return asked if known and asked.language in _BACKENDS else None

    @property
    def kernel(self) -> str:
        backend = registry.load(_BACKENDS[self.language])
        if path := _problems.files.get(self.op):
            with _tracing:
                return _written(path, backend.name)
        fitting = catalogue.candidates(self.op, backend)
        return next(one.source for one in fitting if one.language == self.language)

    @property
    def entry(self) -> re.Pattern[str]:
        """The pattern of a kernel's entry, up to where its body begins."""
        if self.language in _IN_PYTHON:
            return re.compile(rf"^def {self.op}\(\s*(\w+)[^)]*\)[^:]*:\n", re.MULTILINE)
        return re.compile(rf"\bint {self.op}\(\s*const \w+\s*\*\s*\w*\s*(\w+)[^;{{}}]*\) *\{{\n")

    def inserted(self, in_python: str, in_c: str) -> str:
        """The kernel, with a line that comes first in its entry; ``ARG`` is its first argument."""
        line = f"    {in_python}\n" if self.language in _IN_PYTHON else f"  {in_c}\n"
        found = list(self.entry.finditer(self.kernel))
        if not found:
            raise SystemExit(f"No entry in the {self.language} kernel of {self.op}")
        end = found[-1].end()
        return self.kernel[:end] + line.replace("ARG", found[-1][1]) + self.kernel[end:]


def _right(asked: AskedKernel) -> str:
    return asked.kernel


def _wrong(asked: AskedKernel) -> str:
    """It leaves its output as it was."""
    return asked.inserted("return", "return 0;")


def _broken(asked: AskedKernel) -> str:
    return asked.inserted("no_such_module.begin(", "no_such_function(ARG;")


def _cheat(asked: AskedKernel) -> str:
    """A library does part of the work."""
    return asked.inserted("__import__('torch').relu(ARG)", "cblas_sscal(1, 1.0f, (float*)ARG, 1);")


KERNELS: Final[Mapping[str, Callable[[AskedKernel], str]]] = {
    "right": _right,
    "wrong": _wrong,
    "broken": _broken,
    "cheat": _cheat,
}


def kind_of(body: Mapping[str, Any]) -> str:
    """The kind of answer that this request gets."""
    said = json.dumps([body["model"], body.get("seed"), body["messages"]], sort_keys=True)
    chances = CHANCES[body["model"]]
    drawn = Random(hashlib.sha256(said.encode()).digest())
    return drawn.choices(list(chances), list(chances.values()))[0]


def answer(body: Mapping[str, Any]) -> str:
    asked, kind = AskedKernel.read(body["messages"]), kind_of(body)
    if asked is None or kind == "words":
        return "I would tile it and keep each row in registers."
    return f"Here it is.\n\n```{asked.language}\n{KERNELS[kind](asked).rstrip()}\n```\n"


# ---- the server


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = body.get("model") in CHANCES
        sent = json.dumps(_completion(body) if known else _unknown(body)).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _unknown(body: Mapping[str, Any]) -> dict[str, Any]:
    text = f"no model {body.get('model')!r}, there are {' and '.join(CHANCES)}"
    return {"error": {"message": text, "type": "not_found"}}


def _completion(body: Mapping[str, Any]) -> dict[str, Any]:
    text = answer(body)
    shown = sum(len(message["content"]) for message in body["messages"])
    tokens = {
        "prompt_tokens": shown // _CHARACTERS_OF_A_TOKEN,
        "completion_tokens": len(text) // _CHARACTERS_OF_A_TOKEN,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {**tokens, "total_tokens": sum(tokens.values())},
    }


@contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """The server's ``api_base``, while the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _agent(url: str) -> str:
    """Its command, with the interpreter that this one was made from: it sees no other."""
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    return f"agent:{python} -I {_AGENT} {url} {_ASKS} {{file}}"


def models(url: str) -> list[str]:
    """The options by which ``portkern compare`` is told about these models."""
    each = ", ".join(
        [
            *(f"{name}: {{model: openai/{name}, api_base: '{url}'}}" for name in CHANCES),
            f"agent: {{model: '{_agent(url)}', timeout_s: 1800, extra: {{sees: [{_SEES}]}}}}",
        ]
    )
    prices = ", ".join(
        f"openai/{name}: {{input: {tokens_in}, output: {tokens_out}}}"
        for name, (tokens_in, tokens_out) in PRICES.items()
    )
    return [f"models={{{each}}}", f"prices={{{prices}}}"]


# ---- the example


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if checkout := words.pop("kernelbench", ""):
        global _problems
        _problems = Problems.of(Path(checkout))
        files = ",".join(map(str, _problems.files.values()))
        words = {"ops": f"[{files}]", "prompts": "false", **words}
    if "serve" in words:
        with serving(int(words["serve"])) as url:
            print(" ".join(["portkern compare", *models(url)]), flush=True)
            threading.Event().wait()
    code = _sweep({**_ASKED, **words})
    if checkout:
        _keep({**_ASKED, **words})
    sys.exit(code)


def _sweep(asked: Mapping[str, str]) -> int:
    with serving(_PORT) as url:
        return cli.run(["compare", *models(url), *(f"{k}={v}" for k, v in asked.items())])


def _keep(asked: Mapping[str, str]) -> None:
    folder, kept = Path(asked["reports"]) / asked["run"], _script.RESULTS / "compare"
    kept.mkdir(exist_ok=True)
    for name in _KEPT:
        if (folder / name).exists():
            shutil.copy(folder / name, kept / name)


if __name__ == "__main__":
    main()
