// Stands in for the GPU's runtime around one launch of emitted code: gives it buffers, and writes
// down what it did to them, as the executor does for the original.
#pragma once
#include <unistd.h>

#include <string>

#include "portkern_cpu.h"

enum { cudaSuccess, cudaMemcpyHostToDevice };
#define cudaFuncSetAttribute(...) ((void)0)
inline int cudaDeviceSynchronize() { return 0; }
inline int cudaGetLastError() { return 0; }

namespace portkern_host {

struct Buffer {
    char* begin;
    size_t bytes;
    uint64_t digest;
};
inline std::vector<Buffer>& buffers() {
    static std::vector<Buffer> all;
    return all;
}

inline uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

inline uint64_t digest_of(const Buffer& b) {
    uint64_t hash = b.bytes, word;
    size_t i = 0;
    for (; i + 8 <= b.bytes; i += 8) {
        memcpy(&word, b.begin + i, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, b.begin + i, b.bytes - i);
    return mixed(hash, word);
}

inline std::string entry(size_t number, const Buffer& b, const std::string& more) {
    char text[96];
    snprintf(text, sizeof text, "[%zu, %zu, \"%016llx\"", number, b.bytes,
             (unsigned long long)b.digest);
    return text + more + "]";
}

inline std::string& line() {
    static std::string text;
    return text;
}

inline void begin(const char* kernel, dim3 grid, dim3 block, size_t shared) {
    char head[512];
    snprintf(head, sizeof head,
             "{\"launch\": 0, \"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
             "\"shared\": %zu, \"before\": [",
             kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
    line() = head;
    std::string arguments;
    for (size_t n = 0; n < buffers().size(); ++n) {
        Buffer& b = buffers()[n];
        b.digest = digest_of(b);
        line() += (n ? ", " : "") + entry(n, b, "");
        arguments += (n ? ", [" : "[") + std::to_string(n) + ", 0]";
    }
    line() += "], \"arguments\": [" + arguments + "], \"after\": [";
}

inline void end() {
    std::string blob;
    bool first = true;
    for (size_t n = 0; n < buffers().size(); ++n) {
        Buffer& b = buffers()[n];
        const uint64_t digest = digest_of(b);
        if (digest == b.digest) continue;
        b.digest = digest;
        line() += (first ? "" : ", ") + entry(n, b, ", " + std::to_string(b.bytes) + ", -1");
        blob.append(b.begin, b.bytes);
        first = false;
    }
    line() += "], \"blob\": " + std::to_string(blob.size()) + "}\n";
    const char* settings = getenv("PORTKERN_SIMT");
    const char* record = settings ? strstr(settings, ";record=") : nullptr;
    if (!record) return;
    const std::string path(record + 8, strcspn(record + 8, ";"));
    if (path.empty()) return;
    FILE* file = path[0] == '&' ? fdopen(dup(atoi(path.c_str() + 1)), "wb")  // a handle
                                : fopen(path.c_str(), "wb");
    if (!file) return;
    fwrite(line().data(), 1, line().size(), file);
    fwrite(blob.data(), 1, blob.size(), file);
    fclose(file);
}

// Of a counter-example: the element that differs from the original's.
template <class T>
inline void show(const char* name, const void* buffer, size_t index, const char* expected) {
    printf("'%s'[%zu] is %.9g, expected %s\n", name, index, (double)((const T*)buffer)[index], expected);
}

// ---- a launch by another process, which finds the arguments in files

template <class T>
inline std::string written(T value) {
    char text[64];
    if constexpr (std::is_pointer_v<T>) {
        for (size_t n = 0; n < buffers().size(); ++n)
            if ((const char*)value == buffers()[n].begin)
                return "{\"buffer\": " + std::to_string(n) + "}";
        return "null";
    } else if constexpr (std::is_floating_point_v<T>) {
        snprintf(text, sizeof text, "%.17g", (double)value);
    } else {
        snprintf(text, sizeof text, "%lld", (long long)value);
    }
    return text;
}

inline void transfer(const char* mode, size_t (*move)(void*, size_t, size_t, FILE*)) {
    for (size_t n = 0; n < buffers().size(); ++n) {
        FILE* file = fopen(("buffer_" + std::to_string(n)).c_str(), mode);
        if (!file || move(buffers()[n].begin, 1, buffers()[n].bytes, file) != buffers()[n].bytes)
            exit(5);
        fclose(file);
    }
}

template <class... Given>
inline void launch_by(const char* command, const char* name, dim3 grid, dim3 block, size_t shared,
                      Given... given) {
    std::string list;
    ((list += (list.empty() ? "" : ", ") + written(given)), ...);
    FILE* file = fopen("launch.json", "w");
    if (!file) exit(5);
    fprintf(file,
            "{\"name\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %zu, "
            "\"arguments\": [%s]}\n",
            name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, list.c_str());
    fclose(file);
    transfer("wb", [](void* at, size_t size, size_t n, FILE* f) { return fwrite(at, size, n, f); });
    if (system(command) != 0) exit(4);
    transfer("rb", [](void* at, size_t size, size_t n, FILE* f) { return fread(at, size, n, f); });
}

}  // namespace portkern_host

template <class T>
inline int cudaMalloc(T** at, size_t bytes) {
    *at = (T*)aligned_alloc(256, (bytes + 255) / 256 * 256);
    portkern_host::buffers().push_back({(char*)*at, bytes, 0});
    return 0;
}
inline int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
    memcpy(to, from, bytes);
    return 0;
}
