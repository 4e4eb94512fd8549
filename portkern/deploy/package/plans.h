// Launches that were written down when the library was made, of kernels whose host code is another
// language's: for the sizes of a cell the binaries, grids and arguments, made by the driver itself.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#ifdef PORTKERN_CUDA
#include <dlfcn.h>
#endif

namespace {

using Key = c10::SmallVector<int64_t, 16>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t h = 1469598103934665603u;
    for (const int64_t n : key) h = (h ^ size_t(n)) * 1099511628211u;
    return h ^ (h >> 29);
  }
};

// In the order of the words in _plans.py.
enum ArgumentKind { GIVEN, TEMPORARY, SCALAR, VALUE };
struct Argument {
  int64_t kind, what, offset;  // of a value `what` is its bits
};
struct Step {
  int64_t function;  // -1: so many bytes of the only argument become zero
  unsigned grid[3], threads, shared;
  int64_t bytes;
  std::vector<Argument> arguments;
};
struct Launches {
  std::vector<int64_t> temporaries;  // their bytes
  std::vector<Step> steps;
  std::vector<std::pair<int64_t, double>> fixed;  // scalars by whose values host code chose these steps
};

#ifdef PORTKERN_CUDA
// Of the driver that torch has loaded: nothing is linked with it.
struct Driver {
  int (*load)(void** module, const void* image);
  int (*find)(void** function, void* module, const char* name);
  int (*set)(void* function, int attribute, int value);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void* stream, void** arguments, void** extra);
  int (*fill)(unsigned long long address, unsigned char value, size_t count, void* stream);
  bool there = false;

  static const Driver& here() {
    static const Driver one;
    return one;
  }
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(library ? dlsym(library, name) : nullptr);
      return function != nullptr;
    };
    there = take(load, "cuModuleLoadData") && take(find, "cuModuleGetFunction") && take(set, "cuFuncSetAttribute") &&
            take(launch, "cuLaunchKernel") && take(fill, "cuMemsetD8Async");
  }
};
#endif

class Plan {
 public:
  std::vector<std::string> binaries;
  std::vector<std::pair<int64_t, std::string>> functions;  // the binary, and the name in it
  std::unordered_map<Key, Launches, KeyHash> cells;
  int64_t tensors = 0, scalars = 0;  // of a call, that it needs

  bool has(const Key& key) const { return cells.count(key); }
  bool admits(const Key& key, at::ArrayRef<double> numbers) const {
    const auto cell = cells.find(key);
    if (cell == cells.end() || scalars > int64_t(numbers.size())) return false;
    const auto& fixed = cell->second.fixed;
    return std::all_of(fixed.begin(), fixed.end(), [&](const auto& one) { return numbers[one.first] == one.second; });
  }

