"""Kernels of PyTorch extensions without their tests: accessors have values, and files are built
whole by the headers of the torch that is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from portkern.port import torch_headers
from portkern.port.device_build import DeviceBuilt, NotBuilt, build
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, prove
from portkern.port.proof.accessors import accessor_of, with_sizes
from portkern.port.proof.case import ProofCase, Tensor, read_cases, to_yaml
from portkern.port.proof.infer import propose, scales
from portkern.port.proof.texts import SourceTexts
from portkern.port.translate import translate
from portkern.simt.execute import runtime_library
from portkern.spec import registry, target
from portkern.spec.backend import Missing

SCALED = """\
#include <torch/extension.h>
typedef torch::PackedTensorAccessor32<int64_t, 1, torch::RestrictPtrTraits> Rows;

template <typename scalar_t>
__global__ void scaled(torch::PackedTensorAccessor32<scalar_t, 3> y,
                       const torch::PackedTensorAccessor32<scalar_t, 3> x, const Rows first,
                       int width) {
    const int b = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= x.size(1)) return;
    scalar_t sum = 0;
    for (int c = first[b]; c < width; ++c) sum += x[b][i][c];
    for (int c = 0; c < width; ++c) y[b][i][c] = sum LANES;
}

void run(torch::Tensor x, torch::Tensor y, torch::Tensor first) {
    const auto width = x.size(-1);
    const int threads = 64;
    const dim3 blocks((x.size(1) + threads - 1) / threads, x.size(0));
    scaled<float><<<blocks, threads>>>(y.packed_accessor32<float, 3>(),
                                       x.packed_accessor32<float, 3>(),
        first.packed_accessor32<int64_t, 1, torch::RestrictPtrTraits>(), width);
}
"""


def read(text: str, folder: Path) -> SourceTexts:
    path = folder / "k.cu"
    path.write_text(text, encoding="utf-8")
    return SourceTexts(ProofSource(path, "cuda"))


def cases(text: str, folder: Path) -> list[ProofCase]:
    texts = read(text, folder)
    (kernel,) = texts.kernels
    made = [propose(kernel, texts, scale, warp=32) for scale in scales(kernel, texts)]
    assert all(isinstance(case, ProofCase) for case in made), made
    return [case for case in made if isinstance(case, ProofCase)]


def sizes(case: ProofCase) -> dict[str, tuple[int, ...]]:
    return {a.name: a.sizes for a in case.arguments if isinstance(a, Tensor)}


def test_accessors_are_as_long_as_each_other_and_the_host_code_is_told(tmp_path: Path) -> None:
    first, *others = cases(SCALED, tmp_path)
    batch, rows, width = sizes(first)["x"]
    assert sizes(first) == {"y": (batch, rows, width), "x": (batch, rows, width), "first": (batch,)}
    assert f"width={width}" in str(first)
    assert (first.grid, first.block) == ((-(-rows // 64), batch, 1), (64, 1, 1))
    assert any(len({n for of in sizes(case).values() for n in of}) == 1 for case in others)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("const at::PackedTensorAccessor64<T, 2>", ("T", 2)),
        (
            "torch::GenericPackedTensorAccessor<float, N, at::RestrictPtrTraits, int32_t>&",
            ("float", 3),
        ),
        ("at::TensorAccessor<float, 2>", None),
        ("at::PackedTensorAccessor32<Mine, 2>", None),
    ],
)
def test_the_type_of_an_accessor_says_its_element_and_rank(
    type_: str, expected: tuple[str, int] | None
) -> None:
    known = accessor_of(type_, {"T": "at::Half", "N": "3"})
    assert (known and (known.element, known.rank)) == expected


def test_numbers_stand_where_sizes_were_asked_for_and_all_else_stays_in_its_place() -> None:
    text = "n = x.size( 1 ) + x.sizes()[0] + x.size(7) + y->size(-1) + max_x.size(0);"
    made = with_sizes(text, {"x": (5, 6), "y": (7, 8)})
    assert made.split() == "n = 6 + 5 + x.size(7) + 8 + max_x.size(0);".split()
    assert len(made) == len(text)


def test_a_case_of_tensors_is_read_as_it_was_written(tmp_path: Path) -> None:
    case = cases(SCALED, tmp_path)[0]
    file = tmp_path / "case.yaml"
    file.write_text(to_yaml(case), encoding="utf-8")
    assert read_cases(file) == {"scaled": case}


def proven(text: str, ported: str, folder: Path) -> KernelProof:
    files = []
    for name, content in (("original", text), ("ported", ported)):
        (folder / name).mkdir()
        (folder / name / "k.cu").write_text(content, encoding="utf-8")
        files.append(ProofSource(folder / name / "k.cu", "cuda" if name == "original" else "hip"))
    kernels = SourceTexts(files[1]).kernels
    (folder / "work").mkdir()
    (proof,) = prove(
        *files,
        target=target.load("gfx942"),
        other=None,
        kernels=kernels,
        hazards=(),
        workdir=folder / "work",
        limits=ProofLimits(run_s=60, build_s=240),
    )
    return proof


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
@pytest.mark.parametrize(
    ("original", "ported", "outcome"),
    [
        ("* 2", "* 2", Outcome.PROVEN),
        ("* 2", "* (threadIdx.x % warpSize)", Outcome.WRONG),
    ],
)
def test_a_kernel_of_accessors_is_held_against_its_original(
    original: str, ported: str, outcome: Outcome, tmp_path: Path
) -> None:
    texts = (
        SCALED.replace("LANES", original),
        translate(SCALED.replace("LANES", ported), "k.cu").text,
    )
    proof = proven(*texts, tmp_path)
    assert proof.outcome is outcome, proof.why
    assert "x[2][7][100]" in proof.inputs


# ---- headers

HOST = """\
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/hip/HIPGuard.h>
#include <hip/hip_runtime.h>

