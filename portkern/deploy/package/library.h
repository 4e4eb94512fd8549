// Which kernel an operator of a library calls for given sizes, and why not: tables that are filled
// when the library is imported, decisions that are kept, and a race where one is allowed.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "plans.h"

#ifdef PORTKERN_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In the order of the words in runtime.py.
enum Why { OURS, OFF, DTYPE, DEVICE, LAYOUT, RANK, SIZES, VALUES, EMPTY, LARGE, DETERMINISTIC, NO_KERNEL, SLOWER, FAR, CAPTURED, RACED, LOST, WRONG, FAILED, UNRACED, SCALARS, REASONS };
enum Policy { NEVER, BY_EVIDENCE, ONLINE, ALWAYS };
constexpr int DTYPES = 4, DEVICES = 17;

struct Cell {
  Key key;
  int kernel;      // the fastest of the cell
  double speedup;  // the lower end of its interval
  int record;
};
struct Choice {
  int kernel = -1, why = NO_KERNEL, cell = -1;
  double distance = -1;
  bool partial = false;  // a scalar's value kept a kernel out, which another value may let in
  mutable std::atomic<int64_t> calls{0};  // without those that only asked
};
struct Table {
  std::vector<Kernel> kernels;
  std::vector<Cell> cells;
  std::unordered_map<Key, std::unique_ptr<Choice>, KeyHash> known;
  std::shared_mutex lock;
};
struct Operator {
  Table tables[DEVICES][DTYPES];
  std::atomic<int64_t> fallen[REASONS] = {};
  int scalars = 0;  // the last parts of a key, which have to be equal
  bool deterministic = true;
};
Operator operators[OPERATORS];
std::atomic<int> policy{BY_EVIDENCE};
std::atomic<double> least{1.1};  // as runtime.py has it

inline int dtype_of(at::ScalarType kind) {
  return kind == at::kFloat ? 0 : kind == at::kHalf ? 1 : kind == at::kBFloat16 ? 2 : kind == at::kDouble ? 3 : -1;
}
inline int device_of(const at::Device& device) {
  if (device.is_cpu()) return 0;
  return device.is_cuda() && device.index() >= 0 && device.index() + 1 < DEVICES ? device.index() + 1 : -1;
}

// What a kernel can take of any tensor, whatever its sizes.
inline int plain(const Tensor& t, at::ScalarType kind, const at::Device& device) {
  if (t.layout() != at::kStrided || t.is_neg() || t.is_conj() || t._is_zerotensor()) return LAYOUT;
  if (t.scalar_type() != kind) return DTYPE;
  if (t.device() != device) return DEVICE;
  if (!t.is_contiguous()) return LAYOUT;
  // Kernels of GPUs were measured where allocations begin; not all were tried on other addresses.
  if (!device.is_cpu() && reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16) return LAYOUT;
  return t.numel() > INT32_MAX ? LARGE : OURS;
}

inline bool sized(const Tensor& t, at::IntArrayRef lead, std::initializer_list<int64_t> rest) {
  const auto sizes = t.sizes();
  if (sizes.size() != lead.size() + rest.size()) return false;
  return std::equal(lead.begin(), lead.end(), sizes.begin()) &&
         std::equal(rest.begin(), rest.end(), sizes.begin() + lead.size());
}

inline at::DimVector joined(at::IntArrayRef lead, std::initializer_list<int64_t> rest) {
  at::DimVector sizes(lead.begin(), lead.end());
  sizes.append(rest.begin(), rest.end());
  return sizes;
}

// On a CPU as PyTorch's own kernels make their outputs: the dispatcher takes as long as a small kernel.
inline Tensor empty(at::IntArrayRef sizes, at::ScalarType kind, const at::Device& device) {
  if (device.is_cpu()) return Tensor(at::detail::empty_cpu(sizes, kind));
  return at::empty(sizes, at::TensorOptions().dtype(kind).device(device));
}

