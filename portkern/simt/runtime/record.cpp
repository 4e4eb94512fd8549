// One JSON line per launch, followed by `blob` bytes: the contents of the buffers in `after` that
// have some, in their order. Buffers go by the order of their allocation, so that the runs of two
// programs that do the same line up; words that point into buffers are written as their number and
// offset, because addresses differ from run to run.
#include "record.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "memory.h"
#include "ring.h"
#include "sink.h"

namespace simt::record {
namespace {

constexpr long beyond_bound = -1, as_before = -2;

struct Known {
    uint64_t digest = 0;  // of the contents when last looked at
    bool any_digest = false, any_stored = false;
    std::string stored;  // what was last written to the file: a kernel can aim at a digest
};
std::map<unsigned, Known> known;  // by the buffer's number
size_t written_bytes;
unsigned launches;
std::string line;  // of the launch that runs

Region* buffer_at(uint64_t address) {
    if (address >> 47 || address < 1 << 16) return nullptr;
    Region* r = region_of(reinterpret_cast<void*>(address));
    if (!r || r->where != Where::buffer) return nullptr;
    const uint64_t begin = (uint64_t)r->buffer.begin;
    return address >= begin && address < begin + r->buffer.bytes ? r : nullptr;
}

uint64_t portable_pointer(unsigned number, uint64_t offset) {
    return uint64_t{0xB0FFull} << 48 | (uint64_t)(number & 0xFFFF) << 32 | (uint32_t)offset;
}

uint64_t portable_word(const char* at) {
    uint64_t word;
    memcpy(&word, at, 8);
    const Region* r = buffer_at(word);
    return r ? portable_pointer(r->number, word - (uint64_t)r->buffer.begin) : word;
}

uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

template <class Word>
uint64_t digest_of(const char* begin, size_t bytes, Word&& word_at) {
    uint64_t hash = bytes;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) hash = mixed(hash, word_at(begin + i));
    uint64_t rest = 0;
    memcpy(&rest, begin + i, bytes - i);
    return mixed(hash, rest);
}

std::string contents_of(const Buffer& b) {
    std::string all(b.begin, b.bytes);
    for (size_t i = 0; i + 8 <= b.bytes; i += 8) {
        const uint64_t word = portable_word(b.begin + i);
        memcpy(&all[i], &word, 8);
    }
    return all;
}

std::vector<Region*> live_buffers() {
    static std::vector<Region*> all;
    all.clear();
    each_buffer([](Region* r) { all.push_back(r); });
    std::sort(all.begin(), all.end(), [](Region* a, Region* b) { return a->number < b->number; });
    return all;
}

// Those whose contents are others than when they were last looked at; `written`: and those that may
// have been written to since, with what they held before.
std::vector<Region*> changed_buffers(bool written) {
    std::vector<Region*> result;
    for (Region* r : live_buffers()) {
        if (r->buffer.kind == Kind::host) continue;
        if (r->buffer.kind == Kind::device && !r->changed) continue;
        admit(r, Opened::read);
        r->changed = false;
        Known& k = known[r->number];
        const uint64_t digest = digest_of(r->buffer.begin, r->buffer.bytes, portable_word);
        const bool same = k.any_digest && k.digest == digest;
        if (same && !(written && r->buffer.kind == Kind::device)) continue;
        k.digest = digest;
        k.any_digest = true;
        result.push_back(r);
    }
    return result;
}

std::string quoted(const char* text) {
    std::string out = "\"";
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\') out += '\\';
        out += (unsigned char)*text < 32 ? ' ' : *text;
    }
    return out + '"';
}

std::string entry(const Region* r) {
    char text[96];
    snprintf(text, sizeof text, "[%u, %zu, \"%016llx\"", r->number, r->buffer.bytes,
             (unsigned long long)known[r->number].digest);
    return text;
}

std::string head(const Shape& s, const Call& call) {
    char text[256];
    snprintf(text, sizeof text,
             ", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %zu", s.grid.x,
             s.grid.y, s.grid.z, s.block.x, s.block.y, s.block.z, s.dynamic);
    return "{\"launch\": " + std::to_string(launches++) + ", \"kernel\": " + quoted(call.kernel) +
           text;
}

