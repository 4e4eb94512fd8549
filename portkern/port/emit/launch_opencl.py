"""Run as a script, in the jail: launches emitted OpenCL as ``launch.json`` says, beside which the
buffers lie. Its arguments are the emitted launcher's file and the environment that pyopencl wants.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path


def main(module: str, environment: str) -> int:
    os.environ.update(json.loads(environment))
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-")
    import numpy
    import pyopencl as cl

    asked = json.loads(Path("launch.json").read_text(encoding="utf-8"))
    devices = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU)]
    context = cl.Context(devices[:1])
    queue = cl.CommandQueue(context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {}
    arguments = []
    for argument in asked["arguments"]:
        if isinstance(argument, dict):
            number = argument["buffer"]
            content = numpy.fromfile(f"buffer_{number}", numpy.uint8)
            buffers[number] = content, cl.Buffer(context, flags, hostbuf=content)
            arguments.append(buffers[number][1])
        else:
            arguments.append(argument)
    launch = getattr(_module(Path(module)), asked["name"])
    shape = {key: asked[key] for key in ("grid", "block", "shared")}
    try:
        launch(queue, *arguments, **shape)
        queue.finish()
    except cl.Error as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        said = (lines or str(error).splitlines() or ["no message"])[0].strip()[:300]
        sys.stdout.write(f"OpenCL: {said}\n")
        return 1
    for number, (content, buffer) in buffers.items():
        cl.enqueue_copy(queue, content, buffer)
        content.tofile(f"buffer_{number}")
    return 0


def _module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location("emitted", path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
