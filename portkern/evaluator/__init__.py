"""How a kernel is evaluated: inputs, reference, comparison, timing, attribution, verdict."""
