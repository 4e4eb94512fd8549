from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from portkern.errors import ConfigError
from portkern.spec.target import SITE, AmdLimits, NvidiaLimits, Peak, Target, load, names

GOOD_PEAK = "{value: 1.5, unit: GB/s, basis: measured, source: here}"


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SITE, raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SITE, str(tmp_path))
    return tmp_path


def problem(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", names())
def test_every_file_loads_under_its_own_name_and_prints_it_back(name: str) -> None:
    target = load(name)
    assert (target.name, str(target)) == (name, name)
    assert target.sources
    assert target.hints


@pytest.mark.parametrize("name", names())
def test_every_shipped_target_knows_its_launch_limits(name: str) -> None:
    target = load(name)
    if not target.is_gpu:
        assert target.shared_block_bytes is None
        return
    assert isinstance(target.limits, NvidiaLimits | AmdLimits)
    assert target.warp in (32, 64)
    assert target.shared_block_bytes
    assert target.shared_block_bytes > 49152
    assert max(target.knobs["num_warps"]) * target.warp <= target.limits.threads_block
    assert all(block % target.warp == 0 for block in target.knobs["block"])


@pytest.mark.parametrize("name", names("product"))
def test_a_product_inherits_its_architecture_and_states_its_ceilings(name: str) -> None:
    product, architecture = load(name), load(load(name).arch)
    assert architecture.kind == "architecture"
    assert (product.limits, product.features) == (architecture.limits, architecture.features)
    assert product.hints[: len(architecture.hints)] == architecture.hints
    assert {"memory", "fp32", "fp16", "bf16"} <= product.peaks.keys()
    assert product.multiprocessors
    assert product.memory_gb
    assert product.l2_bytes


@pytest.mark.parametrize("name", names("architecture"))
def test_an_architecture_is_its_own_and_claims_no_ceilings(name: str) -> None:
    """A generation of TPUs is one chip, with the ceilings of that."""
    assert load(name).arch == name
    assert bool(load(name).peaks) is (load(name).vendor == "google")


@pytest.mark.parametrize("name", names("product"))
def test_every_ceiling_says_what_it_rests_on(name: str) -> None:
    for peak in load(name).peaks.values():
        assert peak.basis in ("datasheet", "derived", "measured")
        assert peak.source


# multiprocessors x flop per clock and multiprocessor x GHz (AMD's published rates per CU)
@pytest.mark.parametrize(
    ("name", "key", "flop_clock", "ghz"),
    [
        ("mi250x", "fp32", 128, 1.7),
        ("mi250x", "fp16", 1024, 1.7),
        ("mi300x", "fp32", 256, 2.1),
        ("mi300x", "tf32", 1024, 2.1),
        ("mi300x", "bf16", 2048, 2.1),
        ("mi300x", "fp8", 4096, 2.1),
        ("mi355x", "fp32", 256, 2.4),
        ("mi355x", "fp16", 4096, 2.4),
        ("mi355x", "fp8", 8192, 2.4),
        ("mi355x", "fp4", 16384, 2.4),
        ("rx7900xtx", "fp16", 512, 2.5),
        ("rx9070xt", "fp16", 1024, 2.97),
        ("rx9070xt", "fp8", 2048, 2.97),
    ],
)
def test_a_derived_peak_is_what_its_formula_gives(
    name: str, key: str, flop_clock: int, ghz: float
) -> None:
    target = load(name)
    assert target.multiprocessors
    peak = target.peaks[key]
    assert peak.basis == "derived"
    assert peak.value == pytest.approx(target.multiprocessors * flop_clock * ghz / 1e3, rel=3e-3)


def test_an_mi250x_is_one_of_the_boards_two_devices() -> None:
    half = load("mi250x")
    assert half.multiprocessors == 220 / 2
    assert half.memory_gb == 128 / 2
    assert 2 * half.peaks["memory"].value == pytest.approx(3276.8)
    assert 2 * half.peaks["bf16"].value == pytest.approx(383, rel=1e-3)
    assert any("two devices" in hint.text for hint in half.hints)


def test_the_h200_keeps_its_measured_copy_beside_the_datasheet() -> None:
    peaks = load("h200").peaks
    assert (peaks["memory"].value, peaks["memory"].basis) == (4800, "datasheet")
    assert (peaks["memory_copy"].value, peaks["memory_copy"].basis) == (4270, "measured")


def test_the_flavour_of_fp8_and_tf32_is_per_architecture() -> None:
    flavours = {name: load(name).features.fp8 for name in ("gfx90a", "gfx942", "gfx950", "sm_90")}
    assert flavours == {"gfx90a": "none", "gfx942": "fnuz", "gfx950": "ocp", "sm_90": "ocp"}
    assert load("gfx942").features.tf32
    assert not load("gfx950").features.tf32


def test_only_cdna_has_the_matrix_instruction_knob() -> None:
    having = {n for n in names("architecture") if "matrix_instr_nonkdim" in load(n).knobs}
    assert having == {"gfx90a", "gfx942", "gfx950"}


def test_a_cpu_target_names_its_march() -> None:
    marches = {n: load(n).march for n in names() if load(n).march}
    assert marches == {
        "x86_64": "x86-64-v2",
        "x86_64_avx2": "x86-64-v3",
        "x86_64_avx512": "x86-64-v4",
        "aarch64": "armv8.2-a",
    }


def test_targets_are_values() -> None:
    assert load("h200") is load("h200")
    assert {load("h200"): 1}[load("h200")] == 1
    with pytest.raises(ValueError, match="frozen"):
        load("h200").name = "h20"


def test_names_are_sorted_and_split_into_kinds() -> None:
    assert names() == sorted(names("architecture") + names("product"))
    assert {"sm_90", "gfx942", "opencl_generic"} <= set(names("architecture"))
    assert {"h200", "mi300x"} <= set(names("product"))


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    assert problem("sm90") == "No target 'sm90'; did you mean 'sm_90'?"
    assert problem("xpu").startswith("No target 'xpu'; available: a100, aarch64,")


def test_a_site_overrides_one_number_and_keeps_the_rest(site: Path) -> None:
    text = (
        "peaks:\n  memory: {value: 4201, basis: measured, source: our node}\nsources: [our log]\n"
    )
    (site / "h200.yaml").write_text(text)
    target = load("h200")
    assert target.peaks["memory"] == Peak(
        value=4201, unit="GB/s", basis="measured", source="our node"
    )
    assert target.peaks["bf16"].value == 989.4
    assert target.sources[-1] == "our log"
    assert "NVIDIA H200 datasheet" in target.sources


def test_a_site_override_of_an_architecture_reaches_its_products(site: Path) -> None:
    (site / "sm_90.yaml").write_text("knobs: {num_stages: [1, 2]}\n")
    assert load("h200").knobs["num_stages"] == [1, 2]
    assert load("h200").knobs["block"] == load("sm_90").knobs["block"]


def test_a_site_adds_a_product(site: Path) -> None:
    (site / "h20.yaml").write_text(
        "title: NVIDIA H20\narch: sm_90\ndevice_names: [H20]\nmultiprocessors: 78\n"
        f"peaks: {{memory: {GOOD_PEAK}}}\nsources: [ours]\n"
    )
    assert "h20" in names("product")
    assert load("h20").warp == 32


def test_leaving_the_site_brings_our_numbers_back(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "sm_90.yaml").write_text("title: Ours\n")
    assert load("sm_90").title == "Ours"
    monkeypatch.delenv(SITE)
    assert load("sm_90").title == "NVIDIA Hopper (sm_90)"


def test_a_site_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SITE, "/nowhere")
    assert problem("h200").startswith(f"{SITE}: got '/nowhere', expected a folder of YAML files")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "peaks: {memory: {basis: guess}}",
            "peaks.memory.basis: got 'guess', expected 'datasheet', 'derived' or 'measured'",
        ),
        ("memory_gb: plenty", "memory_gb: got 'plenty', expected a valid number"),
        ("multiprocessors: '132'", "multiprocessors: got '132', expected a valid integer"),
        ("limits: {warps_sm: 0}", "limits.warps_sm: got 0, expected greater than 0"),
        ("limits: {warp_sm: 64}", "limits.warp_sm: No field 'warp_sm'; did you mean 'warps_sm'?"),
        ("peak: {}", "peak: No field 'peak'; did you mean 'peaks'?"),
        ("peaks: {fp6: {value: 1.0}}", "peaks.fp6.unit: missing; add it"),
        (f"peaks: {{bf16: {GOOD_PEAK}}}", "peaks.bf16.unit: got 'GB/s', expected 'TFLOP/s'"),
        ("vendor: intel", "vendor: got 'intel', expected 'nvidia', 'amd', 'cpu', 'opencl' or 'go"),
        ("vendor: amd", "limits.grid_threads_max: missing; add it"),
        ("march: native", "march: got 'native', expected -march's value exactly when it is a CPU"),
        ("knobs: {num_warps: [64]}", "knobs.num_warps: got [64], expected at most 32"),
        ("knobs: {num_warps: []}", "knobs.num_warps: got []"),
        ("arch: sm_91", "arch: No target 'sm_91'; did you mean 'sm_90'?"),
        ("arch: h100", "arch: got the product 'h100', expected its architecture 'sm_90'"),
        ("name: h200", "name: got 'h200'; delete it"),
        ("- a\n- list", "got list, expected fields such as 'title: ...'"),
        ("", "got NoneType, expected fields such as 'title: ...'"),
        ("peaks: {", "got YAML that does not parse:"),
    ],
)
def test_a_malformed_file_is_one_line_with_the_file_and_the_field(
    site: Path, text: str, expected: str
) -> None:
    (site / "h200.yaml").write_text(text)
    assert problem("h200").startswith(f"{site / 'h200.yaml'}: ")
    assert expected in problem("h200")


