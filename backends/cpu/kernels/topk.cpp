#include <stdlib.h>

#include <algorithm>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define BLOCK 64             // knob: 64 128 256

// Elements are collected as integers, rank << 32 | index, whose order is the order wanted and which
// are all different. When the room is full the k lowest stay, and later elements must be lower.

// The place of a value in falling order: a NaN is 0, and -0 and +0 have the same.
PORTKERN_INLINE uvec ranks(vec v) {
  const uvec bits = as<uvec>(v + 0.0f);
  const uvec sign = as<uvec>(as<ivec>(bits) >> 31);
  return as<uvec>(v == v) & (bits ^ (~sign >> 1));
}

// Writes the ranks of at most BLOCK elements; returns the lowest.
static uint32_t rank_block(const scalar_t* x, uint32_t* to, int64_t width) {
  uvec low = ~uvec{};
  for (int64_t i = 0; i < width; i += LANES) {
    const int64_t left = width - i;
    const uvec rank = ranks(left < LANES ? load(x + i, left, -INFINITY) : load(x + i));
    low = rank < low ? rank : low;
    memcpy(to + i, &rank, sizeof(rank));
  }
  uint32_t lowest = low[0];
  for (int lane = 1; lane < LANES; ++lane) lowest = low[lane] < lowest ? low[lane] : lowest;
  return lowest;
}

// Brings the k lowest of `count` to the front, in any order; returns how many stay. The partition
// has no branches, which would be guessed wrong half of the time.
static int64_t prune(uint64_t* found, int64_t count, int64_t k) {
  int64_t low = 0, high = count;
  while (low < k && k < high && high - low > 2) {
    const uint64_t a = found[low], b = found[(low + high) / 2], c = found[high - 1];
    const uint64_t pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));  // the middle one
    int64_t border = low;
    for (int64_t i = low; i < high; ++i) {
      const uint64_t one = found[i];
      found[i] = found[border];
      found[border] = one;
      border += one < pivot;
    }
    (border <= k ? low : high) = border;
  }
  if (high - low == 2 && found[low + 1] < found[low]) std::swap(found[low], found[low + 1]);
  return count < k ? count : k;
}

static void row_topk(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t cols, int64_t k,
                     uint64_t* found, int64_t room) {
  int64_t count = 0;
  uint32_t limit = UINT32_MAX;
  for (int64_t start = 0; start < cols; start += BLOCK) {
    uint32_t rank[BLOCK];
    const int64_t width = cols - start < BLOCK ? cols - start : BLOCK;
    if (rank_block(x + start, rank, width) >= limit) continue;
    for (int64_t i = 0; i < width; ++i) {
      found[count] = uint64_t(rank[i]) << 32 | uint32_t(start + i);
      count += rank[i] < limit;  // no branch, which would often be guessed wrong
    }
    if (count + BLOCK <= room) continue;
    count = prune(found, count, k);
    limit = uint32_t(*std::max_element(found, found + k) >> 32);  // equal ones that follow lose
  }
  prune(found, count, k);
  std::sort(found, found + k, [](uint64_t a, uint64_t b) { return a < b; });
  for (int64_t i = 0; i < k; ++i) {
    indices[i] = int64_t(uint32_t(found[i]));
    values[i] = x[indices[i]];
  }
}

// The first of the largest: each lane keeps its own, and where it stood.
static void row_top1(const scalar_t* x, scalar_t* value, int64_t* index, int64_t cols) {
  uvec low = ~uvec{}, at = {};
  for (int64_t i = 0; i < cols; i += LANES) {
    const int64_t left = cols - i;
    const uvec rank = ranks(left < LANES ? load(x + i, left, -INFINITY) : load(x + i));
    at = rank < low ? uint32_t(i) + uvec{} : at;
    low = rank < low ? rank : low;
  }
  uint64_t best = UINT64_MAX;
  for (uint32_t lane = 0; lane < LANES; ++lane)
    best = std::min(best, uint64_t(low[lane]) << 32 | (at[lane] + lane));
  *index = int64_t(uint32_t(best));
  *value = x[*index];
}

// Of a row that is one vector each element's place is the number of those before it in the order.
static void narrow_row(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t cols,
                       int64_t k) {
  ivec lane, place = {};
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  const uvec rank = ranks(cols < LANES ? load(x, cols) : load(x));
  for (int64_t j = 0; j < cols; ++j) {
    const uvec one = rank[j] + uvec{};
    place -= ivec(one < rank) | (ivec(one == rank) & (lane > int32_t(j)));
  }
  int32_t in_order[LANES];
  for (int64_t i = 0; i < cols; ++i) in_order[place[i]] = int32_t(i);
  for (int64_t i = 0; i < k; ++i) {
    indices[i] = in_order[i];
    values[i] = x[in_order[i]];
  }
}

extern "C" int topk(const scalar_t* x, scalar_t* values, int64_t* indices, int64_t rows,
                    int64_t cols, int64_t kept, int64_t k) {
  if (rows == 0 || k == 0) return 0;
  if (cols > int64_t(UINT32_MAX)) return 1;
  if (cols <= LANES) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
    for (int64_t row = 0; row < rows; ++row)
      narrow_row(x + row * cols, values + row * k, indices + row * k, cols, k);
    return 0;
  }
  if (k == 1) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
    for (int64_t row = 0; row < rows; ++row)
      row_top1(x + row * cols, values + row, indices + row, cols);
    return 0;
  }
  const int64_t room = 2 * (k + BLOCK);
  int failed = 0;
#pragma omp parallel if (rows * cols >= PARALLEL_FROM)
  {
    uint64_t* found = static_cast<uint64_t*>(malloc(size_t(room + 1) * sizeof(uint64_t)));
#pragma omp for schedule(static) reduction(| : failed)
    for (int64_t row = 0; row < rows; ++row) {
      failed |= !found;
      if (failed) continue;
      row_topk(x + row * cols, values + row * k, indices + row * k, cols, k, found, room);
    }
    free(found);
  }
  return failed;
}
