// Names of functions and places of constants from the tables of loaded modules. dladdr() knows
// exported functions only; a static kernel is in the file's .symtab.
#include "symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace simt {
namespace {

struct Module {
    std::map<uintptr_t, std::string> functions;  // by offset from the module's base
    std::set<std::string> names;
    std::vector<std::pair<uintptr_t, uintptr_t>> constants;  // begin and end of each section
    std::vector<std::pair<uintptr_t, uintptr_t>> managed;    // the same
    std::vector<std::pair<uintptr_t, uintptr_t>> local;      // static variables of functions
};

std::vector<char> read_file(const char* path) {
    std::vector<char> data;
    FILE* file = fopen(path, "rb");
    if (!file) return data;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    if (size > 0) data.resize((size_t)size);
    if (fread(data.data(), 1, data.size(), file) != data.size()) data.clear();
    fclose(file);
    return data;
}

std::string demangle(const char* symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = status == 0 ? text : symbol;
    free(text);
    return name;
}

// "void ns::k<float, 4>(float*, int)" → "ns::k<float, 4>"
std::string without_signature(const std::string& function) {
    const std::string anonymous = "(anonymous namespace)::";
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < function.size(); ++i) {
        const char c = function[i];
        if (c == '<') ++depth;
        if (c == '>') --depth;
        if (depth) continue;
        if (c == ' ') begin = i + 1;
        if (c != '(') continue;
        if (function.compare(i, anonymous.size(), anonymous))
            return function.substr(begin, i - begin);
        begin = i += anonymous.size();
        --i;
    }
    return function.substr(begin);
}

void read_symbols(Module& module, const std::vector<char>& file, const ElfW(Shdr)& table,
                  const ElfW(Shdr)& strings) {
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(file.data() + table.sh_offset);
    for (size_t i = 0; i < table.sh_size / sizeof(ElfW(Sym)); ++i) {
        if (!symbols[i].st_value) continue;
        const char* name = file.data() + strings.sh_offset + symbols[i].st_name;
        const int type = symbols[i].st_info & 15;
        if (type == STT_OBJECT && !strncmp(name, "_ZZ", 3))
            module.local.emplace_back(symbols[i].st_value,
                                      symbols[i].st_value + symbols[i].st_size);
        if (type != STT_FUNC) continue;
        const std::string plain = last_name(without_signature(demangle(name)));
        module.functions[symbols[i].st_value] = plain;
        module.names.insert(plain);
    }
}

void read_places(Module& module, const std::vector<char>& file, const ElfW(Ehdr)& header,
                 const ElfW(Shdr)* sections) {
    const char* names = file.data() + sections[header.e_shstrndx].sh_offset;
    for (const ElfW(Shdr)* s = sections; s < sections + header.e_shnum; ++s) {
        const std::string name = names + s->sh_name;
        if (name.rfind("simt_constant.", 0) == 0)
            module.constants.emplace_back(s->sh_addr, s->sh_addr + s->sh_size);
        if (name.rfind("simt_managed.", 0) == 0)
            module.managed.emplace_back(s->sh_addr, s->sh_addr + s->sh_size);
    }
}

bool is_whole(const std::vector<char>& file) {
    if (file.size() < sizeof(ElfW(Ehdr)) || memcmp(file.data(), ELFMAG, SELFMAG)) return false;
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file.data());
    return header.e_shoff + header.e_shnum * sizeof(ElfW(Shdr)) <= file.size() &&
           header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) <= file.size();
}

Module read_module(const char* path) {
    Module module;
    const std::vector<char> file = read_file(path);
    if (!is_whole(file)) return module;
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file.data());
    const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.data() + header.e_shoff);
    for (unsigned i = 0; i < header.e_shnum; ++i)
        if (sections[i].sh_type == SHT_SYMTAB || sections[i].sh_type == SHT_DYNSYM)
            read_symbols(module, file, sections[i], sections[sections[i].sh_link]);
    read_places(module, file, header, sections);
    return module;
}

std::mutex lock;

const Module& module_of(const Dl_info& info) {  // by path: a module is read once
    static std::map<std::string, Module> modules;
    auto found = modules.find(info.dli_fname);
    if (found == modules.end())
        found = modules.emplace(info.dli_fname, read_module(info.dli_fname)).first;
    return found->second;
}

}  // namespace

std::string last_name(const std::string& expression) {
    size_t end = expression.size();
    int depth = 0;
    for (size_t i = 0; i < expression.size(); ++i) {  // the first '<' that the last '>' closes
        if (expression[i] == '<' && depth++ == 0) end = i;
        if (expression[i] == '>' && --depth == 0 && i + 1 < expression.size() &&
            expression[i + 1] == ':')
            end = expression.size();
    }
    const auto part = [](char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; };
    while (end && !part(expression[end - 1])) --end;
    size_t begin = end;
    while (begin && part(expression[begin - 1])) --begin;
    return expression.substr(begin, end - begin);
}

std::string function_at(const void* code) {
    Dl_info info;
    if (!dladdr(code, &info)) return "";
    if (info.dli_sname && info.dli_saddr == code)
        return last_name(without_signature(demangle(info.dli_sname)));
    std::lock_guard<std::mutex> guard(lock);
    const Module& module = module_of(info);
    const uintptr_t offset = (uintptr_t)code - (uintptr_t)info.dli_fbase;
    auto found = module.functions.find(offset);
    if (found == module.functions.end()) found = module.functions.find((uintptr_t)code);  // no PIE
    return found == module.functions.end() ? "" : found->second;
}

