"""How compilers and other tools are found and called, and how this machine's devices are opened."""
