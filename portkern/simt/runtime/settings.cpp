// Settings: "key=value;key=value", from Python and from the environment.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "context.h"
#include "ring.h"
#include "sink.h"

namespace simt {
namespace {

const char* const orders[] = {"forward", "lockstep", "reverse", "random", "priority"};

bool flag(const std::string& value) { return value == "1"; }

bool set(const std::string& key, const std::string& value) {
    const double number = atof(value.c_str());
    const unsigned long long whole = strtoull(value.c_str(), nullptr, 10);
    if (key == "order") {
        for (int i = 0; i < 5; ++i)
            if (value == orders[i]) return config.order = (Order)i, true;
        return false;
    }
    if (key == "findings") return snprintf(config.findings, sizeof config.findings, "%s",
                                           value.c_str()) < (int)sizeof config.findings;
    if (key == "record") return snprintf(config.record, sizeof config.record, "%s",
                                         value.c_str()) < (int)sizeof config.record;
    if (key == "ring") return value.empty() || ring::begin(value.c_str());
    if (key == "name") return snprintf(facts.name, sizeof facts.name, "%s", value.c_str()) >= 0;
    if (key == "arch") return snprintf(facts.arch, sizeof facts.arch, "%s", value.c_str()) >= 0;
    if (key == "fp8") {
        facts.fp8 = value == "ocp" ? Fp8::ocp : value == "fnuz" ? Fp8::fnuz : Fp8::none;
        return true;
    }
    if (key == "warp") {
        if (whole != 32 && whole != 64) return false;
        facts.warp = warpSize = (int)whole;
        return true;
    }
    const struct { const char* key; bool* to; } flags[] = {
        {"races", &config.races}, {"bounds", &config.bounds},
        {"uninitialised", &config.uninitialised}, {"alignment", &config.alignment},
        {"counters", &config.counters}, {"account", &config.account}, {"hip", &facts.hip}, {"widen", &facts.widen_masks},
        {"lockstep", &facts.lockstep}, {"waves", &facts.waves}};
    for (const auto& f : flags)
        if (key == f.key) return *f.to = flag(value), true;
    const struct { const char* key; unsigned* to; } numbers[] = {
        {"preempt", &config.preempt}, {"launches", &config.launches}, {"threads_block", &facts.threads_block},
        {"block_x", &facts.block_max[0]}, {"block_y", &facts.block_max[1]},
        {"block_z", &facts.block_max[2]}, {"registers_unit", &facts.registers_unit},
        {"units", &facts.units}, {"blocks_unit", &facts.blocks_unit},
        {"threads_unit", &facts.threads_unit}};
    for (const auto& n : numbers)
        if (key == n.key) return *n.to = (unsigned)whole, true;
    const struct { const char* key; size_t* to; } sizes[] = {
        {"grid_x", &facts.grid_max[0]}, {"grid_y", &facts.grid_max[1]},
        {"grid_z", &facts.grid_max[2]}, {"shared_static", &facts.shared_static},
        {"shared_dynamic", &facts.shared_dynamic}, {"shared_unit", &facts.shared_unit},
        {"shared_reserved", &facts.shared_reserved}, {"l2_bytes", &facts.l2_bytes},
        {"memory_bytes", &facts.memory_bytes}, {"constant_bytes", &facts.constant_bytes},
        {"stack_bytes", &config.stack_bytes}, {"seed", &config.seed},
        {"record_bytes", &config.record_bytes}};
    for (const auto& s : sizes)
        if (key == s.key) return *s.to = whole, true;
    if (key == "workers") return config.workers = (int)whole, true;
    if (key == "major") return facts.major = (int)whole, true;
    if (key == "minor") return facts.minor = (int)whole, true;
    if (key == "limit_s") return config.limit_s = number, true;
    return false;
}

void defaults() {  // an H100, until a target is named
    facts = Facts{32, false, false, false, false, Fp8::ocp, 1024, {1024, 1024, 64},
                  {2147483647, 65535, 65535}, 49152, 232448, 233472, 1024, 65536, 132, 32, 2048,
                  50 << 20, (size_t)80 << 30, 65536, 9, 0, "portkern SIMT executor", "sm_90"};
}

}  // namespace
}  // namespace simt

// Returns null, or the first setting that is not understood.
extern "C" __attribute__((visibility("default"))) const char* simt_configure(const char* settings) {
    using namespace simt;
    static std::string wrong;
    std::string all = settings;
    for (size_t from = 0; from < all.size();) {
        size_t to = all.find(';', from);
        if (to == std::string::npos) to = all.size();
        const std::string one = all.substr(from, to - from);
        const size_t equals = one.find('=');
        if (equals == std::string::npos || !set(one.substr(0, equals), one.substr(equals + 1))) {
            wrong = one;
            return wrong.c_str();
        }
        from = to + 1;
    }
    return nullptr;
}

__attribute__((constructor)) static void configure_from_environment() {
    simt::defaults();
    simt::remember_handles();
    const char* settings = getenv("PORTKERN_SIMT");
    if (!settings) return;
    if (const char* wrong = simt_configure(settings)) {
        fprintf(stderr, "simt: PORTKERN_SIMT: got '%s', which is not a setting with a legal value\n",
                wrong);
        exit(2);
    }
}
