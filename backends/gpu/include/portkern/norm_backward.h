// Gradients of normalisations of rows, by x, by the weight and, where rows are CENTRED (layernorm), by the bias.
// A block goes from row to row: it keeps what it has of one in registers, and so what it adds up of the weight's and
// the bias' gradients, which a second kernel adds. Of rows that are longer a kernel for the columns finds these.
// BLOCK and ITEMS are knobs of the kernel.
#pragma once
#include <portkern/held_rows.h>
#include <portkern/multiprocessors.h>

namespace norm_backward {

struct Tensors {
    const scalar_t *grad, *x, *weight;
    scalar_t *grad_x, *grad_weight, *grad_bias;  // the last one of centred rows
    int64_t rows, cols;
    float eps;
};

// Where blocks leave what they added up of each column, `cols` for each of `count`; and of rows that are not held,
// their mean and scale.
struct Notes {
    float *of_weight, *of_bias, *mean, *scale;
    int64_t count;
};

template <class S, bool CENTRED>
__global__ __launch_bounds__(BLOCK) void backward_rows(const Tensors all, const Notes notes, int lanes) {
    using Pack = typename S::Pack;
    constexpr int V = S::VEC, K = S::KEPT;
    __shared__ float partial[4][WARPS_MOST];
    const S by(all.cols, lanes);
    const auto* weight = reinterpret_cast<const Pack*>(all.weight);
    float of_weight[K][V] = {}, of_bias[CENTRED ? K : 1][V] = {};
    const float each = 1.0f / all.cols;
    const int64_t own = by.row(), first = own - (S::BLOCKS ? 0 : threadIdx.x / by.members);
    for (int64_t ahead = 0; first + ahead < all.rows; ahead += by.stride()) {
        const bool there = own + ahead < all.rows;
        const int64_t row = there ? own + ahead : all.rows - 1;
        const auto* x = reinterpret_cast<const Pack*>(all.x + row * all.cols);
        const auto* grad = reinterpret_cast<const Pack*>(all.grad + row * all.cols);
        auto* to = reinterpret_cast<Pack*>(all.grad_x + row * all.cols);
        Pack held_x[K], held_grad[K];
        float mean = 0.0f, squares = 0.0f;
        by.each([&](int i, int k) {
            held_x[k] = x[i];
            if (!S::LOOPS) held_grad[k] = grad[i];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float v = float(held_x[k].at[j]);
                if (CENTRED) mean += v;
                else squares += v * v;
            }
        });
        if (CENTRED) {
            // By 1 / cols rounded, the means of all rows would err to one side.
            mean = by.sum(mean, partial[0]) / all.cols;
            by.each([&](int i, int k) {
                const Pack values = S::LOOPS ? x[i] : held_x[k];
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const float v = float(values.at[j]) - mean;
                    squares += v * v;
                }
            });
        }
        const float scale = rsqrtf(by.sum(squares, partial[1]) * each + all.eps);
        float along = 0.0f, middle = 0.0f;  // of w g: with z, and their mean
        by.each([&](int i, int k) {
            const Pack values = S::LOOPS ? x[i] : held_x[k], g = S::LOOPS ? grad[i] : held_grad[k], w = weight[i];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float z = (float(values.at[j]) - mean) * scale, part = float(w.at[j]) * float(g.at[j]);
                along += part * z;
                middle += part;
                if (S::LOOPS || !there) continue;
                of_weight[k][j] += float(g.at[j]) * z;
                if (CENTRED) of_bias[k][j] += float(g.at[j]);
            }
        });
        along = by.sum(along, partial[2]) * each;
        middle = CENTRED ? by.sum(middle, partial[3]) * each : 0.0f;
        if (there)
            by.each([&](int i, int k) {
                const Pack values = S::LOOPS ? x[i] : held_x[k], g = S::LOOPS ? grad[i] : held_grad[k], w = weight[i];
                Pack result;
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const float z = (float(values.at[j]) - mean) * scale, part = float(w.at[j]) * float(g.at[j]);
                    result.at[j] = scalar_t(scale * (part - middle - z * along));
                }
                to[i] = result;
            });
        if (S::LOOPS && there && by.me == 0) notes.mean[row] = mean, notes.scale[row] = scale;
        __syncthreads();
    }
    if constexpr (!S::LOOPS && S::BLOCKS) {
        by.each([&](int i, int k) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const int64_t at = blockIdx.x * all.cols + (int64_t)i * V + j;
                notes.of_weight[at] = of_weight[k][j];
                if (CENTRED) notes.of_bias[at] = of_bias[k][j];
            }
        });
    } else if constexpr (!S::LOOPS) {
        // The groups of a block add theirs up.
        __shared__ float room[BLOCK * K * V];
        const auto meet = [&](const auto& own, float* to) {
            const int cols = (int)all.cols, group = threadIdx.x / by.members, groups = blockDim.x / by.members;
            __syncthreads();
            by.each([&](int i, int k) {
#pragma unroll
                for (int j = 0; j < V; ++j) room[group * cols + i * V + j] = own[k][j];
            });
            __syncthreads();
            for (int column = threadIdx.x; column < cols; column += blockDim.x) {
                float total = 0.0f;
                for (int g = 0; g < groups; ++g) total += room[g * cols + column];
                to[blockIdx.x * all.cols + column] = total;
            }
        };
        meet(of_weight, notes.of_weight);
        if constexpr (CENTRED) meet(of_bias, notes.of_bias);
    }
}

