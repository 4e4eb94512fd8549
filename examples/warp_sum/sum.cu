// Adds up the numbers of the first warp.
__global__ void sum(const float* x, float* out) {
    float v = x[threadIdx.x];
    for (int d = warpSize / 2; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x == 0) *out = v;
}

void launch(const float* x, float* out) { sum<<<1, 64>>>(x, out); }