template <class T>
__global__ void twice(T* y, const T* x, long n) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}

at::Tensor run(const at::Tensor& x) {
    TORCH_CHECK(x.is_cuda(), "x is not on the device");
    const at::cuda::CUDAGuard guard(x.device());
    auto y = at::empty_like(x);
    hipStream_t stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "run", [&] {
        twice<scalar_t><<<x.numel() / 256 + 1, 256, 0, stream>>>(y.data_ptr<scalar_t>(),
                                                                x.data_ptr<scalar_t>(), x.numel());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
INSTALLED = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def test_headers_are_given_to_sources_that_name_pytorch_where_the_user_gives_none(
    tmp_path: Path,
) -> None:
    assert torch_headers.of(["#include <vector>\n#include <torchlike.h>"], ()) is None
    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen" / "ATen.h").touch()
    assert torch_headers.of(["#include <ATen/ATen.h>"], (tmp_path,)) is None


@INSTALLED
def test_headers_for_gpus_are_translated_and_have_amds_names_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path))
    names = ["c10/hip/HIPStream.h", "ATen/cuda/CUDAContext.h", "../../etc/passwd", "ATen/nothing.h"]
    known = torch_headers.of([f"#include <{name}>" for name in names], ())
    assert known is not None and known.include[0].is_relative_to(tmp_path)
    assert "#include <c10/cuda/CUDAStream.h>" in (known.include[0] / names[0]).read_text()
    stream = (known.include[0] / "c10/cuda/CUDAStream.h").read_text()
    assert "operator hipStream_t()" in stream and "operator cudaStream_t()" not in stream
    assert known.macros(["USE_ROCM", "MINE=2"]).count("USE_ROCM=1") == 0


@INSTALLED
@pytest.mark.full
def test_a_whole_extension_is_built_and_what_no_header_has_is_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = registry.load("hip").probe(target.load("gfx942"))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    headers = torch_headers.of([HOST], ())
    assert headers is not None
    lacking = HOST.replace("getCurrentCUDAStream", "getStreamOfNobody")
    made = []
    for number, text in enumerate((HOST, lacking)):
        file = tmp_path / f"run{number}.cu"
        file.write_text(text, encoding="utf-8")
        made.append(
            build(
                file,
                target.load("gfx942"),
                include=headers.include,
                defines=headers.macros(()),
                workdir=tmp_path / "work",
            )
        )
    assert isinstance(made[0], DeviceBuilt), made[0]
    assert {kernel.kernel for kernel in made[0].kernels} == {"twice"}
    assert len(made[0].kernels) == 3  # float, double and half
    assert isinstance(made[1], NotBuilt)
    assert (made[1].cause, made[1].line) == ("code", 16)
    assert "getStreamOfNobody" in made[1].reason


@pytest.mark.parametrize("macro", ["torch::PackedTensorAccessor32<scalar_t, 3>", "accessor< 3 >"])
def test_a_macro_for_a_type_is_spelled_out(macro: str, tmp_path: Path) -> None:
    text = SCALED.replace("torch::PackedTensorAccessor32<scalar_t, 3> ", "ACCESSOR ")
    made = f"#define ACCESSOR {macro}\n" + text
    (kernel,) = read(made, tmp_path).kernels
    assert [parameter.type for parameter in kernel.parameters][:2] == [macro, f"const {macro}"]
    unclear = "#define ACCESSOR other<int, 1>\n" + made  # as in the branches of a condition
    (kernel,) = read(unclear, tmp_path).kernels
    assert kernel.parameters[0].type == "ACCESSOR"


def test_headers_of_python_for_each_processor_are_found_beside_it(tmp_path: Path) -> None:
    own = tmp_path / "python9.1"
    for folder in (own, tmp_path / "x86_64-linux-gnu" / "python9.1"):
        folder.mkdir(parents=True)
    (own / "pyconfig.h").write_text(
        "#if defined(__x86_64__)\n#  include <x86_64-linux-gnu/python9.1/pyconfig.h>\n"
        "#else\n#  include <s390x-linux-gnu/python9.1/pyconfig.h>\n#endif\n"
    )
    there = tmp_path / "x86_64-linux-gnu" / "python9.1" / "pyconfig.h"
    there.write_text("#define WORDS 1\n")
    first, second = torch_headers.of_python(own)
    assert first == own and tmp_path not in second.parents
    assert (second / "x86_64-linux-gnu/python9.1/pyconfig.h").read_text() == there.read_text()
    there.unlink()
    torch_headers.of_python.cache_clear()
    assert torch_headers.of_python(own) == (own,)
