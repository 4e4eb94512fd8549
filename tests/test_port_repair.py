"""Models mend what a port's rules could not: what they write is kept where the proof passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from portkern.agent.replies import Unread
from portkern.cli import main
from portkern.cuda_source import syntax
from portkern.errors import ConfigError
from portkern.port.repair import workbench
from portkern.port.repair.edit import Edited, edited
from portkern.port.repair.excerpt import Excerpt, excerpt
from portkern.port.repair.plan import RepairPlan
from portkern.port.repair.refusal import refusal
from portkern.port.repair.standing import Standing
from tests.llm_server import MODEL, Script, Server, refuse

#: Sums of blocks of 128 in two stages. The width comes from the device's properties, which no rule
#: sees: where it is 64, there are two partial sums, and the second stage reads four.
SUM = """\
#include <cstdio>
#include <cuda_runtime.h>

__global__ void block_sum(const int* in, int* out, int width) {
  __shared__ int part[4];
  int value = in[blockIdx.x * 128 + threadIdx.x];
  for (int offset = width / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffff, value, offset);
  if (threadIdx.x % width == 0) part[threadIdx.x >> 5] = value;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}

__global__ void twice(const int* in, int* out) { out[threadIdx.x] = 2 * in[threadIdx.x]; }

int main() {
  int in[256], out[2], *d_in, *d_out, *d_twice;
  for (int i = 0; i < 256; ++i) in[i] = i % 7;
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  cudaMalloc(&d_in, sizeof(in));
  cudaMalloc(&d_out, sizeof(out));
  cudaMalloc(&d_twice, sizeof(in));
  cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice);
  block_sum<<<2, 128>>>(d_in, d_out, properties.warpSize);
  twice<<<1, 256>>>(d_in, d_twice);
  cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost);
  printf("%d %d\\n", out[0], out[1]);
  return 0;
}
"""


def replace(before: str, after: str) -> str:
    return f"I changed it.\n<<<<<<< SEARCH\n{before}\n=======\n{after}\n>>>>>>> REPLACE\n"


SECOND = "  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3];"
FIRST = "  if (threadIdx.x % width == 0) part[threadIdx.x >> 5] = value;"
KEPT = "for (int offset = 16; offset > 0; offset /= 2)"
MENDED = replace("  for (int offset = width / 2; offset > 0; offset /= 2)", f"  {KEPT}") + replace(
    FIRST, FIRST.replace("width", "32")
)
#: Reads only what was written, and adds too little.
WRONG = replace(SECOND, "  if (threadIdx.x == 0) out[blockIdx.x] = part[0];")
WIDER = replace(
    "__global__ void block_sum(const int* in, int* out, int width) {",
    "__global__ void block_sum(const int* in, long* out, int width) {",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sum.cu"
    path.write_text(SUM)
    return path


def port(source: Path, server: Server, *more: str) -> int:
    return main.run(
        [
            "port",
            str(source),
            "preset=port_repair",
            "jobs=1",
            f"reports={source.parent / 'reports'}",
            f"models.coder.model={MODEL}",
            f"models.coder.api_base={server.url}",
            "models.coder.retries=0",
            "models.coder.backoff_s=0",
            "cache=false",
            *more,
        ]
    )


def run_folder(source: Path) -> Path:
    return source.parent / "reports" / "port-sum.cu"


def repairs(source: Path) -> list[dict[str, object]]:
    text = (run_folder(source) / "repairs.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def tree(source: Path) -> str:
    return (run_folder(source) / "tree" / "sum.cu").read_text()


def ported(source: Path, script: Script, *more: str) -> tuple[int, list[str]]:
    """The exit code, and what was asked."""
    with Server(script) as server:
        return port(source, server, *more), server.prompts


# ---- the loop


@pytest.mark.drawn
def test_what_is_wrong_is_told_and_refused_and_wrong_edits_come_to_nothing(source: Path) -> None:
    code, prompts = ported(source, [WIDER, WRONG, MENDED])
    assert code == 0
    first, second, third = prompts
    assert "block_sum (line 4): wrong" in first and "sum.cu:11" in first and "SX107" in first
    assert "64 lanes" in first and "twice" not in first.partition("## What is wrong")[2]
    assert str(source.parent) not in "".join(prompts), "a folder of this machine was told"
    assert "changes the signature of block_sum from (const int*, int*, int)" in second
    assert "An edit that was not kept" in third and "part[0];" in third
    assert "nothing is better" in third and "expected 379" in third
    assert KEPT in tree(source) and KEPT in (run_folder(source) / "port.patch").read_text()
    lines = repairs(source)
    assert [line["status"] for line in lines] == ["refused", "undone", "kept"]
    last = lines[-1]
    assert (
        str(last["prompt"]).startswith("port_repair@") and last["model"] == MODEL and last["diff"]
    )
    assert isinstance(last["tokens_in"], int) and last["tokens_in"] > 100
    change = last["kernels"]
    assert isinstance(change, list) and len(change) == 1
    assert (change[0]["before"], change[0]["after"]) == ("wrong", "proven in emulation")
    for page in ("port.md", "port.html"):
        text = (run_folder(source) / page).read_text()
        assert f"repaired by {MODEL}" in text.replace("\\", "")


@pytest.mark.full
def test_attempts_end_with_their_budget_and_what_was_answered_is_never_paid_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with Server([WRONG, MENDED]) as server:
        with monkeypatch.context() as patched:
            patched.setattr(workbench.Workbench, "try_text", killed)
            with pytest.raises(KilledError):
                port(source, server, "budget.attempts=1")
        assert len(server.requests) == 1
        assert port(source, server, "budget.attempts=1") == 1
        assert len(server.requests) == 1
        assert [line["status"] for line in repairs(source)] == ["undone"]
        assert SECOND in tree(source), "the mechanical port stays"
        assert "budget.attempts" in (run_folder(source) / "port.md").read_text()
        # With one attempt more, the one that was made is gone through and not asked.
        assert port(source, server, "budget.attempts=2") == 0
        assert len(server.requests) == 2
        assert [line["status"] for line in repairs(source)] == ["undone", "kept"]


@pytest.mark.full
def test_a_model_that_is_down_leaves_the_mechanical_port(source: Path) -> None:
    code, _ = ported(source, lambda *_: refuse(503))
    assert code == 3
    assert SECOND in tree(source)
    assert "wrong" in (run_folder(source) / "port.md").read_text()


def test_without_a_model_it_is_said_which_to_name(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in ("repair=true", "preset=port_repair"):
        assert main.run(["port", str(source), asked]) == 2
        assert "models.coder.model=<litellm id>" in capsys.readouterr().err
    assert main.run(["port", str(source), "preset=port_repairs"]) == 2
    assert "did you mean 'port_repair'?" in capsys.readouterr().err
    assert main.run(["port", str(source), "to=cpu", "repair=true"]) == 2
    assert "expected AMD GPUs or cuda" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="patience=0"):
        RepairPlan({"coder": MODEL}, patience=0)
    assert main.run(["port", str(source), "repair=true", "lint=only"]) == 2


# ---- what stays as it is


def edit(before: str, after: str) -> str:
    assert SUM.count(before) == 1
    return refusal(SUM, SUM.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("int* out, int width", "int* out, long width", "signature of block_sum"),
        ("__global__ void twice", "__global__ void thrice", "removes the kernel twice"),
        ("{ out[threadIdx.x] = 2 * in[threadIdx.x]; }", "{ return; }", "empties the kernel twice"),
        ("twice<<<1, 256>>>", "twice<<<1, 128>>>", "changes the launch of twice"),
        ("i % 7", "0", "host's function main"),
        ("#include <cstdio>\n", '#include <cstdio>\n#include "else.h"\n', "adds #include"),
        ("#include <cstdio>\n", "", "removes #include"),
        ("int main()", "#ifdef EMULATED\n#endif\nint main()", "condition of the preprocessor"),
        ("int main()", "#define printf(...)\nint main()", "macro printf"),
        ("int main()", "#pragma GCC poison x\nint main()", "#pragma"),
        ("int main()", "__global__ void more() {}\nint main()", "adds the kernel more"),
        ("__syncthreads();", "__syncthreads();  // all", "changes nothing"),
    ],
)
def test_an_edit_that_changes_what_must_stay_is_refused(before: str, after: str, why: str) -> None:
    assert why in edit(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("part[4]", "part[8]"),
        ("__global__ void twice", "__device__ int two() { return 2; }\n__global__ void twice"),
        ("__global__ void twice", "constexpr int HALF = 32;\n__global__ void twice"),
        ("#include <cstdio>\n", "#include <cstdio>\n#include <hip/hip_fp16.h>\n"),
        ("  for (int offset", "#pragma unroll\n  for (int offset"),
    ],
)
def test_an_edit_of_device_code_is_tried(before: str, after: str) -> None:
    assert edit(before, after) == ""


def test_a_constant_that_the_host_uses_stays() -> None:
    text = "constexpr int SIZE = 32;\n" + SUM.replace("int in[256]", "int in[SIZE * 8]")
    assert "SIZE, which the host's code uses" in refusal(text, text.replace("= 32", "= 64"))


# ---- replies


def read(reply: str, text: str = SUM) -> str:
    made = edited(Excerpt(text), reply)
    assert isinstance(made, Edited), made
    return made.text


def test_functions_may_be_given_whole_with_new_ones_before_them() -> None:
    block = (
        "__device__ int two() { return 2; }\n\n"
        "__global__ void twice(const int* in, int* out) { out[threadIdx.x] = two(); }\n"
    )
    text = read(f"So:\n```hip\n{block}```\n")
    assert text.count("void twice") == 1 and text.index("int two()") < text.index("void twice")
    assert "= two();" in text and "block_sum<<<2, 128>>>" in text
    assert refusal(SUM, text) == ""


def test_a_file_that_is_given_whole_changes_only_where_it_differs() -> None:
    whole = SUM.replace("2 * in[", "in[threadIdx.x] + in[")
    assert read(f"```cpp\n{whole}```") == whole


@pytest.mark.parametrize("reply", ["", "I cannot.", "```hip\nint x;\n```", replace("absent", "x")])
def test_a_reply_without_an_edit_is_said_to_have_none(reply: str) -> None:
    assert isinstance(edited(Excerpt(SUM), reply), Unread)


def test_a_reply_that_no_parser_ends_with_is_an_attempt_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "__global__ void twice(const int* in, int* out) {" + " out[0] = in[0];" * 5000 + "}\n"
    monkeypatch.setattr("portkern.cuda_source.tree._LIMIT_S", -1.0)
    made = edited(Excerpt(SUM), f"```hip\n{long}```\n")
    assert isinstance(made, Unread) and "cannot be parsed" in made.why
    assert "cannot be parsed" in refusal(SUM + long, SUM + long.replace("in[0]", "1", 1))


def test_of_a_long_file_the_kernels_and_what_they_need_are_shown() -> None:
    filler = "".join(f"void other_{k}() {{ int a = {k}; }}\n" for k in range(600))
    text = (
        "#define LANES 32\n#define OTHER 1\n"
        "__device__ int helper(int x) { return x + LANES; }\n"
        f"{filler}"
        "__global__ void k(int* x) {\n  x[0] = helper(1);\n}\n"
        f"{filler}"
    )
    shown = excerpt(syntax.parse(text), ["k"])
    assert "helper(int x)" in shown.shown and "#define LANES" in shown.shown
    assert "other_5" not in shown.shown and "OTHER" not in shown.shown
    made = edited(shown, replace("  x[0] = helper(1);", "  x[0] = helper(2);"))
    assert isinstance(made, Edited)
    assert made.text == text.replace("helper(1)", "helper(2)")
    mark = next(line for line in shown.shown.splitlines() if line.startswith("// ----"))
    assert isinstance(edited(shown, replace(mark, "// mine")), Unread)


# ---- the order


def test_a_text_is_better_where_nothing_is_worse() -> None:
    wrong, proven = Standing(1, "wrong", 0, 2), Standing(1, "proven in emulation", 0, 0)
    assert proven.better(wrong) and not wrong.better(proven)
    assert Standing(1, "wrong", 0, 1).better(wrong) and not wrong.better(wrong)
    assert not Standing(1, "wrong", 0, 0).better(wrong), "its values differ now"
    assert not Standing(1, "not proven", 0, 0).better(wrong), "less is known of it"
    assert not Standing(1, "needs hardware", 0, 0).at_least(wrong)
    assert not Standing(0, "proven in emulation", 0, 0).better(wrong), "it is built no more"
    assert Standing(1, "needs a human", 0, 0).better(wrong)