inline int64_t floor_of(int64_t a, int64_t b) {
  return b == 0 ? -1 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Indices are looked at, as a kernel would read wherever they lead. A GPU's stay where they are.
template <typename T>
inline bool within(const Tensor& t, int64_t low, int64_t high) {
  if (!t.device().is_cpu()) return false;
  const T* p = t.const_data_ptr<T>();
  const int64_t n = t.numel();
  int64_t outside = 0;
  for (int64_t i = 0; i < n; ++i) outside += p[i] < low || p[i] >= high;
  return outside == 0;
}

inline bool capturing(const at::Device& device) {
#ifdef PORTKERN_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);  // what is asked is the stream of the current device
    return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  }
#endif
  return false;
}

// The first call of a kernel loads it, and that of a framework's product makes a handle. A capture that
// looks after all threads forbids both, and ends with an error then; in this mode neither is captured.
struct WhileCaptured {
#ifdef PORTKERN_CUDA
  std::optional<c10::cuda::CUDAStreamCaptureModeGuard> relaxed;
  explicit WhileCaptured(const at::Device& device) {
    if (capturing(device)) relaxed.emplace(cudaStreamCaptureModeRelaxed);
  }
#else
  explicit WhileCaptured(const at::Device&) {}
#endif
};

// PyTorch's attention on a GPU reads packs of elements wherever a tensor and each of its rows begin: at an
// address that is not one of a pack it ends with an error of the device, or with the process. A copy begins
// at one, and its rows do where their length is of whole packs: PyTorch itself pads others.
inline Tensor aligned(const Tensor& t) {
  static constexpr c10::DispatchKeySet wrapped{
      c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper};
  if (!t.is_cuda() || !t.has_storage() || t.key_set().has_any(wrapped)) return t;
  bool whole = reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
  if (!t.is_contiguous())
    for (int64_t axis = 0; axis + 1 < t.dim(); ++axis)
      whole &= t.size(axis) < 2 || t.stride(axis) * int64_t(t.element_size()) % 16 == 0;
  return whole ? t : t.clone(at::MemoryFormat::Contiguous);
}

// PyTorch's attention of half precision may end the process of a GPU when it is asked a second time for what it
// refused once, so it is not asked.
inline Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* one : {&q, &k, &v})
    TORCH_CHECK(one->dim() >= 2, "expected at least 2 dimensions, got ", one->dim());
  TORCH_CHECK(q.sym_size(-1) == k.sym_size(-1), "q has ", q.sym_size(-1), " elements a row and k ", k.sym_size(-1), ", expected as many");
  TORCH_CHECK(k.sym_size(-2) == v.sym_size(-2), "k has ", k.sym_size(-2), " rows and v ", v.sym_size(-2), ", expected as many");
  return at::scaled_dot_product_attention(aligned(q), aligned(k), aligned(v), std::nullopt, 0.0, /*is_causal=*/true);
}

// torch::rms_norm, which up to 2.11 takes a length that is a symbol for a number.
inline Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const c10::SymInt length = x.sym_size(-1);
  if (const auto known = length.maybe_as_int()) return at::rms_norm(x, {*known}, weight, eps);
  TORCH_CHECK(weight.dim() == 1 && weight.sym_size(0) == length, "expected a weight of the last axis' length");
  const Tensor wide = x.to(c10::promoteTypes(x.scalar_type(), at::kFloat));
  const Tensor scale = at::rsqrt((wide * wide).mean(-1, true) + eps);
  return (wide * scale * weight).to(x.scalar_type());
}