namespace {

bool touches(const std::vector<std::pair<uintptr_t, uintptr_t>>& places, uintptr_t begin,
             size_t bytes) {
    for (auto [first, last] : places)
        if (begin < last && first < begin + bytes) return true;
    return false;
}

}  // namespace

bool is_constant(const void* p, size_t bytes) {
    Dl_info info;
    link_map* loaded = nullptr;
    if (!dladdr1(p, &info, reinterpret_cast<void**>(&loaded), RTLD_DL_LINKMAP)) return false;
    std::lock_guard<std::mutex> guard(lock);
    return touches(module_of(info).constants, (uintptr_t)p - loaded->l_addr, bytes);
}

bool can_be_symbol(const void* p) {
    Dl_info info;
    link_map* loaded = nullptr;
    if (!dladdr1(p, &info, reinterpret_cast<void**>(&loaded), RTLD_DL_LINKMAP)) return false;
    std::lock_guard<std::mutex> guard(lock);
    return !touches(module_of(info).local, (uintptr_t)p - loaded->l_addr, 1);
}

namespace {

#if defined(__x86_64__)
constexpr unsigned relative = R_X86_64_RELATIVE, copied = R_X86_64_COPY;
constexpr unsigned of_symbol[] = {R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
#else
constexpr unsigned relative = R_AARCH64_RELATIVE, copied = R_AARCH64_COPY;
constexpr unsigned of_symbol[] = {R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT};
#endif

constexpr unsigned packed = 19;  // SHT_RELR, which older headers do not have

// What the loader puts in the place of a relocation: of a symbol of the module's own, its address;
// of another module's what is there now.
void relocate(Data& data, const ElfW(Rela)& r, const ElfW(Sym)* symbols, uintptr_t base) {
    const uintptr_t at = base + r.r_offset - (uintptr_t)data.begin;
    const unsigned type = (unsigned)ELF64_R_TYPE(r.r_info);
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(r.r_info)];
    const size_t bytes = type == copied ? symbol.st_size : sizeof(uintptr_t);
    if (at > data.bytes || bytes > data.bytes - at) return;
    bool own = type == relative;
    uintptr_t word = base + (uintptr_t)r.r_addend;
    for (unsigned t : of_symbol)
        if (type == t && symbol.st_shndx != SHN_UNDEF) own = true, word += symbol.st_value;
    const void* from = own ? static_cast<const void*>(&word) : data.begin + at;
    memcpy(data.initial + at, from, bytes);
}

// Addresses of the module's own as linkers pack them (SHT_RELR): a place, which is even, then bits
// for the words behind it. What the file has there is relative to the base.
void relocate_packed(Data& data, const uintptr_t* entries, size_t count, uintptr_t base) {
    constexpr size_t word = sizeof(uintptr_t);
    const auto add_base = [&](uintptr_t place) {
        const uintptr_t at = base + place - (uintptr_t)data.begin;
        uintptr_t value;
        if (at > data.bytes || word > data.bytes - at) return;
        memcpy(&value, data.initial + at, word);
        value += base;
        memcpy(data.initial + at, &value, word);
    };
    uintptr_t next = 0;
    for (const uintptr_t* entry = entries; entry < entries + count; ++entry) {
        if (*entry % 2 == 0) {
            add_base(*entry);
            next = *entry + word;
            continue;
        }
        for (size_t k = 1; k < 8 * word; ++k, next += word)
            if (*entry >> k & 1) add_base(next);
    }
}

}  // namespace

char* zeros(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

std::vector<Data> data_of(const void* code) {
    std::vector<Data> all;
    Dl_info info;
    link_map* loaded = nullptr;
    if (!dladdr1(code, &info, reinterpret_cast<void**>(&loaded), RTLD_DL_LINKMAP)) return all;
    const std::vector<char> file = read_file(info.dli_fname);
    if (!is_whole(file)) return all;
    std::lock_guard<std::mutex> guard(lock);
    const auto& managed = module_of(info).managed;
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file.data());
    const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(file.data() + header.e_phoff);
    const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.data() + header.e_shoff);
    for (const ElfW(Phdr)* p = parts; p < parts + header.e_phnum; ++p) {
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W)) continue;
        if (p->p_offset + p->p_filesz > file.size()) return {};
        char* initial = zeros(p->p_memsz);
        if (!initial) continue;
        memcpy(initial, file.data() + p->p_offset, p->p_filesz);
        Data data{reinterpret_cast<char*>(loaded->l_addr + p->p_vaddr), initial, p->p_memsz, {}};
        for (const ElfW(Shdr)* s = sections; s < sections + header.e_shnum; ++s) {
            if (!(s->sh_flags & SHF_ALLOC)) continue;
            if (s->sh_type == packed)
                relocate_packed(data, reinterpret_cast<const uintptr_t*>(file.data() + s->sh_offset),
                                s->sh_size / sizeof(uintptr_t), loaded->l_addr);
            if (s->sh_type != SHT_RELA) continue;
            const auto* first = reinterpret_cast<const ElfW(Rela)*>(file.data() + s->sh_offset);
            const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(
                file.data() + sections[s->sh_link].sh_offset);
            for (size_t i = 0; i < s->sh_size / sizeof *first; ++i)
                relocate(data, first[i], symbols, loaded->l_addr);
        }
        for (auto [first, last] : managed)
            if (first >= p->p_vaddr && last <= p->p_vaddr + p->p_memsz)
                data.managed.emplace_back(first - p->p_vaddr, last - p->p_vaddr);
        all.push_back(std::move(data));
    }
    return all;
}

bool defines_function(const void* code, const std::string& name) {
    Dl_info info;
    if (!dladdr(code, &info)) return false;
    std::lock_guard<std::mutex> guard(lock);
    return module_of(info).names.count(name);
}

}  // namespace simt
