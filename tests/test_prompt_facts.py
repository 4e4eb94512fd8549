"""Prompts say of a target what its data say, of a venue what is checked there, and to each author
only what is about his language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from portkern.agent import briefing, memory
from portkern.agent.guide import chosen
from portkern.agent.slot import Slot
from portkern.agent.task import Ends, Task
from portkern.cells.selection import load_op
from portkern.cli.verbs.generate import read
from portkern.spec import registry, target
from portkern.spec.op import PRECISIONS, Precision
from portkern.spec.target import AmdLimits, Target
from tests.test_prompts import AUTHORS, CRITICS, PASSED, evaluated, facts, text, writer

ROOT = Path(__file__).parents[1]
#: A number by itself: no part of a name (gfx942, dwordx4) or of a shape (16x16).
NUMBER = re.compile(r"(?<![\w.^-])\d+(?:\.\d+)?(?![\w^]|\.\d)")
#: One with the unit of something that targets differ in.
OF_HARDWARE = re.compile(
    r"(?<![\w.^-])(\d+(?:\.\d+)?) (?:KB|MB|GB/s|TFLOP/s|lanes|VGPRs|CUs|SMs|XCDs|waves|warps"
    r"|banks|floats|vector registers)\b"
)
#: Numbers of hints that are advice, or of the vendor's hardware as a whole; each with its hint.
ADVICE = {
    "16 bytes": "the widest load of a thread",
    "Keep 4 to 8 independent accumulators": "",
    "6 x 16": "",
    "14 x 32": "",
    "32 to 48 KB": "the L1 of CPUs",
    "3 to 4 stages": "",
    "2 to 4 stages": "",
    "is 4 warps starting at a multiple of 4": "PTX ISA, wgmma",
    "blocks of 128 to 256 threads": "",
    "256 threads (4 waves)": "4 x the wave's 64 lanes",
    "32 banks of 4 bytes": "CDNA, as ROCm's guides have it",
    "num_warps 4 (8": "",
    "num_stages 2 for one GEMM, 1 for two": "",
    "leave waves_per_eu at 0 first; 1 to 4": "",
    "matrix_instr_nonkdim 16 first": "",
    "BLOCK_K 32 to 64 for tl.dot, 128": "",
    "3 or more tend": "",
    "3 or 4 dwords": "features.async_copy",
    "kpack 2": "",
    "at least 1024 blocks": "",
    "769 to 798 TFLOP/s": "measured on one H200",
    "holds 8 elements": "RDNA4's layout of 16x16x16 over 32 lanes",
    "bias 8, largest 240": "FNUZ",
    "(2-SM": "",
    "1 << lane need 64 bits": "HIP's lane masks",
    "num_warps 4 or 8": "",
    "64 rows or more": "what a warpgroup multiplies",
    "of which 128 fill": "tcgen05",
    "and num_warps 4,": "",
    "and 8:": "",
    "and 8.": "",
    "registers of 4 warps": "",
    "a row of a block has 128 bytes": "the widest swizzle",
    "num_stages 3 or 4": "",
    "num_stages 2 or 3": "",
    "num_stages 3 to 5": "",
    "16 bytes or more": "the widest load of a thread",
    "multiples of 16 bytes": "tensor maps",
    "last stride is 1": "tensor maps",
    "groups of about 8 rows": "",
    "max_num_imprecise_acc=128": "",
    "every 128 of k": "",
    "num_warps 4 or more": "",
    "16 rows or more": "mma.sync",
}
PLACES = [
    (backend, language, place)
    for backend in registry.names()
    for place in target.names()
    if registry.load(backend).supports(target.load(place))
    for language in registry.load(backend).languages_on(target.load(place))
]


def task(
    backend: str, language: str, place: str, op: str = "matmul", dtype: str = "float32", **more: Any
) -> Task:
    made = load_op(op)
    sets = {name: made.workloads[name] for name in ("ci", "typical")}
    return Task(made, target.load(place), registry.load(backend), language, dtype, sets, **more)


def names_of_presets() -> list[str]:
    files = (ROOT / "conf" / "preset").glob("*.yaml")
    return sorted(file.stem for file in files if file.stem != "none")


def on_emulator(one: Task) -> Task:
    return replace(one, ends="emulator", checkers=tuple(one.backend.checkers)[:2])


def prompt(one: Task, template: str = "direct") -> str:
    given = evaluated(one, PASSED) if template in CRITICS else facts(one, Slot())
    return text(template, given)


def part(shown: str, title: str) -> str:
    return shown.split(f"## {title}\n")[1].partition("\n## ")[0]


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def known(one: Target) -> set[float]:
    """The numbers that the target's file states, and those that follow from them."""
    stated = one.model_dump(exclude={"hints", "sources", "uncertain"}, exclude_none=True)
    found = set(numbers(stated))
    found |= {n / 1024 for n in found} | {n / 2**20 for n in found}
    if isinstance(one.limits, AmdLimits):
        step, total = one.limits.vgpr_granule, one.limits.vgprs_simd
        found |= {total // w // step * step for w in range(1, one.limits.waves_simd + 1)}
    dies = one.features.extras.get("xcds")
    if isinstance(dies, int) and dies and one.multiprocessors:
        found.add(one.multiprocessors // dies)
    bits = getattr(one.limits, "simd_bits", 0)
    return found | ({bits / 32} if bits else set())


def without_advice(shown: str) -> str:
    for words in sorted(ADVICE, key=len, reverse=True):
        shown = re.sub(re.escape(words), "…", shown, flags=re.IGNORECASE)
    return shown


# ---- every number


def strange(one: Task, shown: str) -> list[str]:
    """Numbers with a unit of hardware that are not the target's."""
    return [
        n for n in OF_HARDWARE.findall(without_advice(shown)) if float(n) not in known(one.target)
    ]


@pytest.mark.full
@pytest.mark.parametrize("ends", ["hardware", "emulator", "build"])
def test_every_number_about_a_target_is_in_its_data(ends: Ends) -> None:
    for place in PLACES:
        for dtype in ("float32", "float16"):
            one = task(*place, dtype=dtype, ends=ends)
            about = part(prompt(one), "Target").replace(one.target.title, "")
            about = re.sub(r"element e of lane l is `.*`", "", about)  # test_matrix_lanes.py
            allowed = {*known(one.target), float(briefing.ridge(one) or 0)}
            for said in NUMBER.findall(without_advice(about)):
                assert float(said) in allowed, (place, said, about)


@pytest.mark.full
@pytest.mark.parametrize("name", [*AUTHORS, *CRITICS])
def test_no_prompt_has_a_number_of_another_target(name: str) -> None:
    for place in PLACES:
        one = task(*place)
        given = evaluated(one, PASSED) if name in CRITICS else facts(one, Slot(parents=("0.0",)))
        shown = text(name, given | {"donors": []})  # theirs are of other targets
        assert not strange(one, shown), (place, strange(one, shown))


@pytest.mark.full
def test_what_presets_recall_has_no_number_of_another_target_and_no_hint_again() -> None:
    """The presets are those that know something before their first attempt, for each target."""
    axes = {}
    for name in names_of_presets():
        options = read(["op=matmul", "target=x86_64", f"preset={name}", "models.coder.model=x/y"])
        axes[json.dumps(options.memory, default=dict, sort_keys=True)] = dict(options.memory)
    knowing = [each for each in axes.values() if each.get("knowledge") not in (None, "none")]
    assert knowing
    for chosen_memory in knowing:
        for place in PLACES[::4]:  # each language, with several targets
            one = task(*place)
            recall = memory.load(chosen_memory, task=one, folder=Path("build/unused"))
            given = writer(one, Slot(), [], recall=recall).facts("coder")
            shown = text("direct", facts(one, Slot()) | given)
            for hint in one.target.hints:
                assert shown.count(hint.text) <= 1, (place, hint.text)
            assert not strange(one, "\n".join(block.text for block in given["blocks"]))  # type: ignore[attr-defined]


def test_the_rule_finds_a_number_of_another_target() -> None:
    one = task("triton", "triton", "gfx942")
    assert NUMBER.findall("64 KB on gfx942, 16x16 tiles, dwordx4, sm_90: 99.5 KB.") == [
        "64",
        "99.5",
    ]
    assert strange(one, "64 KB of LDS, 304 CUs, 160 KB") == ["304", "160"]
    assert not strange(task("triton", "triton", "mi300x"), "64 KB of LDS, 304 CUs")


# ---- to each author what is about his language

#: Words that only authors of these languages can do something with.
WORDS = {
    "num_warps": {"triton", "pallas"},
    "waves_per_eu": {"triton"},
    "matrix_instr_nonkdim": {"triton"},
    "tl.dot": {"triton"},
    "Numba": {"numba"},
    "prange": {"numba"},
    "#pragma omp": {"c++"},
    "__restrict__": {"c++"},
    "intrinsic": {"c++"},
    "warpSize": {"hip"},
    "readfirstlane": {"hip"},
    "ldmatrix": {"cuda"},
    "__builtin_amdgcn_mfma": {"hip"},
    "jnp.dot": {"pallas", "pallas-tpu"},
    "VMEM": {"pallas-tpu"},
    "work-items per work-group": {"opencl"},
    "portable.h": set[str](),
}


def test_a_prompt_names_nothing_of_other_languages() -> None:
    for backend, language, place in PLACES:
        shown = prompt(task(backend, language, place, dtype="float16"))
        for words, languages in WORDS.items():
            assert language in languages or words not in shown, (backend, language, place, words)


def test_a_prompt_does_have_what_is_about_its_language() -> None:
    said = {
        words: {
            language
            for backend, language, place in PLACES
            if words in prompt(task(backend, language, place, dtype="float16"))
        }
        for words in ("num_warps", "prange", "#pragma omp", "warpSize", "ldmatrix", "tl.dot")
    }
    assert said == {words: WORDS[words] for words in said}


@pytest.mark.parametrize(("backend", "language", "place"), PLACES)
def test_each_hint_is_said_once_and_without_its_sources(
    backend: str, language: str, place: str
) -> None:
    one = task(backend, language, place)
    shown = prompt(one)
    for hint in one.target.hints_for(language, without=briefing.without(one)):
        assert shown.count(hint) == 1
    assert not [source for source in one.target.sources if source in shown]


def test_looking_hints_up_does_not_say_them_again() -> None:
    one = task("cuda", "cuda", "h200")
    for options in ({"knowledge": "bm25", "corpora": ["hints"]}, {"knowledge": "kb"}):
        recall = memory.load(options, task=one, folder=Path("build/unused"))
        given = writer(one, Slot(), [], recall=recall).facts("coder")
        shown = text("direct", facts(one, Slot()) | given)
        assert all(shown.count(hint.text) <= 1 for hint in one.target.hints)


def test_a_cpu_without_fused_multiply_adds_is_not_told_of_their_latency() -> None:
    about = part(prompt(task("cpu", "c++", "x86_64")), "Target")
    assert re.findall("fused", about) == ["fused"] and "without fused multiply-add" in about
    assert "latency of fused multiply-adds" in prompt(task("cpu", "c++", "x86_64_avx2"))


# ---- where it ends


@pytest.mark.parametrize(("backend", "language", "place"), PLACES)
def test_only_what_is_timed_is_said_to_be(backend: str, language: str, place: str) -> None:
    timed = prompt(task(backend, language, place))
    assert "It is timed on these:" in timed and "emulator" not in timed.partition("## How")[0]
    for ends in ("emulator", "build"):
        shown = prompt(task(backend, language, place, ends=ends)).partition("## How")[0]
        assert "timed" not in shown and "fastest" not in shown
        assert ("is checked on these" in shown) == (ends == "emulator")


def test_sizes_that_count_are_told_where_only_small_ones_are_checked() -> None:
    one = task("hip", "hip", "mi300x", ends="emulator")
    small = replace(one, workloads={"ci": one.workloads["ci"]})
    assert [each.what for each in briefing.sizes(small)] == ["checked", "meant"]
    assert [each.what for each in briefing.sizes(one)] == ["checked"]
    assert [each.what for each in briefing.sizes(replace(one, ends="hardware"))] == [
        "timed",
        "checked",
    ]


def test_sizes_that_nobody_sees_are_promised_only_where_there_are_some() -> None:
    one = task("cpu", "c++", "x86_64")
    assert "that you do not see" in prompt(one)
    assert "that you do not see" not in prompt(replace(one, unseen=False))


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_what_the_emulator_has_no_model_of_is_not_recommended_where_kernels_end_there(
    backend: str,
) -> None:
    for place in (place for name, _, place in PLACES if name == backend):
        one = on_emulator(task(backend, backend, place, dtype="float16"))
        lines = part(prompt(one), "Target").splitlines()
        told = [line for line in lines if not re.search("^The emulator|not compile|exists", line)]
        for name in one.unmodelled:
            assert not re.search(rf"\b{re.escape(name)}\b", "\n".join(told), re.IGNORECASE), place
    shown = prompt(on_emulator(task("cuda", "cuda", "h200")))
    assert "no model of clusters" in shown
    shown = prompt(on_emulator(task("cuda", "cuda", "h200", dtype="float16")))
    assert "`wgmma.mma_async" in shown and "TMA" in shown


def test_a_prompt_tells_the_checkers_that_look_on_and_no_others() -> None:
    one = on_emulator(task("hip", "hip", "mi300x"))
    assert set(briefing.facts(one)["watched"]) == set(one.checkers)  # type: ignore[call-overload]
    assert "width of the warp" not in prompt(one)
    assert "width of the warp" in prompt(replace(one, checkers=("width",)))
    assert "Both wave widths" not in prompt(one)


@pytest.mark.parametrize("policy", PRECISIONS)
def test_a_precision_is_told_with_what_it_means(policy: Precision) -> None:
    one = task("cuda", "cuda", "h200")
    shown = prompt(replace(one, op=replace(one.op, precision=policy)))
    assert f"Precision: {PRECISIONS[policy]}." in shown
    assert ("tf32 in" in shown) == (policy != "strict")


# ---- matrix instructions


def test_float32_has_matrix_instructions_where_they_take_it_as_it_is() -> None:
    assert [line.inputs for line in briefing.matrix(task("hip", "hip", "mi300x"))] == ["f32"]
    assert not briefing.matrix(task("cuda", "cuda", "h200"))
    assert "do not take the inputs" in prompt(task("cuda", "cuda", "h200"))
    assert not briefing.matrix(task("opencl", "opencl", "mi300x", dtype="float16"))


def test_intrinsics_are_told_to_those_who_write_them() -> None:
    spelled = briefing.matrix(task("hip", "hip", "mi300x", dtype="float16"))
    chosen_by_compiler = briefing.matrix(task("triton", "triton", "mi300x", dtype="float16"))
    assert [line.calls[0] for line in spelled] == ["__builtin_amdgcn_mfma_f32_32x32x8f16"]
    assert [line.shapes for line in chosen_by_compiler] == [line.shapes for line in spelled]
    assert not any(line.calls for line in chosen_by_compiler)


def test_lanes_are_told_to_those_who_write_the_instructions_out() -> None:
    shown = prompt(task("hip", "hip", "mi300x", dtype="float16"))
    assert (
        "  16x16x16: element e of lane l is `A[l % 16][4 * (l / 16) + e], "
        "B[4 * (l / 16) + e][l % 16], sums[4 * (l / 16) + e][l % 16]`\n" in shown
    )
    wide = prompt(task("cuda", "cuda", "h200", dtype="float16"))
    assert "  64x64x16, 64x128x16, 64x256x16: element e of lane l is `sums[" in wide
    assert "of lane l" not in prompt(task("triton", "triton", "mi300x", dtype="float16"))


@pytest.mark.parametrize("op", ["relu", "softmax", "transpose", "layernorm_backward"])
def test_matrix_instructions_are_told_where_matrices_are_multiplied(op: str) -> None:
    for backend, place in (("cuda", "h200"), ("hip", "mi300x"), ("triton", "h200")):
        one = task(backend, backend, place, op=op, dtype="float16")
        assert not briefing.matrix(one)
        about = part(prompt(one), "Target")
        assert not re.search("mfma|wgmma|tl.dot is|matrix instructions", about, re.IGNORECASE)
        for product in ("conv2d", "attention", "int4_linear"):
            assert briefing.matrix(task(backend, backend, place, op=product, dtype="float16"))


def test_unsafe_atomics_are_told_where_blocks_add_to_one_element() -> None:
    for place in ("gfx90a", "mi300x", "gfx950", "gfx1100"):
        for op in ("scatter_add", "sum", "layernorm_backward"):
            shown = prompt(task("hip", "hip", place, op=op))
            assert shown.count("unsafeAtomicAdd on float") == 1 and "coarse-grained" in shown
        for op in ("relu", "matmul", "softmax", "embedding", "topk"):
            assert "unsafeAtomicAdd" not in prompt(task("hip", "hip", place, op=op))
    assert "unsafeAtomicAdd" not in prompt(task("triton", "triton", "mi300x", op="scatter_add"))


@pytest.mark.parametrize("op", ["matmul", "softmax"])
def test_triton_on_nvidia_has_as_many_hints_as_on_amd(op: str) -> None:
    def hints(place: str) -> int:
        one = task("triton", "triton", place, op=op, dtype="float16")
        return len(one.target.hints_for("triton", without=briefing.without(one)))

    about_products = op == "matmul"
    assert hints("sm_90") >= (hints("gfx942") if about_products else 5)
    for place in ("sm_80", "sm_86", "sm_89", "sm_100", "sm_120"):
        assert hints(place) >= (5 if about_products else 2), place


# ---- guides

GUIDE = """# Title

For people. <!-- for: people -->

## One <!-- for: c++ -->

- a <!-- where: hardware -->
  goes on
- b

### Part

text

## Two <!-- for: numba, c++ -->

    # no heading
- c
"""


def test_a_guide_is_read_without_what_is_about_others() -> None:
    assert chosen(GUIDE, language="c++", ends="emulator") == (
        "# Title\n\n## One\n\n- b\n\n### Part\n\ntext\n\n## Two\n\n    # no heading\n- c"
    )
    assert chosen(GUIDE, language="numba", ends="hardware") == (
        "# Title\n\n## Two\n\n    # no heading\n- c"
    )
    assert "goes on" in chosen(GUIDE, language="c++", ends="hardware")


def test_marks_of_guides_name_languages_and_places_that_there_are() -> None:
    languages = {language for _, language, _ in PLACES} | {"people"}
    for name in registry.names():
        guide = (ROOT / "backends" / name / "guide.md").read_text(encoding="utf-8")
        for kind, named in re.findall(r"<!-- (\w+): (.*?) -->", guide):
            legal = {
                "for": languages,
                "where": set(get_args(Ends)),
                "with": {"library"},
            }[kind]
            assert set(named.split(", ")) <= legal


def test_hints_and_matrix_instructions_name_what_there_is() -> None:
    languages = {language for _, language, _ in PLACES} | {"port"}
    for name in target.names():
        one = target.load(name)
        features = {*one.features.mma, *one.features.async_copy, "fp8", "xf32"}
        features |= briefing.OF_OPERATORS
        for hint in one.hints:
            assert set(hint.languages) <= languages, hint
            assert set(hint.needs) <= features, hint