// The rule: the very cell; else, where the nearest cell is within a factor of 2 in every size and the
// three nearest all win by the same kernel, that; else nothing.
inline void by_evidence(const Table& table, int scalars, const Key& key, Choice& choice) {
  const double wanted = least;
  const size_t axes = key.size() - scalars;
  c10::SmallVector<std::pair<double, const Cell*>, 4> near;
  double widest = 0;
  for (const Cell& cell : table.cells) {
    if (cell.key.size() != key.size()) continue;
    if (!std::equal(key.begin() + axes, key.end(), cell.key.begin() + axes)) continue;
    double squares = 0, most = 0;
    for (size_t i = 0; i < axes; ++i) {
      const double apart = std::abs(std::log2(double(key[i] + 1)) - std::log2(double(cell.key[i] + 1)));
      squares += apart * apart;
      most = std::max(most, apart);
    }
    const std::pair<double, const Cell*> one{squares, &cell};
    if (squares == 0) { near.assign(1, one); widest = 0; break; }
    const bool nearest = near.empty() || squares < near[0].first;
    if (nearest) widest = most;
    near.insert(std::upper_bound(near.begin(), near.end(), one, [](auto& a, auto& b) { return a.first < b.first; }), one);
    if (near.size() > 3) near.pop_back();
  }
  if (near.empty()) { choice.why = table.kernels.empty() ? NO_KERNEL : FAR; return; }
  const Cell& first = *near[0].second;
  choice.distance = std::sqrt(near[0].first);
  choice.cell = first.record;
  const bool exact = near[0].first == 0;
  if (!table.kernels[first.kernel].takes(key)) { choice.why = FAR; return; }
  if (!exact && (near.size() < 3 || widest > 1.0)) { choice.why = FAR; return; }
  for (const auto& [_, cell] : near)
    if (!(cell->speedup > wanted) || cell->kernel != first.kernel) { choice.why = exact ? SLOWER : FAR; return; }
  choice.kernel = first.kernel;
  choice.why = OURS;
}

using Tensors = c10::SmallVector<Tensor, 2>;

// Within four times what the framework's own formula errs by, and a few roundoffs. Whole numbers are equal:
// an operator of this project with indices says which of equal elements comes first.
inline bool close(const Tensors& ours, const Tensors& theirs, const Tensors& exact) {
  if (ours.size() != theirs.size()) return false;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].sizes() != theirs[i].sizes() || ours[i].scalar_type() != theirs[i].scalar_type()) return false;
    if (!ours[i].is_floating_point()) {
      if (!at::equal(ours[i], theirs[i])) return false;
      continue;
    }
    const Tensor e = exact[i].to(at::kDouble), a = ours[i].to(at::kDouble), b = theirs[i].to(at::kDouble);
    const Tensor finite = at::isfinite(b);
    if (!at::equal(at::isnan(a), at::isnan(b)) || !at::equal(at::isfinite(a), finite)) return false;
    if (!finite.any().item<bool>()) continue;
    const auto size = [&](const Tensor& t) { return at::where(finite, t.abs(), 0.0).max().item<double>(); };
    const double roundoff = ours[i].scalar_type() == at::kFloat ? 1.2e-7 : ours[i].scalar_type() == at::kHalf ? 9.8e-4 : ours[i].scalar_type() == at::kBFloat16 ? 7.9e-3 : 2.3e-16;
    if (size(a - e) > 4 * size(b - e) + 16 * roundoff * size(e)) return false;
  }
  return true;
}

inline void wait_for(const at::Device& device) {
#ifdef PORTKERN_CUDA
  if (device.is_cuda()) c10::cuda::stream_synchronize(c10::cuda::getCurrentCUDAStream(device.index()));
#endif
}