// The buffers that the kernel's arguments point into, in the order of its closure.
std::string pointers(const Call& call) {
    std::string out;
    for (size_t i = 0; i + 8 <= call.bytes; i += 8) {
        uint64_t word;
        memcpy(&word, static_cast<const char*>(call.closure) + i, 8);
        const Region* r = buffer_at(word);
        if (!r) continue;
        out += (out.empty() ? "[" : ", [") + std::to_string(r->number) + ", " +
               std::to_string(word - (uint64_t)r->buffer.begin) + "]";
    }
    return out;
}

void append(const std::string& text, const std::string& blob) {
    const std::string whole = text + blob;
    if (!append_to(config.record, whole.data(), whole.size())) perror("simt: record");
}

}  // namespace

bool wanted() { return config.record[0]; }

void begin_launch(const Launch& launch) {
    if (ring::active()) ring::begin_launch();
    line = head(launch.shape, launch.call) + ", \"arguments\": [" + pointers(launch.call) +
           "], \"before\": [";
    bool first = true;
    for (const Region* r : changed_buffers(false)) {
        line += (first ? "" : ", ") + entry(r) + "]";
        first = false;
    }
    line += "]";
}

void end_launch(const Launch& launch) {
    std::string blob, elements;
    line += ", \"failed\": " + std::string(launch.failed ? "true" : "false") + ", \"after\": [";
    bool first = true;
    for (const Region* r : changed_buffers(true)) {
        Known& k = known[r->number];
        const bool room = written_bytes + r->buffer.bytes <= config.record_bytes;
        long stored = beyond_bound;
        if (room || k.any_stored) {
            std::string now = contents_of(r->buffer);
            if (k.any_stored && now == k.stored) {
                stored = as_before;
            } else if (room) {
                blob += now;
                written_bytes += now.size();
                stored = (long)now.size();
                if (ring::active()) ring::append_elements(now.data(), now.size(), elements);
                k.stored = std::move(now);
                k.any_stored = true;
            }
        }
        line += (first ? "" : ", ") + entry(r) + ", " + std::to_string(stored) + ", " +
                std::to_string(r->dtype) + "]";
        first = false;
    }
    line += "]";
    if (ring::active())
        line += ", \"algebra\": " + ring::account_json() +
                ", \"elements\": " + std::to_string(elements.size());
    append(line + ", \"blob\": " + std::to_string(blob.size()) + "}\n", blob + elements);
}

void mark(const char* name) {
    if (!wanted()) return;
    append("{\"launch\": 0, \"kernel\": " + quoted(name) +
               ", \"grid\": [1, 1, 1], \"block\": [1, 1, 1], \"shared\": 0, \"blob\": 0}\n",
           "");
}

void refused(const Shape& shape, const Call& call) {
    append(head(shape, call) + ", \"refused\": true, \"blob\": 0}\n", "");
}

}  // namespace simt::record

extern "C" {

struct Numbered {
    uint64_t begin, bytes;
    unsigned number;
};

// The digest of a buffer's contents, which `portable` gets as a recording has them; the buffers are
// in order of their addresses. For who keeps device memory elsewhere than in this process.
__attribute__((visibility("default"))) uint64_t simt_digest(const char* data, size_t bytes,
                                                            const Numbered* buffers, size_t count,
                                                            char* portable) {
    memcpy(portable, data, bytes);
    const Numbered* const end = buffers + count;
    return simt::record::digest_of(data, bytes, [&](const char* at) {
        uint64_t word;
        memcpy(&word, at, 8);
        const Numbered* after = std::upper_bound(
            buffers, end, word, [](uint64_t w, const Numbered& b) { return w < b.begin; });
        if (after == buffers || word - after[-1].begin >= after[-1].bytes) return word;
        word = simt::record::portable_pointer(after[-1].number, word - after[-1].begin);
        memcpy(portable + (at - data), &word, 8);
        return word;
    });
}

}