def test_a_broken_architecture_takes_the_blame_for_its_products(site: Path) -> None:
    (site / "sm_90.yaml").write_text("warp: thirty-two")
    assert problem("h200").startswith(f"{site / 'sm_90.yaml'}: warp: got 'thirty-two'")


def test_a_new_target_without_its_facts_is_refused(site: Path) -> None:
    (site / "h20.yaml").write_text("arch: sm_90\ntitle: NVIDIA H20\n")
    assert "multiprocessors, peaks.memory: missing" in problem("h20")
    (site / "sm_99.yaml").write_text("title: Unknown\n")
    assert problem("sm_99") == f"{site / 'sm_99.yaml'}: vendor: missing; add it"


def test_a_target_survives_its_own_dump() -> None:
    for name in names():
        assert Target.model_validate(load(name).model_dump()) == load(name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("x86_64", {"march": "x86-64\0"}),
        ("x86_64", {"march": "native -fplugin=x.so"}),
        ("sm_90", {"arch": "sm_foo", "name": "sm_foo"}),
        ("gfx942", {"arch": "gfx", "name": "gfx"}),
        ("gfx942", {"warp": 0}),
        ("tpu_v5e", {"title": "a\0b"}),
    ],
)
def test_words_of_a_plans_targets_are_such_as_compilers_take(
    name: str, changes: dict[str, object]
) -> None:
    with pytest.raises(ValidationError):
        Target.model_validate(load(name).model_dump() | changes)
