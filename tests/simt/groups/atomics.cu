// Atomics of every type and scope from many blocks, a spin lock, and atomic_ref.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda/atomic>

#include "check.h"

struct Cells {
    int sum, difference, least, greatest, bits_or, bits_and, bits_xor, swaps, locked, by_block[16];
    unsigned wrapped_up, wrapped_down, lock;
    unsigned long long wide, wide_max;
    long long signed_min;
    float real;
    double precise;
    __half half_;
    __half2 pair;
    __nv_bfloat16 brain;
    float4 four;
    int ref_sum, ref_max, flag, message;
};

__device__ int device_total;

__global__ void update(Cells* c) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&c->sum, i);
    atomicSub(&c->difference, 2);
    atomicMin(&c->least, 5 - i);
    atomicMax(&c->greatest, i);
    atomicOr(&c->bits_or, 1 << i % 31);
    atomicAnd(&c->bits_and, ~(1 << i % 7));
    atomicXor(&c->bits_xor, i);
    atomicInc(&c->wrapped_up, 99);
    atomicDec(&c->wrapped_down, 99);
    atomicAdd(&c->wide, 1ull << 33);
    atomicMax(&c->wide_max, (unsigned long long)i << 40);
    atomicMin(&c->signed_min, -(long long)i);
    atomicAdd(&c->real, 0.5f);
    atomicAdd(&c->precise, 0.25);
    if (i % 8 == 0) {
        atomicAdd(&c->half_, __float2half(1.0f));
        atomicAdd(&c->pair, __floats2half2_rn(1.0f, 2.0f));
        if (i < 512) atomicAdd(&c->brain, __float2bfloat16(1.0f));
    }
    atomicAdd(&c->four, make_float4(1, 2, 3, 4));
    if (atomicExch(&c->swaps, i) == i) atomicAdd(&c->sum, 1 << 20);
    atomicAdd_block(&c->by_block[blockIdx.x], 1);
    atomicAdd_system(&device_total, 1);
    cuda::atomic_ref<int, cuda::thread_scope_device> ref(c->ref_sum), most(c->ref_max);
    ref.fetch_add(2, cuda::memory_order_relaxed);
    most.fetch_max(i, cuda::memory_order_relaxed);
}

// One thread of each warp at a time: lanes of one warp would wait for each other.
__global__ void with_lock(Cells* c) {
    if (threadIdx.x % 32 != 0) return;
    while (atomicCAS(&c->lock, 0u, 1u) != 0u) {
    }
    __threadfence();
    c->locked = c->locked + 1;
    __threadfence();
    atomicExch(&c->lock, 0u);
}

// The second warp sends, the first waits.
__global__ void hand_over(Cells* c) {
    cuda::atomic_ref<int, cuda::thread_scope_block> flag(c->flag);
    if (threadIdx.x == 64) {
        c->message = 42;
        flag.store(1, cuda::memory_order_release);
    }
    if (threadIdx.x == 0) {
        while (flag.load(cuda::memory_order_acquire) == 0) {
        }
        c->message += 1;
    }
}

// Each thread finds its place with a compare-and-swap loop on bits.
__global__ void multiply(float* product) {
    unsigned* bits = (unsigned*)product;
    unsigned before = *(volatile unsigned*)bits, seen;
    do {
        seen = before;
        before = atomicCAS(bits, seen, __float_as_uint(__uint_as_float(seen) * 2.0f));
    } while (before != seen);
}

int main() {
    const int blocks = 16, threads = 128, n = blocks * threads;
    Cells* c;
    cudaMallocManaged(&c, sizeof(Cells));
    cudaMemset(c, 0, sizeof(Cells));
    c->bits_and = c->swaps = -1;
    update<<<blocks, threads>>>(c);
    cudaDeviceSynchronize();
    int bits_xor = 0;
    for (int i = 0; i < n; ++i) bits_xor ^= i;
    CHECK(c->sum == n * (n - 1) / 2 && c->difference == -2 * n);
    CHECK(c->least == 5 - (n - 1) && c->greatest == n - 1);
    CHECK(c->bits_or == 0x7fffffff && c->bits_and == ~127 && c->bits_xor == bits_xor);
    CHECK(c->wrapped_up == n % 100u && c->wrapped_down == (100u - n % 100u) % 100u);
    CHECK(c->wide == (unsigned long long)n << 33 && c->wide_max == (n - 1ull) << 40);
    CHECK(c->signed_min == -(n - 1));
    CHECK(c->real == n * 0.5f && c->precise == n * 0.25);
    CHECK(__half2float(c->half_) == n / 8.0f);
    CHECK(__low2float(c->pair) == n / 8.0f && __high2float(c->pair) == n / 4.0f);
    CHECK(__bfloat162float(c->brain) == 64.0f);
    CHECK(c->four.x == n && c->four.y == 2 * n && c->four.z == 3 * n && c->four.w == 4 * n);
    CHECK(c->by_block[7] == threads && c->ref_sum == 2 * n && c->ref_max == n - 1);
    int total = 0;
    cudaMemcpyFromSymbol(&total, device_total, sizeof total);
    CHECK(total == n);
    with_lock<<<blocks, threads>>>(c);
    hand_over<<<1, 128>>>(c);
    cudaDeviceSynchronize();
    CHECK(c->locked == blocks * threads / 32 && c->lock == 0 && c->message == 43);
    float* product;
    cudaMallocManaged(&product, sizeof(float));
    const float one = 1.0f;
    cudaMemcpy(product, &one, sizeof one, cudaMemcpyHostToDevice);
    multiply<<<2, 32>>>(product);
    cudaDeviceSynchronize();
    CHECK(*product == std::ldexp(1.0f, 64));
    return finish();
}
