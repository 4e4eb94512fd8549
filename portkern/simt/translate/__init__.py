"""CUDA and HIP source as C++: launches, shared memory and inline PTX are rewritten."""
