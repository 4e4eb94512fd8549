"""Record what a GPU answers for intrinsics.cu, beside which the tests lay our answers.

    python -m tests.simt.numbers.record inputs inputs.bin
    nvcc -arch=sm_90 -std=c++17 tests/simt/numbers/intrinsics.cu -o intrinsics
    ./intrinsics 128 inputs.bin outputs.bin
    python -m tests.simt.numbers.record pack outputs.bin
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy

from tests.test_simt_numbers import RECORDED, SAMPLES, Intrinsics, compile_intrinsics, samples


def main(verb: str, path: str) -> None:
    ours = Intrinsics(compile_intrinsics(Path("/tmp")))
    names = list(ours.signatures)
    if verb == "inputs":
        columns = [samples(name, ours.signatures[name]) for name in names]
        numpy.concatenate(columns).tofile(path)
        return
    outputs = numpy.fromfile(path, dtype=numpy.uint64).reshape(len(names), SAMPLES)
    narrow = {}
    for name, row in zip(names, outputs, strict=True):
        bits = int(row.max()).bit_length()
        narrow[name] = row.astype(f"u{next(size for size in (1, 2, 4, 8) if bits <= 8 * size)}")
    numpy.savez_compressed(RECORDED, **narrow)


if __name__ == "__main__":
    main(*sys.argv[1:])
