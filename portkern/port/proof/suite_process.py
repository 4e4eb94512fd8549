"""Runs the tests of a library for a proof: an extension that a test builds is looked at as it was
compiled, before it is opened. What a test's own Python does to this process is not seen."""

from __future__ import annotations

import sys

from portkern.port.proof import meddling
from portkern.simt.torch_extension import suite

if __name__ == "__main__":
    sys.exit(suite.main(meddling.of_built))
