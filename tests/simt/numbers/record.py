"""Record what a GPU answers for intrinsics.cu, beside which the tests lay our answers.

python -m tests.simt.numbers.record inputs inputs.bin
nvcc -arch=sm_90 -std=c++17 tests/simt/numbers/intrinsics.cu -o intrinsics
./intrinsics 128 inputs.bin outputs.bin
python -m tests.simt.numbers.record pack outputs.bin
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy

from tests.test_simt_numbers import RECORDED, SAMPLES, Program, compile_program, samples


def main(verb: str, path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours = Program(compile_program("g++", "intrinsics.cu", Path(folder)))
    names = list(ours.signatures)
    if verb == "inputs":
        columns = [samples(name, ours.signatures[name]) for name in names]
        numpy.concatenate(columns).tofile(path)
        return
    outputs = numpy.fromfile(path, dtype=numpy.uint64).reshape(len(names), SAMPLES)
    numpy.savez_compressed(RECORDED, names=numpy.array(names), outputs=outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