// 32 packs of columns to a block, and every `count`th eight rows.
constexpr int ACROSS = 32, DOWN = 8;

template <int V, bool CENTRED>
__global__ __launch_bounds__(ACROSS* DOWN) void backward_columns(const Tensors all, const Notes notes,
                                                                 unsigned across) {
    __shared__ float room[DOWN][ACROSS * V];
    const int64_t pack = (int64_t)(blockIdx.x % across) * ACROSS + threadIdx.x % ACROSS, packs = all.cols / V;
    const int64_t part = blockIdx.x / across;
    const int down = threadIdx.x / ACROSS;
    float of_weight[V] = {}, of_bias[V] = {};
    for (int64_t row = part * DOWN + down; pack < packs && row < all.rows; row += notes.count * DOWN) {
        const Some<V> x = reinterpret_cast<const Some<V>*>(all.x + row * all.cols)[pack];
        const Some<V> g = reinterpret_cast<const Some<V>*>(all.grad + row * all.cols)[pack];
#pragma unroll
        for (int j = 0; j < V; ++j) {
            of_weight[j] += float(g.at[j]) * (float(x.at[j]) - notes.mean[row]) * notes.scale[row];
            of_bias[j] += float(g.at[j]);
        }
    }
    const auto meet = [&](const float(&own)[V], float* to) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < V; ++j) room[down][threadIdx.x % ACROSS * V + j] = own[j];
        __syncthreads();
        for (int c = threadIdx.x; c < ACROSS * V; c += ACROSS * DOWN) {
            const int64_t column = (int64_t)(blockIdx.x % across) * ACROSS * V + c;
            float total = 0.0f;
            for (int d = 0; d < DOWN; ++d) total += room[d][c];
            if (column < all.cols) to[part * all.cols + column] = total;
        }
    };
    meet(of_weight, notes.of_weight);
    if (CENTRED) meet(of_bias, notes.of_bias);
}

// The columns of what `count` blocks added up; the bias' columns follow the weight's.
__global__ __launch_bounds__(ACROSS* DOWN) void add_columns(const Notes notes, const Tensors all, unsigned across) {
    __shared__ float room[DOWN][ACROSS];
    const bool bias = blockIdx.x >= across;
    const int64_t column = (int64_t)(blockIdx.x % across) * ACROSS + threadIdx.x % ACROSS;
    const float* from = bias ? notes.of_bias : notes.of_weight;
    float total = 0.0f;
    for (int64_t part = threadIdx.x / ACROSS; column < all.cols && part < notes.count; part += DOWN)
        total += from[part * all.cols + column];
    room[threadIdx.x / ACROSS][threadIdx.x % ACROSS] = total;
    __syncthreads();
    if (threadIdx.x >= ACROSS || column >= all.cols) return;
    for (int d = 1; d < DOWN; ++d) total += room[d][threadIdx.x];
    (bias ? all.grad_bias : all.grad_weight)[column] = scalar_t(total);
}

template <bool CENTRED>
int launch(const Tensors& all, cudaStream_t stream) {
    if (all.cols == 0) return 0;
    const unsigned bands = (unsigned)((all.cols + ACROSS - 1) / ACROSS);
    const auto add = [&](const Notes& notes) {
        add_columns<<<bands * (CENTRED ? 2 : 1), ACROSS * DOWN, 0, stream>>>(notes, all, bands);
        return (int)cudaGetLastError();
    };
    if (all.rows == 0) return add({});  // zeros
    const bool whole = are_whole((uintptr_t)all.grad | (uintptr_t)all.x | (uintptr_t)all.weight |
                                     (uintptr_t)all.grad_x, all.cols);
    return with_sharers_of<BLOCK, ITEMS>(whole, all.cols, [&](const auto& by) {
        using S = typename std::decay_t<decltype(by)>::By;
        const int64_t blocks = by.blocks(all.rows), most = (int64_t)multiprocessors() * (512 / by.threads);
        const int64_t strips = (all.rows + DOWN - 1) / DOWN;
        const int64_t count = S::LOOPS ? min(strips, (int64_t)32) : min(blocks, most);
        Scratch<float> room(count * all.cols * (CENTRED ? 2 : 1) + 2 * all.rows, stream);
        if (room.error) return (int)room.error;
        float* const after = room.data + count * all.cols;
        float* const mean = after + (CENTRED ? count * all.cols : 0);
        const Notes notes = {room.data, after, mean, mean + all.rows, count};
        backward_rows<S, CENTRED><<<(unsigned)(S::LOOPS ? blocks : count), by.threads, 0, stream>>>(all, notes, by.lanes);
        if constexpr (S::LOOPS) {
            const int64_t packs = all.cols / S::VEC, across = (packs + ACROSS - 1) / ACROSS;
            backward_columns<S::VEC, CENTRED>
                <<<(unsigned)(across * count), ACROSS * DOWN, 0, stream>>>(all, notes, (unsigned)across);
        }
        return add(notes);
    });
}
}  // namespace norm_backward