// Seconds of one of so many calls, one behind the other: what a model would wait for, of the host or of
// the device.
template <typename Call>
double timed(const at::Device& device, int calls, Call call, int kernel) {
  wait_for(device);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call(kernel);
  wait_for(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

// Ten rounds in turns, and up to thirty while they take five milliseconds. `call(kernel)` runs one and
// has nothing where that fails, `call(-1)` runs the formula and `call(-2)` the formula in double. A round
// is of some 300 us on a GPU, or what is timed is how long it takes to wait, and of 50 us on a CPU, whose
// clock and interrupts are as long as a small call. Only who is `able` takes part.
template <typename Call>
void race(Table& table, const std::vector<bool>& able, const at::Device& device, Call call, Choice& choice) {
  choice.kernel = -1;  // whatever the evidence said: who does not win is not taken
  const int count = int(table.kernels.size());
  std::vector<std::vector<double>> times(count + 1);
  const Tensors theirs = call(-1), exact = call(-2);
  std::vector<bool> right(count);
  bool any = false;
  for (int k = 0; k < count; ++k) any |= right[k] = able[k] && close(call(k), theirs, exact);
  if (!any) { choice.why = WRONG; return; }
  int calls = 1;
  for (int k = -1; k < count; ++k)  // warm
    if (k < 0 || right[k]) {
      const double once = timed(device, 1, call, k);
      if (k < 0) calls = int(std::clamp((device.is_cpu() ? 50e-6 : 300e-6) / once, 1.0, 30.0));
    }
  const auto begun = std::chrono::steady_clock::now();
  const auto goes_on = [&](int round) {
    return round < 10 || (round < 30 && std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(5));
  };
  for (int round = 0; goes_on(round); ++round)
    for (int place = 0; place <= count; ++place) {
      const int k = (round % 2 ? count - place : place) - 1;  // who comes first is the last one then
      if (k < 0 || right[k]) times[k + 1].push_back(timed(device, calls, call, k));
    }
  const auto middle = [](std::vector<double>& all) {
    std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    return all[all.size() / 2];
  };
  double best = middle(times[0]) * 0.97;  // what is won by less is noise
  choice.why = LOST;
  for (int k = 0; k < count; ++k) {
    if (times[k + 1].empty()) continue;
    if (const double own = middle(times[k + 1]); own < best) {
      best = own;
      choice.kernel = k;
      choice.why = RACED;
    }
  }
}

// OURS where a kernel gives what the formula does, else why it is not taken.
template <typename Call>
Why as_the_formula(Call call, int kernel) {
  try {
    const Tensors ours = call(kernel);
    if (ours.empty()) return FAILED;
    return close(ours, call(-1), call(-2)) ? OURS : WRONG;
  } catch (const std::exception&) {  // as where the formula in double does not fit into the memory
    return UNRACED;
  }
}

// Another thread may still count a call of a decision that it found: such are kept to the end.
inline void outdated(std::unique_ptr<Choice> choice) {
  static std::deque<std::unique_ptr<Choice>> old;
  static std::mutex guard;
  std::lock_guard<std::mutex> alone(guard);
  if (choice) old.push_back(std::move(choice));
}

template <typename Call>
const Choice* decide(int op, int device, int dtype, const Key& key, at::ArrayRef<double> numbers, const at::Device& where, Call call) {
  Table& table = operators[op].tables[device][dtype];
  const auto kept_out = [&](const Kernel& one) { return one.takes(key) && !one.admits(key, numbers); };
  const auto is_final = [&](const Choice& choice) {
    return !choice.partial || std::any_of(table.kernels.begin(), table.kernels.end(), kept_out);
  };
  {
    std::shared_lock<std::shared_mutex> hold(table.lock);
    const auto found = table.known.find(key);
    if (found != table.known.end() && is_final(*found->second)) return found->second.get();
  }
  static const Choice later{-1, CAPTURED};  // what waits for a result is for another time: a capture forbids it
  static const Choice other{-1, SCALARS};  // nor is what another value of a scalar may take
  const bool captured = capturing(where);
  if (policy == ONLINE && !table.kernels.empty() && captured) return &later;
  std::unique_lock<std::shared_mutex> hold(table.lock);
  const auto found = table.known.find(key);
  if (found != table.known.end() && is_final(*found->second)) return found->second.get();
  auto choice = std::make_unique<Choice>();
  const int now = policy;
  std::vector<bool> able;
  for (const Kernel& one : table.kernels) able.push_back(one.takes(key) && one.admits(key, numbers));
  const auto first = std::find(able.begin(), able.end(), true);
  if (now == ALWAYS || now == ONLINE) {
    choice->partial = std::any_of(table.kernels.begin(), table.kernels.end(), kept_out);
    if (choice->partial && first == able.end()) return &other;
  }
  if (now == ALWAYS) {
    choice->kernel = first == able.end() ? -1 : int(first - able.begin());
    choice->why = choice->kernel < 0 ? NO_KERNEL : OURS;
  } else {
    by_evidence(table, operators[op].scalars, key, *choice);
    // A record's times are without the host's.
    if (now == ONLINE && first != able.end()) try {
        race(table, able, where, call, *choice);
      } catch (const std::exception&) {  // as where the formula in double does not fit into the memory
        choice->kernel = -1;
        choice->why = UNRACED;
      }
    if (choice->partial && choice->why == LOST) choice->why = SCALARS;  // nor is it remembered
  }
  if (choice->kernel >= 0 && table.kernels[choice->kernel].unproven && choice->why == OURS) {
    if (captured) return &later;
    if (!table.kernels[choice->kernel].admits(key, numbers)) return &other;
    choice->why = as_the_formula(call, choice->kernel);
    if (choice->why != OURS) choice->kernel = -1;
  }
  auto& kept = table.known[key];
  std::swap(kept, choice);
  outdated(std::move(choice));
  return kept.get();
}

inline Tensor leaf(const Tensor& t) { return t.detach().requires_grad_(t.is_floating_point()); }

// A C++ autograd function knows no levels of functorch, and drops forward gradients without a word.
inline bool transformed(std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
  if (auto& tls = at::functorch::functorchTLSAccessor()) {
    try {
      tls->checkSupportsCppAutogradFunction();
    } catch (const c10::Error&) {
      return true;
    }
  }
  for (const Tensor& t : tensors)
    if (t.defined() && t._fw_grad(0).defined()) return true;
  return false;
}

}  // namespace

extern "C" {
int pk_kernel(int op, int device, int dtype, void* function, const void* plan, int unproven) {
  auto& kernels = operators[op].tables[device][dtype].kernels;
  kernels.push_back({function, static_cast<const Plan*>(plan), unproven != 0});
  return int(kernels.size()) - 1;
}
void pk_cell(int op, int device, int dtype, const int64_t* key, int count, int kernel, double speedup, int record) {
  operators[op].tables[device][dtype].cells.push_back({Key(key, key + count), kernel, speedup, record});
}
// `keep`: what is decided stays so, but for what only a race could decide.
void pk_policy(int chosen, double speedup, int keep) {
  policy = chosen;
  least = speedup;
  for (auto& op : operators)
    for (auto& row : op.tables)
      for (auto& table : row) {
        std::unique_lock<std::shared_mutex> hold(table.lock);
        for (auto at = table.known.begin(); at != table.known.end();) {
          const int why = at->second->why;
          if (keep && !(chosen == ONLINE && (why == FAR || why == CAPTURED))) { ++at; continue; }
          outdated(std::move(at->second));
          at = table.known.erase(at);
        }
      }
}
void pk_know(int op, int device, int dtype, const int64_t* key, int count, int kernel, int why) {
  Table& table = operators[op].tables[device][dtype];
  std::unique_lock<std::shared_mutex> hold(table.lock);
  auto choice = std::make_unique<Choice>();
  choice->kernel = kernel;
  choice->why = why;
  std::swap(table.known[Key(key, key + count)], choice);
  outdated(std::move(choice));
}
int64_t pk_fallen(int op, int why) { return operators[op].fallen[why]; }
int pk_known(int op, int device, int dtype, int number, int64_t* key, int* kernel, int* why, int* cell, double* distance, int64_t* calls) {
  Table& table = operators[op].tables[device][dtype];
  std::shared_lock<std::shared_mutex> hold(table.lock);
  for (auto& [sizes, choice] : table.known)
    if (number-- == 0) {
      std::copy(sizes.begin(), sizes.end(), key);
      *kernel = choice->kernel, *why = choice->why, *cell = choice->cell, *distance = choice->distance;
      *calls = choice->calls;
      return int(sizes.size());
    }
  return -1;
}
}