  // Whether all that a step names is there, or will be in a call of as many tensors and scalars as are noted.
  bool sound(const Step& step, int64_t temporaries) {
    const bool zeroes = step.function < 0;
    if (zeroes ? step.arguments.size() != 1 || step.bytes < 0 : step.function >= int64_t(functions.size())) return false;
    for (const Argument& one : step.arguments) {
      if (one.kind == VALUE ? zeroes : one.what < 0 || one.offset < 0) return false;
      switch (one.kind) {
        case GIVEN: tensors = std::max(tensors, one.what + 1); break;
        case TEMPORARY: if (one.what >= temporaries) return false; break;
        case SCALAR: if (zeroes) return false; scalars = std::max(scalars, one.what + 1); break;
        case VALUE: break;
        default: return false;
      }
    }
    return true;
  }

#ifdef PORTKERN_CUDA
  // 0, or an error, of the driver or of a call that is not the plan's. Temporary memory is torch's, so that
  // streams and captured graphs keep it.
  int run(const Key& key, at::ArrayRef<void*> given, at::ArrayRef<double> numbers, const at::Device& device, void* stream) const {
    const auto cell = cells.find(key);
    if (!admits(key, numbers) || tensors > int64_t(given.size()) || !Driver::here().there) return 1;
    // No plan is written of a call with an empty tensor, which has no address.
    if (std::find(given.begin(), given.end(), nullptr) != given.end()) return 1;
    const std::vector<void*>* const loaded = on(device.index());
    if (!loaded) return 1;
    c10::SmallVector<at::Tensor, 4> temporaries;
    try {
      for (const int64_t bytes : cell->second.temporaries)
        temporaries.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device)));
    } catch (const c10::OutOfMemoryError&) {  // the formula may do with less
      return 1;
    }
    const auto address = [&](const Argument& one) {
      char* const start = one.kind == GIVEN ? static_cast<char*>(given[one.what]) : static_cast<char*>(temporaries[one.what].mutable_data_ptr());
      return reinterpret_cast<uint64_t>(start + one.offset);
    };
    for (const Step& step : cell->second.steps) {
      if (step.function < 0) {
        if (const int code = Driver::here().fill(address(step.arguments[0]), 0, step.bytes, stream)) return code;
        continue;
      }
      // Behind its own arguments a kernel may have two of scratch memory, which it does not use.
      c10::SmallVector<uint64_t, 32> values(step.arguments.size() + 2, 0);
      c10::SmallVector<void*, 32> places;
      for (size_t i = 0; i < values.size(); ++i) {
        places.push_back(&values[i]);
        if (i >= step.arguments.size()) continue;
        const Argument& one = step.arguments[i];
        if (one.kind == SCALAR) {
          const float number = float(numbers[one.what]);
          std::memcpy(&values[i], &number, sizeof number);
        } else {
          values[i] = one.kind == VALUE ? uint64_t(one.what) : address(one);
        }
      }
      const auto& [x, y, z] = step.grid;
      const int code = Driver::here().launch((*loaded)[step.function], x, y, z, step.threads, 1, 1, step.shared, stream, places.data(), nullptr);
      if (code) return code;
    }
    return 0;
  }

 private:
  // The functions on a device, whose context is current; nothing where one cannot be loaded.
  const std::vector<void*>* on(int device) const {
    std::lock_guard<std::mutex> alone(lock);
    const auto [place, fresh] = loaded.try_emplace(device);
    if (fresh && !load(place->second)) place->second.clear();
    return place->second.empty() ? nullptr : &place->second;
  }
  bool load(std::vector<void*>& made) const {
    std::vector<void*> modules;
    for (const std::string& binary : binaries) {
      void* module = nullptr;
      if (Driver::here().load(&module, binary.data())) return false;
      modules.push_back(module);
    }
    for (size_t i = 0; i < functions.size(); ++i) {
      void* function = nullptr;
      if (Driver::here().find(&function, modules[functions[i].first], functions[i].second.c_str())) return false;
      int most = 0;
      for (const auto& [_, cell] : cells)
        for (const Step& step : cell.steps)
          if (step.function == int64_t(i)) most = std::max(most, int(step.shared));
      constexpr int DYNAMIC_SHARED = 8, WITHOUT_ASKING = 48 << 10;
      if (most > WITHOUT_ASKING && Driver::here().set(function, DYNAMIC_SHARED, most)) return false;
      made.push_back(function);
    }
    return true;
  }
  mutable std::mutex lock;
  mutable std::map<int, std::vector<void*>> loaded;
#endif
};

// One of a library: a function in C, or a plan. `unproven`: it is not the very code that was measured,
// and its first call is held against the formula.
struct Kernel {
  void* function = nullptr;
  const Plan* plan = nullptr;
  bool unproven = false;
  bool takes(const Key& key) const { return !plan || plan->has(key); }
  bool admits(const Key& key, at::ArrayRef<double> numbers) const { return !plan || plan->admits(key, numbers); }
};

// Reads numbers one behind the other, as _plans.py writes them.
struct Words {
  const int64_t* at;
  int64_t next() { return *at++; }
};

}  // namespace

extern "C" {
// Kept for as long as the process lives: kernels point at it. Nothing where words name what is not there:
// Python called, which no exception may pass.
void* pk_plan(const int64_t* words, const char* const* binaries, const int64_t* sizes, int count, const char* const* names) {
  auto plan = std::make_unique<Plan>();
  for (int i = 0; i < count; ++i) plan->binaries.emplace_back(binaries[i], sizes[i]);
  Words in{words};
  for (int64_t i = 0, n = in.next(); i < n; ++i) plan->functions.emplace_back(in.next(), names[i]);
  for (const auto& [binary, _] : plan->functions)
    if (binary < 0 || binary >= count) return nullptr;
  for (int64_t i = 0, n = in.next(); i < n; ++i) {
    Key key;
    for (int64_t k = 0, m = in.next(); k < m; ++k) key.push_back(in.next());
    Launches& cell = plan->cells[key];
    for (int64_t k = 0, m = in.next(); k < m; ++k) cell.temporaries.push_back(in.next());
    for (int64_t k = 0, m = in.next(); k < m; ++k) {
      Step step{in.next(), {unsigned(in.next()), unsigned(in.next()), unsigned(in.next())}, unsigned(in.next()), unsigned(in.next()), in.next(), {}};
      for (int64_t j = 0, l = in.next(); j < l; ++j) step.arguments.push_back({in.next(), in.next(), in.next()});
      if (!plan->sound(step, cell.temporaries.size())) return nullptr;
      cell.steps.push_back(std::move(step));
    }
    for (int64_t k = 0, m = in.next(); k < m; ++k) {
      const int64_t number = in.next(), bits = in.next();
      if (number < 0) return nullptr;
      plan->scalars = std::max(plan->scalars, number + 1);
      double value;
      std::memcpy(&value, &bits, sizeof value);
      cell.fixed.emplace_back(number, value);
    }
  }
  return plan.release();
}
}
