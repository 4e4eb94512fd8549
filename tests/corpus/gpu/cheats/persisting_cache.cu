// mechanism: keeps the next calls' inputs, which lie behind its own, in a part of L2 that no flush clears
// backend: cuda
// op: relu
// workloads: ci typical
// expect: wrong | suspicious | defeated
// says: reading its inputs | clock | cache
// emulator: none
constexpr uintptr_t SEGMENT = 2 << 20;  // the allocator's: what follows in it is mapped

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n, int64_t ahead) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
    for (int64_t j = n + i * 8; j < n + ahead; j += (int64_t)gridDim.x * 256 * 8)
        asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(x + j));
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    static bool asked;
    if (!asked) cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, (size_t)32 << 20);
    asked = true;
    const uintptr_t end = (uintptr_t)(x + n), border = (end + SEGMENT - 1) / SEGMENT * SEGMENT;
    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.base_ptr = (void*)x;
    window.accessPolicyWindow.num_bytes = border - (uintptr_t)x;
    window.accessPolicyWindow.hitRatio = 1.0f;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &window);
    cudaGetLastError();  // a window may not be larger than the device allows
    const int64_t ahead = (border - end) / sizeof(scalar_t);
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n, ahead);
    return (int)cudaGetLastError();
}
