"""Describes the findings in those collections in our own words, after reading the code.

``defect``: happens as the authors launch it, or cannot be ruled out there. ``latent``: needs other
sizes, other devices or other launches than theirs. ``formal``: a race or a read by the rules, whose
value nothing depends on. ``alarm``: the executor is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from real.running import Finding

Kind = Literal["defect", "latent", "formal", "alarm"]


@dataclass(frozen=True)
class Known:
    """Findings of a ``collection`` whose file, kernel and code match, and whose line is one of
    ``lines`` (any when empty). Entries without a code were seen in verdicts, not in findings."""

    collection: str
    kind: Kind
    file: str
    kernel: str
    codes: str
    about: str
    lines: tuple[int, ...] = ()

    def explains(self, collection: str, file: str, one: Finding) -> bool:
        line = one.place.rpartition(":")[2]
        return (
            collection == self.collection
            and re.search(self.file, file) is not None
            and re.match(self.kernel, one.kernel) is not None
            and one.code in self.codes.split()
            and (not self.lines or (line.isdigit() and int(line) in self.lines))
        )


_LLMC = "llm.c"
_GOOD = "good-kernels"
_LEET = "LeetCUDA"
_NO_TAIL = (
    "The vector form checks only its first element against N before it loads and stores all of "
    "them: it reads and writes past the end unless N divides by the vector's length"
)

KNOWN: tuple[Known, ...] = (
    # -- llm.c, as launched by its authors
    Known(_LLMC, "defect", "attention_backward", "softmax_autoregressive_backward_kernel6", "SX108",
          "Reads attention weights above the diagonal, which the forward pass never writes: what "
          "cudaMalloc left there is multiplied into gradients and stored", (603,)),
    Known(_LLMC, "defect", "attention_backward", "softmax_autoregressive_backward_kernel7", "SX201",
          "Warp 0 zeroes the array of partial sums while other warps store theirs into it: no "
          "barrier between (the sum of a fast warp is lost)", (651, 659)),
    Known(_LLMC, "defect", "attention_backward", "softmax_autoregressive_backward_kernel8", "SX201",
          "As in kernel 7; and the next of its four rows overwrites partial sums that slower warps "
          "still read: one barrier per row instead of two", (691, 706, 708)),
    Known(_LLMC, "defect", "attention_forward", "attention_forward_kernel2", "SX108",
          "Rescales the output by a factor of 0 before the first tile, by which time nobody has "
          "written it: a NaN in fresh memory stays a NaN", (531,)),
    Known(_LLMC, "defect", "layernorm_backward", "layernorm_backward_kernel10", "SX102",
          "At a block size of 32 the flag lies just past the dynamic shared memory that the "
          "launcher asks for", (1201, 1204)),
    Known(_LLMC, "defect", "layernorm_backward", "layernorm_backward_kernel(9|10)", "SX203",
          "The last block to count itself in adds up what all others stored, without any "
          "__threadfence() between a block's stores and its count"),
    Known(_LLMC, "defect", "matmul_backward_bias", "matmul_backward_bias_kernel(8|9)", "SX306",
          "At block sizes 32 and 64, fewer than four rows of partial sums are left: only some "
          "lanes enter the loop whose shuffles name all 32", (329, 330, 401, 402)),
    Known(_LLMC, "defect", "matmul_backward_bias", "matmul_backward_bias_kernel9", "SX101 SX110",
          "The buffer has room for 32 blocks in y, a device as wide as H100 or A100 gets more at "
          "small block sizes (176 at 32, at the program's own sizes)", (410,)),
    Known(_LLMC, "defect", "softmax_forward", "softmax_forward_kernel4", "SX201",
          "The sums of the second reduction are stored over the maximum that slower warps have "
          "still to read: no barrier between", (268, 288)),
    # -- llm.c, at other sizes
    Known(_LLMC, "latent", "attention_forward", "attention_forward_kernel2", "SX101",
          "Loads whole tiles of K and V: reads past the end when T does not divide by 32",
          (462, 463)),
    Known(_LLMC, "latent", "classifier_fused", "", "SX401",
          "The grid is rounded down: rows are left out when they do not divide by the warps of a "
          "block, and with fewer rows than that nothing is launched", (604,)),
    Known(_LLMC, "latent", "fused_residual_forward", "fused_residual_forward", "SX101 SX110",
          "The guard is `idx > N`, so that one row too many is computed when N leaves a block "
          "partly filled"),
    Known(_LLMC, "latent", "layernorm_backward", "layernorm_backward_kernel(9|10)", "SX301 SX107",
          "A block's barriers are in a loop over rows that its warps leave at different times when "
          "rows do not divide by warps: barriers mix, partial sums of idle warps are added"),
    Known(_LLMC, "latent", "layernorm_forward", "normalization_kernel", "SX101 SX110",
          "No guard at the end of the tensor: wrong when its size does not divide by the block's"),
    Known(_LLMC, "latent", "layernorm_backward", "layernorm_backward_kernel2", "SX107",
          "Warps without a row return before they zero and add up their share of the channels: "
          "gradients are lost when rows do not divide by the warps of a block"),
    Known(_LLMC, "latent", "matmul_forward", "matmul_forward_kernel4", "SX101",
          "Sizes that do not divide by the tile of 128 are neither handled nor refused"),
    Known(_LLMC, "latent", "softmax_forward", "softmax_forward_kernel7",
          "SX302 SX306 SX201",
          "Threads beyond C return before the block's barriers and its full-mask shuffles: wrong "
          "when C is less than the block's size and no multiple of 32"),
    Known(_LLMC, "latent", "softmax_forward", "softmax_forward_online_kernel8", "SX306",
          "Compares the thread's number in the block with C, though each warp has a row of its "
          "own: rows of warps beyond C are not computed", (545, 546)),
    Known(_LLMC, "latent", "attention_backward|attention_forward", "", "SX407",
          "Refuses T that does not divide by 4, by an assertion in the kernel"),
    # -- llm.c, without effect
    Known(_LLMC, "formal", "softmax_forward", "softmax_forward_kernel7", "SX202",
          "Loads with a clamped index: threads beyond the end read the last element while its "
          "owner stores it, and drop what they read", (495, 500)),
    Known(_LLMC, "formal", "layernorm_backward", "layernorm_backward_kernel4", "SX205",
          "The plain first read of an atomicCAS loop, of two words at a time", (423, 424)),
    # -- good-kernels
    Known(_GOOD, "defect", "^Softmax$", "softmax_forward_kernel_vec4", "SX201",
          "Partial sums are stored over the row's maximum before all threads have read it: no "
          "barrier between", (59, 87)),
    Known(_GOOD, "latent", "^Conv2D", "", "SX201",
          "Each warp stages its tile in shared memory and reads it back across lanes without "
          "__syncwarp(): relies on the lanes of wmma's store and of the loop running in step, "
          "which CUDA does not promise"),
    Known(_GOOD, "latent", "^LayerNorm", "", "SX203",
          "Rows are indexed as vectors of four from row * (D / 4): rows overlap when D does not "
          "divide by 4"),
    Known(_GOOD, "latent", "^MatmulFP32$", "", "SX101 SX110",
          "No edge handling: sizes that do not divide by the tile write past the end"),
    Known(_GOOD, "latent", "^Softmax$", "", "SX106",
          "Rows are read as float4 from row * num_features: misaligned, which stops a GPU, when "
          "that does not divide by 4"),
    # -- LeetCUDA
    Known(_LEET, "defect", "nms/", "nms_kernel", "SX202 SX203 SX201",
          "Each box reads whether earlier boxes were kept while their threads and blocks are still "
          "deciding it, in memory that nobody initialised"),
    Known(_LEET, "defect", "softmax/softmax", "online_safe_softmax", "SX102 SX103",
          "All 32 lanes of the first warp read an array with one entry per warp: past its end in "
          "blocks of fewer than 32 warps (the values are not used)", (351, 392)),
    Known(_LEET, "latent", "elementwise/|relu/|elu/|gelu/|swish/|sigmoid/|hard", "",
          "SX101 SX104 SX110", _NO_TAIL),
    Known(_LEET, "latent", "histogram/", "histogram_i32x4_kernel", "SX101 SX104 SX112",
          _NO_TAIL + "; what it reads there is an index that it counts at"),
    Known(_LEET, "latent", "rope/", "rope_", "SX101 SX104 SX110",
          "No guard at all: wrong when the pairs do not divide by the block's 256 threads"),
    Known(_LEET, "latent", "mat-transpose/", "", "SX401",
          "The grid is rounded down in the vectorised dimension: no blocks for narrow matrices"),
    Known(_LEET, "formal", "hgemm_mma_stage", "hgemm_mma", "SX107",
          "The last step prefetches a stage that was never filled, for it follows no product"),
    Known(_LEET, "formal", "swizzle/", "", "SX108",
          "The benchmark's inputs are never initialised"),
)  # fmt: skip

#: What no finding says but verdicts do: a wrong result, a failed assertion.
VERDICTS: tuple[Known, ...] = (
    Known(_LLMC, "defect", "global_norm", "global_norm4", "",
          "Asserts fewer than 1024 blocks: fails with 64 or more multiprocessors of 2048 threads "
          "(A100, H100)", (188,)),
    Known(_LLMC, "defect", "layernorm_backward", "layernorm_backward_kernel8", "",
          "The loop over channels is rounded down to whole vectors of a warp (256): the last 64 of "
          "the program's 1600 channels get no gradient"),
    Known(_LLMC, "defect", "layernorm_backward", "layernorm_backward9", "",
          "Asserts that C divides by 256: the program's own C of 1600 does not", (1358,)),
    Known(_GOOD, "latent", "LayerNorm2", "fused_layernorm_kernel", "",
          "The squared deviations of four blocks are added up about four different means, without "
          "the term for the distance between the means: the variance is too small when a row "
          "drifts"),
    Known(_LEET, "defect", "nms/", "nms", "",
          "Returns positions in the list sorted by score as if they were the boxes' own"),
)  # fmt: skip


def known(collection: str, file: str, one: Finding) -> Known | None:
    return next((k for k in KNOWN if k.explains(collection, file, one)), None)
