"""Runs the corpus on this machine's GPU and writes device.npz into a folder.

    python -m tests.simt.matrix.record tests/simt/matrix

Needs nvcc, a GPU of compute capability 9.0 and numpy; nothing of portkern.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

from tests.simt.matrix import corpus

KEPT = 32  # threads of each case whose results are kept


def main() -> None:
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "corpus.cu").write_text(corpus.program())
        corpus.inputs().tofile(work / "in.bin")
        argv = ["nvcc", "-w", "-std=c++17", "-arch=sm_90", "corpus.cu", "-o", "corpus"]
        subprocess.run(argv, cwd=work, check=True)
        subprocess.run(["./corpus", "in.bin", "out.bin"], cwd=work, check=True)
        words = numpy.fromfile(work / "out.bin", numpy.uint64)
    results = words.reshape(len(corpus.CASES), corpus.THREADS, corpus.OUTPUTS)
    names = numpy.array([one.name for one in corpus.CASES])
    numpy.savez_compressed(out / "device.npz", names=names, results=results[:, :KEPT])


if __name__ == "__main__":
    main()
