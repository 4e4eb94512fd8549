"""HIP and CUDA kernels as OpenCL C and as C++ for CPUs, where these can say the same."""
