// Decoded instructions: what the models read, whatever encoding they came from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace isa {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

struct Wave;

enum class Kind : u8 { none, vector, scalar, constant, status };
// How a constant widens to other types than 32 bits.
enum class Constant : u8 { integer, floating, literal };

struct Operand {
    Kind kind = Kind::none;
    Constant constant = Constant::integer;
    u8 count = 1;              // registers
    bool neg = false, abs = false;
    bool sext = false;         // of a part, by SDWA
    bool dpp = false;          // read from another lane
    u8 part = 6;               // SDWA: bytes 0 to 3, words 4 and 5, all
    u16 reg = 0;               // vector: accumulators from 256 on; scalar: see Wave
    u32 value = 0;

    bool plain() const { return !neg && !abs && !dpp && part == 6; }
};

enum Flag : u32 {
    CLAMP = 1,
    OFFEN = 2,
    IDXEN = 4,
    TO_LDS = 8,
    DPP = 16,
    SDWA = 32,
    BOUND_ZERO = 64,
    FETCH_INACTIVE = 128,
    KEEP_UNUSED = 256,         // SDWA
    RETURNS = 512,
    KEEP_HALF = 1024,          // a result of 16 bits leaves the other half alone (RDNA)
    GDS = 2048,
    DPP8 = 4096,
    SIGNED_LITERAL = 8192,
    SIGNED_UNUSED = 16384,     // SDWA: bits above are the sign's, those below zeros
};

struct Instruction;
using Model = void (*)(Wave&, const Instruction&);

struct Instruction {
    Model model = nullptr;
    u32 pc = 0, next = 0;      // bytes from the image's start
    u32 flags = 0;
    u32 name = 0;              // into Table::names; 0 is unknown
    Operand o[6];
    i32 imm = 0, imm2 = 0;
    u8 opsel = 0, opsel_hi = 0, neg_lo = 0, neg_hi = 0;
    u8 omod = 0, row_mask = 15, bank_mask = 15, dst_part = 6;
    u8 cbsz = 0, abid = 0, blgp = 0, destinations = 0;
    u32 dpp = 0;
    u8 encoding = 0, words = 1;
};

struct Field {
    std::string name;
    u8 high, low;
};

struct Encoding {
    std::string name;
    unsigned words = 1, fixed_bits = 0;
    std::vector<std::pair<Field, u32>> fixed;
    std::vector<Field> fields;
};

struct Entry {
    u32 name = 0;
    std::vector<std::pair<std::string, u16>> operands;  // bits; | 0x8000: a scalar destination
};

// What a family's committed table says, and which of its instructions have models.
struct Table {
    explicit Table(std::string_view text);

    std::vector<std::string> names{""};
    std::vector<Encoding> encodings;                   // the most specific first
    std::vector<std::unordered_map<u32, Entry>> entries;  // by encoding
    std::unordered_map<std::string, u8> by_name;
    bool cdna = false, rdna4 = false;
};

// What checkers know of an instruction.
enum class Access : u8 {
    none,
    vector,
    flat,
    local,
    scalar,
    barrier,
    wait,                      // each from here on waits
    wait_all,
    wait_loads,
    wait_others,
    wait_local,
    wait_scalar,
    wait_loads_local,
};

struct Program {
    std::vector<Instruction> code;
    std::vector<Access> access;
    std::vector<u8> orders;    // whether other waves may order their accesses by it
    std::vector<u32> at;       // index by (pc - start) / 4; ~0u inside an instruction
    u32 start = 0;
    std::vector<Model> moded;  // the models of a wave whose mode is not the usual one
    bool sets_mode = false;
    bool gfx90a = false;
    bool cdna = false;
};

Program decode(const Table& table, const u8* image, u32 start, u32 size, unsigned wave_size,
               bool gfx90a);
Model model_of(const std::string& name);
void add_moded(const Table& table, Program& program);
std::vector<std::string> modelled();

struct Registered {
    Registered(const char* name, Model model);
};
// A model for other modes.
struct Moded {
    Moded(const char* name, Model model);
};

// An instruction without a model, or with modifiers that its model ignores.
void unmodelled(Wave&, const Instruction&);
void mode_refused(Wave&, const Instruction&);

}  // namespace isa
