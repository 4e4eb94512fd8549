// Findings: one JSON line each, written at once, so that they survive what ends the process.
#include <dlfcn.h>
#include <link.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "context.h"
#include "memory.h"
#include "sink.h"

namespace simt {
namespace {

constexpr unsigned most_places = 200;  // of one code: more distinct ones say nothing new

struct Seen {
    unsigned count, told;
    std::string head;  // JSON up to the count
};
std::recursive_mutex lock;  // a signal handler may report while its thread does
std::unordered_map<std::string, Seen>& seen() {
    static auto* all = new std::unordered_map<std::string, Seen>;
    return *all;
}
std::unordered_map<int, unsigned>& places() {  // by code
    static auto* all = new std::unordered_map<int, unsigned>;
    return *all;
}
unsigned total;

void append_string(std::string& out, const char* key, const char* text) {
    out += ", \"";
    out += key;
    out += "\": \"";
    for (const char* p = text; *p; ++p) {
        const unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            out += '\\';
            out += (char)c;
        } else if (c < 0x20) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
            out += escaped;
        } else {
            out += (char)c;
        }
    }
    out += '"';
}

void append_number(std::string& out, const char* key, unsigned long long value) {
    char text[64];
    snprintf(text, sizeof text, ", \"%s\": %llu", key, value);
    out += text;
}

void append_index(std::string& out, const char* key, uint3 v) {
    char text[96];
    snprintf(text, sizeof text, ", \"%s\": [%u, %u, %u]", key, v.x, v.y, v.z);
    out += text;
}

// A code address becomes its module and offset; portkern/simt/execute/source_lines.py finds the line.
void append_pc(std::string& out, const char* prefix, const void* pc) {
    Dl_info info;
    link_map* module = nullptr;
    if (!dladdr1(pc, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP)) return;
    append_string(out, (std::string(prefix) + "module").c_str(), info.dli_fname);
    append_number(out, (std::string(prefix) + "pc").c_str(), (uintptr_t)pc - module->l_addr);
}

void append_place(std::string& out, const char* prefix, const Place& place) {
    if (place.site) {
        append_string(out, (std::string(prefix) + "file").c_str(), place.site->_M_file_name);
        append_number(out, (std::string(prefix) + "line").c_str(), place.site->_M_line);
        append_number(out, (std::string(prefix) + "column").c_str(), place.site->_M_column);
        append_string(out, (std::string(prefix) + "function").c_str(),
                      place.site->_M_function_name);
    } else if (place.pc) {
        append_pc(out, prefix, place.pc);
    }
}

std::string key_of(int code, const Place& place, const Place& other) {
    char text[160];
    // Sites of one line in several template instances are different objects: go by what they say.
    snprintf(text, sizeof text, "%d %p:%u:%u %p %p:%u %p %s", code,
             (const void*)(place.site ? place.site->_M_file_name : nullptr),
             place.site ? place.site->_M_line : 0, place.site ? place.site->_M_column : 0, place.pc,
             (const void*)(other.site ? other.site->_M_file_name : nullptr),
             other.site ? other.site->_M_line : 0, other.pc,
             place.site || place.pc ? "" : running_kernel);
    return text;
}

std::string line_of(int code, const char* text) {
    char head[32];
    snprintf(head, sizeof head, "{\"code\": \"SX%03d\"", code);
    std::string line = head;
    append_string(line, "message", text);
    return line;
}

// Begins with the code: see cut_off in portkern/simt/diagnostics.py.
std::string at_the_cap(int code) {
    char text[96];
    snprintf(text, sizeof text, "SX%03d at more than %u places: further ones are not told", code,
             most_places);
    return line_of(801, text) + ", \"count\": 1}";
}

void write_line(const std::string& line) {
    if (!config.findings[0]) {
        fprintf(stderr, "simt: %s\n", line.c_str());
        return;
    }
    const std::string whole = line + "\n";
    if (!append_to(config.findings, whole.data(), whole.size())) perror("simt: findings");
}

void record(int code, const Place& place, const Place& other, const char* text) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    ++total;
    auto& all = seen();
    const std::string key = key_of(code, place, other);
    auto found = all.find(key);
    if (found != all.end()) {
        ++found->second.count;
        return;
    }
    unsigned& kept = places()[code];
    if (kept > most_places) return;
    if (++kept > most_places) return write_line(at_the_cap(code));
    std::string line = line_of(code, text);
    append_place(line, "", place);
    append_place(line, "other_", other);
    if (running_kernel[0]) append_string(line, "kernel", running_kernel);
    if (block) {
        append_index(line, "block", context().index);
        append_index(line, "thread", threadIdx);
    }
    // Registered when what it needs is there, so that it comes before that goes.
    static const int at_end = atexit([] { flush_findings(); });
    (void)at_end;
    all[key] = {1, 1, line};
    write_line(line + ", \"count\": 1}");
}

}  // namespace

void report(int code, Place place, Place other, const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    record(code, place, other, text);
}

void finding(int code, Site at, const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    record(code, Place(at), Place(), text);
}

void fatal(int code, Site at, const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    record(code, Place(at), Place(), text);
    if (block) abandon();
    flush_findings();
    abort();
}

// What was met again since: one more line for each, with the count of what is new. Not of `all`:
// of what was met as often as it was told, so that many launches of one kernel are a few lines.
void flush_findings(bool all) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    for (auto& [key, s] : seen()) {
        if (s.count == s.told || (!all && s.count < 2 * s.told)) continue;
        char tail[32];
        snprintf(tail, sizeof tail, ", \"count\": %u}", s.count - s.told);
        write_line(s.head + tail);
        s.told = s.count;
    }
}

unsigned findings_so_far() { return total; }

void write_counters(const char* json) {
    std::string line = "{\"counters\": ";
    line += json;
    append_string(line, "kernel", running_kernel);
    write_line(line + "}");
}

}  // namespace simt

extern "C" __attribute__((visibility("default"))) unsigned simt_findings() {
    simt::flush_findings();
    return simt::findings_so_far();
}

// Forgets what was found, so that the next run reports it anew.
extern "C" __attribute__((visibility("default"))) void simt_forget() {
    simt::flush_findings();
    std::lock_guard<std::recursive_mutex> guard(simt::lock);
    simt::seen().clear();
    simt::places().clear();
    simt::total = 0;
}
