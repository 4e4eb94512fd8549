// Words to instructions, by the fields that a family's table lists.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "instruction.h"
#include "scoreboard.h"
#include "wave.h"

namespace isa {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
    return parts;
}

struct Words {
    const u8* at;
    unsigned left;             // words to the section's end

    u32 operator[](unsigned k) const {
        u32 word = 0;
        if (k < left) memcpy(&word, at + 4 * k, 4);
        return word;
    }
    u32 bits(unsigned high, unsigned low) const {
        const u64 pair = (u64)(*this)[low / 32 + 1] << 32 | (*this)[low / 32];
        return (u32)(pair >> (low % 32) & ((2ull << (high - low)) - 1));
    }
};

i32 extend(u32 value, unsigned bits) { return (i32)(value << (32 - bits)) >> (32 - bits); }

bool starts(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }
bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

constexpr u32 inline_floats[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};

class Decoder {
public:
    Decoder(const Table& table, unsigned wave_size, bool gfx90a)
        : table_(table), wave_size_(wave_size), gfx90a_(gfx90a) {}

    // Appends the instruction at `words`, two of them for a dual one. Returns its length in words.
    unsigned next(Words words, u32 pc, std::vector<Instruction>& out);

private:
    const Table& table_;
    unsigned wave_size_;
    bool gfx90a_;
    Words words_{};
    const Encoding* encoding_ = nullptr;
    const Entry* entry_ = nullptr;
    std::string name_;
    Instruction i_;
    unsigned length_ = 1;
    bool literal_used_ = false;
    u32 literal_ = 0;

    bool find();
    bool known(const char* field) const;
    u32 get(const char* field) const;
    unsigned bits_of(const char* field, unsigned otherwise = 32) const;
    bool scalar_destination() const;
    Operand vector(u32 reg, unsigned bits) const;
    Operand scalar(u32 code, unsigned bits);
    Operand source(u32 code, unsigned bits);
    Operand mask(u32 code);
    Operand literal_operand();
    Operand half(Operand o, unsigned bits, unsigned k);
    void vector_alu();
    void second_word(u32 code);
    void modifiers();
    void sop();
    void smem();
    void ds();
    void flat();
    void buffer();
    void matrix();
    void dual(std::vector<Instruction>& out);
    void finish();
    bool exists() const;
    bool is(const char* encoding) const { return encoding_->name == encoding; }
};

bool Decoder::find() {
    for (size_t k = 0; k < table_.encodings.size(); ++k) {
        const Encoding& e = table_.encodings[k];
        bool fits = true;
        for (const auto& [field, value] : e.fixed)
            fits = fits && words_.bits(field.high, field.low) == value;
        if (!fits) continue;
        encoding_ = &e;
        i_.encoding = (u8)k;
        length_ = e.words;
        if (starts(e.name, "VOPD")) return true;
        const auto found = table_.entries[k].find(get("op"));
        if (found == table_.entries[k].end()) continue;
        entry_ = &found->second;
        name_ = table_.names[entry_->name];
        i_.name = entry_->name;
        return true;
    }
    return false;
}

bool Decoder::known(const char* field) const {
    for (const Field& f : encoding_->fields)
        if (f.name == field) return true;
    return false;
}

u32 Decoder::get(const char* field) const {
    for (const Field& f : encoding_->fields)
        if (f.name == field) return words_.bits(f.high, f.low);
    return 0;
}

unsigned Decoder::bits_of(const char* field, unsigned otherwise) const {
    for (const auto& [name, bits] : entry_->operands)
        if (name == field) return bits & 0x7fff;
    return otherwise;
}

bool Decoder::scalar_destination() const {
    for (const auto& [name, bits] : entry_->operands)
        if (name == "vdst") return bits >> 15;
    return false;
}

Operand Decoder::vector(u32 reg, unsigned bits) const {
    Operand o;
    o.kind = Kind::vector;
    o.reg = (u16)reg;
    o.count = (u8)std::max(1u, (bits + 31) / 32);
    return o;
}

Operand Decoder::literal_operand() {
    if (!literal_used_) literal_ = words_[length_], ++length_, literal_used_ = true;
    Operand o;
    o.kind = Kind::constant;
    o.constant = Constant::literal;
    o.value = literal_;
    return o;
}

// A scalar register, a constant or a status: codes below 256 of a source.
Operand Decoder::scalar(u32 code, unsigned bits) {
    Operand o;
    o.count = (u8)std::max(1u, (bits + 31) / 32);
    o.kind = Kind::scalar;
    o.reg = (u16)code;
    if (code < 128) {
        if (!table_.cdna && code == 124) o.reg = NOWHERE;
        if (!table_.cdna && code == 125) o.reg = M0;
        return o;
    }
    if (code >= 235 && code <= 238) return o;
    if (code >= 251 && code <= 253) {
        o.kind = Kind::status;
        return o;
    }
    if (code == 255) return literal_operand();
    o.kind = Kind::constant;
    if (code <= 192) o.value = code - 128;
    else if (code <= 208) o.value = (u32)-(i32)(code - 192);
    else if (code >= 240 && code <= 248)
        o.constant = Constant::floating, o.value = inline_floats[code - 240];
    else o.kind = Kind::none;
    return o;
}

Operand Decoder::source(u32 code, unsigned bits) {
    if (code >= 256) return vector(code - 256, bits);
    Operand o = scalar(code, bits);
    if (o.kind == Kind::scalar && o.reg == NOWHERE) o.kind = Kind::constant, o.value = 0;
    return o;
}

Operand Decoder::mask(u32 code) { return scalar(code, wave_size_); }

// RDNA's plain encodings name halves of the first 128 registers.
Operand Decoder::half(Operand o, unsigned bits, unsigned k) {
    const bool plain = is("VOP1") || is("VOP2") || is("VOPC");
    if (table_.cdna || bits != 16 || o.kind != Kind::vector || !plain) return o;
    if (o.reg >= 128) i_.opsel |= (u8)(1u << k), o.reg -= 128;
    return o;
}

// The word behind a vector instruction whose first source is only a mark.
void Decoder::second_word(u32 code) {
    const u32 word = words_[length_];
    const bool sdwa = table_.cdna && code == 249;
    const bool dpp = code == 250, dpp8 = !table_.cdna && (code == 233 || code == 234);
    if (!sdwa && !dpp && !dpp8) return;
    ++length_;
    Operand& a = i_.o[i_.destinations];
    Operand& b = i_.o[i_.destinations + 1];
    a = half(vector(word & 255, bits_of("src0")), bits_of("src0"), 0);
    if (sdwa) {
        i_.flags |= SDWA;
        if (word >> 23 & 1) a = scalar(word & 255, 32);
        a.part = word >> 16 & 7, a.sext = word >> 19 & 1;
        a.neg = word >> 20 & 1, a.abs = word >> 21 & 1;
        if (b.kind != Kind::none) {
            if (word >> 31) b = scalar(get("vsrc1"), 32);
            b.part = word >> 24 & 7, b.sext = word >> 27 & 1;
            b.neg = word >> 28 & 1, b.abs = word >> 29 & 1;
        }
        if (is("VOPC")) {
            if (word >> 15 & 1) i_.o[0] = mask(word >> 8 & 127);
            return;
        }
        i_.dst_part = word >> 8 & 7;
        if ((word >> 11 & 3) == 2) i_.flags |= KEEP_UNUSED;
        if ((word >> 11 & 3) == 1) i_.flags |= SIGNED_UNUSED;
        if (word >> 13 & 1) i_.flags |= CLAMP;
        i_.omod = word >> 14 & 3;
        return;
    }
    i_.flags |= DPP;
    a.dpp = true;
    if (dpp8) {
        i_.flags |= DPP8 | (code == 234 ? (u32)FETCH_INACTIVE : 0);
        i_.dpp = word >> 8;
        return;
    }
    i_.dpp = word >> 8 & 511;
    if (word >> 18 & 1) i_.flags |= FETCH_INACTIVE;
    if (word >> 19 & 1) i_.flags |= BOUND_ZERO;
    if (length_ == 2) {        // in VOP3 these are the encoding's own
        a.neg = word >> 20 & 1, a.abs = word >> 21 & 1;
        b.neg = word >> 22 & 1, b.abs = word >> 23 & 1;
    }
    i_.bank_mask = word >> 24 & 15, i_.row_mask = word >> 28;
}

void Decoder::modifiers() {
    const unsigned first = i_.destinations;
    if (known("abs") || known("neg"))
        for (unsigned k = 0; k < 3; ++k) {
            i_.o[first + k].abs = get("abs") >> k & 1;
            i_.o[first + k].neg = get("neg") >> k & 1;
        }
    i_.opsel = (u8)get("opsel");
    i_.omod = (u8)get("omod");
    if (get("clmp")) i_.flags |= CLAMP;
}

void Decoder::vector_alu() {
    const bool carries = starts(name_, "v_add_co") || starts(name_, "v_sub_co") ||
                         starts(name_, "v_subrev_co") || starts(name_, "v_addc_co") ||
                         starts(name_, "v_subb");
    const bool compares = starts(name_, "v_cmp");
    const unsigned vdst_bits = bits_of("vdst");
    Operand* o = i_.o;
    if (compares) {
        const bool to_exec = starts(name_, "v_cmpx");
        if (is("VOPC")) *o++ = mask(to_exec && !table_.cdna ? EXEC : VCC);
        else *o++ = mask(to_exec && !table_.cdna ? EXEC : get("vdst"));
    } else if (bits_of("vdst", 0) || known("vdst")) {
        *o++ = scalar_destination() ? scalar(get("vdst"), vdst_bits)
                                    : half(vector(get("vdst"), vdst_bits), vdst_bits, 3);
    }
    if (is("VOP3SD")) *o++ = mask(get("sdst"));
    else if (carries && is("VOP2")) *o++ = mask(VCC);
    i_.destinations = (u8)(o - i_.o);
    const bool third = bits_of("src2", 0) && known("src2");
    const u32 code = get("src0");
    const bool marked = (table_.cdna ? code == 249 : code == 233 || code == 234) || code == 250;
    const bool sourceless = entry_->operands.empty() || !bits_of("src0", 0);
    Operand* first = o;
    if (!sourceless && !marked) *o = half(source(code, bits_of("src0")), bits_of("src0"), 0);
    if (!sourceless) ++o;
    if (bits_of("vsrc1", 0)) *o++ = half(vector(get("vsrc1"), bits_of("vsrc1")),
                                         bits_of("vsrc1"), 1);
    if (bits_of("src1", 0)) *o++ = source(get("src1"), bits_of("src1"));
    if (third) *o++ = source(get("src2"), bits_of("src2"));
    if (starts(name_, "v_fmaak") || starts(name_, "v_madak")) *o++ = literal_operand();
    if (starts(name_, "v_fmamk") || starts(name_, "v_madmk"))
        o[0] = o[-1], o[-1] = literal_operand(), ++o;
    const bool carry_in = has(name_, "addc_co") || has(name_, "subb") || has(name_, "_co_ci_");
    const bool reads_vcc = starts(name_, "v_cndmask") || carry_in;
    if (reads_vcc && is("VOP2")) *o++ = mask(VCC);
    if (reads_vcc && !is("VOP2")) o[-1] = mask(get("src2"));
    if (known("abs") || known("neg")) modifiers();
    if (is("VOP3P")) {
        i_.opsel_hi = (u8)(get("opsel_hi") | get("opsel_hi2") << 2);
        i_.neg_lo = (u8)get("neg"), i_.neg_hi = (u8)get("neg_hi");
        // Sources that are not pairs have signs of their own: neg_hi is the absolute value.
        const bool mixes = starts(name_, "v_fma_mix");
        for (unsigned k = 0; first + k < o; ++k) {
            first[k].neg = mixes && i_.neg_lo >> k & 1;
            first[k].abs = mixes && i_.neg_hi >> k & 1;
        }
        if (mixes) i_.neg_lo = i_.neg_hi = 0;
    }
    if (reads_vcc && o > i_.o) o[-1].neg = o[-1].abs = false;
    second_word(code);
    if (name_ == "v_accvgpr_read_b32" || name_ == "v_accvgpr_read") i_.o[1].reg += 256;
    if (name_ == "v_accvgpr_write_b32" || name_ == "v_accvgpr_write") i_.o[0].reg += 256;
    if (name_ == "v_accvgpr_mov_b32") i_.o[0].reg += 256, i_.o[1].reg += 256;
}

void Decoder::matrix() {
    const u32 acc = get("neg") * 0 + words_.bits(60, 59), cd = words_.bits(15, 15) * 256;
    const bool chip_acc = table_.cdna;
    i_.o[0] = vector(get("vdst") + (chip_acc ? cd : 0), bits_of("vdst", 128));
    i_.o[1] = vector(get("src0") - 256 + (chip_acc && acc & 1 ? 256 : 0), bits_of("src0", 64));
    i_.o[2] = vector(get("src1") - 256 + (chip_acc && acc & 2 ? 256 : 0), bits_of("src1", 64));
    i_.o[3] = source(get("src2"), bits_of("src2", 128));
    if (i_.o[3].kind == Kind::vector && !starts(name_, "v_smfmac")) i_.o[3].reg += (u16)cd;
    i_.destinations = 1;
    if (get("src0") < 256 || get("src1") < 256) i_.model = unmodelled;
    i_.cbsz = words_.bits(10, 8), i_.abid = words_.bits(14, 11), i_.blgp = words_.bits(63, 61);
}

void Decoder::sop() {
    const bool wide_literal = has(name_, "i64");
    if (wide_literal) i_.flags |= SIGNED_LITERAL;
    if (is("SOPP")) {
        i_.imm = (i32)get("simm16");
        if (starts(name_, "s_branch") || starts(name_, "s_cbranch"))
            i_.imm = (i32)i_.pc + 4 + 4 * extend(get("simm16"), 16);
        return;
    }
    Operand* o = i_.o;
    const bool destination = bits_of("sdst", 0) != 0;
    if (destination) *o++ = scalar(get("sdst"), bits_of("sdst"));
    i_.destinations = destination && !starts(name_, "s_cmpk") && !starts(name_, "s_setreg");
    if (is("SOPK")) {
        i_.imm = extend(get("simm16"), 16);
        if (has(name_, "_u32") && starts(name_, "s_cmpk")) i_.imm = (i32)get("simm16");
        if (starts(name_, "s_call")) i_.imm = (i32)i_.pc + 4 + 4 * extend(get("simm16"), 16);
        if (starts(name_, "s_getreg") || starts(name_, "s_setreg")) i_.imm = (i32)get("simm16");
        if (name_ == "s_setreg_imm32_b32") i_.o[0] = literal_operand();
        return;
    }
    if (bits_of("ssrc0", 0)) *o++ = source(get("ssrc0"), bits_of("ssrc0"));
    if (bits_of("ssrc1", 0)) *o++ = source(get("ssrc1"), bits_of("ssrc1"));
    if (starts(name_, "s_fmaak")) *o = literal_operand();
    if (starts(name_, "s_fmamk")) o[0] = o[-1], o[-1] = literal_operand();
}

void Decoder::smem() {
    if (!known("sdata") || !bits_of("sdata", 0)) return;
    i_.o[0] = scalar(get("sdata"), bits_of("sdata"));
    i_.o[1] = scalar(get("sbase") * 2, bits_of("sbase", 64));
    i_.destinations = starts(name_, "s_store") ? 0 : 1;
    if (table_.cdna) {
        const bool immediate = get("imm"), offset = get("soffset_en");
        if (immediate) i_.imm = extend(get("offset"), 21);
        if (offset) i_.o[2] = scalar(get("soffset"), 32);
        else if (!immediate) i_.o[2] = scalar(get("offset") & 127, 32);
        return;
    }
    i_.imm = table_.rdna4 ? extend(get("ioffset"), 24) : extend(get("offset"), 21);
    if (get("soffset") != 124) i_.o[2] = scalar(get("soffset"), 32);
}

void Decoder::ds() {
    Operand* o = i_.o;
    const u32 acc = get("acc") ? 256 : 0;
    const bool two = has(name_, "2_") || has(name_, "2st64") || has(name_, "2addr");
    if (bits_of("vdst", 0)) *o++ = vector(get("vdst") + acc, bits_of("vdst"));
    i_.destinations = (u8)(o - i_.o);
    if (bits_of("addr", 0)) *o++ = vector(get("addr"), 32);
    if (bits_of("data0", 0)) *o++ = vector(get("data0") + acc, bits_of("data0"));
    if (bits_of("data1", 0)) *o++ = vector(get("data1") + acc, bits_of("data1"));
    i_.imm = (i32)(two ? get("offset0") : get("offset0") | get("offset1") << 8);
    i_.imm2 = two ? (i32)get("offset1") : 0;
    if (get("gds")) i_.flags |= GDS, i_.model = unmodelled;
}

void Decoder::flat() {
    const u32 acc = table_.cdna && get("acc") ? 256 : 0;
    const char* address = known("vaddr") ? "vaddr" : "addr";
    const char* data = known("vsrc") ? "vsrc" : "data";
    const bool atomic = has(name_, "atomic"), load = has(name_, "load");
    const bool global = has(encoding_->name.c_str(), "GLOBAL");
    const bool scratch = has(encoding_->name.c_str(), "SCRATCH");
    const u32 off = table_.cdna ? 127 : 124;
    const bool returns = atomic && (table_.rdna4 ? get("th") & 1 : get("sc0") | get("glc"));
    if (!bits_of(address, 0)) return;  // cache operations
    if (load || returns) i_.o[0] = vector(get("vdst") + acc, bits_of("vdst"));
    if (returns) i_.flags |= RETURNS;
    i_.destinations = load || returns;
    const bool with_scalar = (global || scratch) && get("saddr") != off;
    i_.o[1] = vector(get(address), with_scalar && global ? 32 : bits_of(address));
    if (scratch) {
        const bool used = table_.cdna && gfx90a_ ? !with_scalar : get("sve");
        if (!used) i_.o[1] = Operand();
    }
    if (!load) i_.o[2] = vector(get(data) + acc, bits_of(data));
    if (with_scalar) i_.o[3] = scalar(get("saddr"), global ? 64 : 32);
    if (table_.rdna4) i_.imm = extend(get("ioffset"), 24);
    else if (!global && !scratch) i_.imm = (i32)get("offset");
    else i_.imm = extend(get("offset"), 13);
    if (has(name_, "_lds_")) i_.flags |= TO_LDS;
}

void Decoder::buffer() {
    if (!bits_of("vdata", 0) && !has(name_, "_lds_")) return;
    const u32 acc = table_.cdna && get("acc") ? 256 : 0;
    const bool atomic = has(name_, "atomic");
    const bool returns = atomic && (table_.rdna4 ? get("th") & 1 : get("sc0") | get("glc"));
    if (returns) i_.flags |= RETURNS;
    if (get("offen")) i_.flags |= OFFEN;
    if (get("idxen")) i_.flags |= IDXEN;
    if (get("lds")) i_.flags |= TO_LDS;
    if (get("tfe")) i_.model = unmodelled;
    const unsigned addresses = (get("offen") ? 1 : 0) + (get("idxen") ? 1 : 0);
    i_.o[0] = vector(get("vdata") + acc, bits_of("vdata"));
    if (addresses) i_.o[1] = vector(get("vaddr"), 32 * addresses);
    i_.o[2] = scalar(known("rsrc") ? get("rsrc") : get("srsrc") * 4, 128);
    i_.o[3] = source(get("soffset"), 32);
    i_.imm = (i32)(table_.rdna4 ? get("ioffset") : get("offset"));
    i_.destinations = (has(name_, "load") && !get("lds")) || returns;
}

// Two instructions in one word: both read before either writes.
void Decoder::dual(std::vector<Instruction>& out) {
    const auto& entries = table_.entries[i_.encoding];
    Instruction part[2];
    for (int y = 0; y < 2; ++y) {
        const auto found = entries.find(get(y ? "opy" : "opx"));
        Instruction& k = part[y] = i_;
        if (found == entries.end()) continue;
        k.name = found->second.name;
        name_ = table_.names[k.name];
        const std::string plain = "v_" + name_.substr(std::strlen("v_dual_"));
        k.model = model_of(plain);
        const u32 x = get("vdstx");
        k.o[0] = vector(y ? get("vdsty") << 1 | (~x & 1) : x, 32);
        k.o[1] = source(get(y ? "srcy0" : "srcx0"), 32);
        k.o[2] = vector(get(y ? "vsrcy1" : "vsrcx1"), 32);
        if (plain == "v_mov_b32") k.o[2] = Operand();
        // With its sum as a source, the result may go anywhere.
        if (plain == "v_fmac_f32") k.o[3] = k.o[0], k.model = model_of("v_fma_f32");
        if (plain == "v_fmaak_f32") k.o[3] = literal_operand();
        if (plain == "v_fmamk_f32") k.o[3] = k.o[2], k.o[2] = literal_operand();
        if (plain == "v_cndmask_b32") k.o[3] = mask(VCC);
        k.destinations = 1;
    }
    const auto reads = [](const Instruction& k, u16 reg) {
        for (int n = 1; n < 4; ++n)
            if (k.o[n].kind == Kind::vector && k.o[n].reg == reg) return true;
        return false;
    };
    Instruction last;
    const bool behind = reads(part[1], part[0].o[0].reg);
    if (behind && reads(part[0], part[1].o[0].reg)) {
        last = part[0];
        last.model = model_of("v_mov_b32");
        last.o[1] = vector(SPARE, 32);
        last.o[2] = last.o[3] = Operand();
        part[0].o[0].reg = SPARE;
    } else if (behind) {
        std::swap(part[0], part[1]);
    }
    for (Instruction* k : {&part[0], &part[1], &last}) {
        if (k == &last && !last.model) continue;
        if (!k->model) k->model = unmodelled;
        k->next = k->pc + 4 * length_, k->words = (u8)length_;
        out.push_back(*k);
    }
}

void Decoder::finish() {
    i_.next = i_.pc + 4 * length_;
    i_.words = (u8)length_;
    if (i_.model) return;
    i_.model = model_of(name_);
    const bool operands = !entry_ || !entry_->operands.empty() || !starts(name_, "v_");
    if (!i_.model || (!operands && name_ != "v_nop" && !starts(name_, "v_mfma")))
        i_.model = unmodelled;
    if (!table_.cdna) i_.flags |= KEEP_HALF;
    if (!exists()) i_.model = unmodelled;
}

// Whether all registers are there: a stranger's words may name more than a lane has.
bool Decoder::exists() const {
    for (const Operand& o : i_.o) {
        const unsigned past = o.reg + o.count;
        if (o.kind == Kind::vector && past > (o.reg < 256 ? 256u : 512u)) return false;
        if (o.kind == Kind::scalar && o.reg < 128 && past > 128) return false;
    }
    const bool lane = name_ == "v_readlane_b32" || starts(name_, "v_permlane");
    return !lane || i_.o[1].kind == Kind::vector;
}

unsigned Decoder::next(Words words, u32 pc, std::vector<Instruction>& out) {
    words_ = words, i_ = Instruction(), entry_ = nullptr, name_.clear();
    length_ = 1, literal_used_ = false;
    i_.pc = pc;
    if (!find() || length_ > words.left) {
        length_ = 1, i_.model = unmodelled, i_.encoding = 0xff, i_.name = 0;
        finish();
        out.push_back(i_);
        return 1;
    }
    const std::string& e = encoding_->name;
    if (starts(e, "VOPD")) {
        dual(out);
        return length_;
    }
    if (starts(name_, "v_mfma") || starts(name_, "v_smfmac")) matrix();
    else if (e == "VOP3PX2") i_.model = unmodelled;
    else if (starts(e, "VOP")) vector_alu();
    else if (starts(e, "SOP")) sop();
    else if (e == "SMEM") smem();
    else if (e == "DS") ds();
    else if (has(e, "FLAT") || has(e, "GLOBAL") || has(e, "SCRATCH")) flat();
    else if (e == "MUBUF" || e == "VBUFFER") buffer();
    finish();
    out.push_back(i_);
    return length_;
}

}  // namespace

Table::Table(std::string_view text) {
    std::unordered_map<std::string, u8> order;
    std::stringstream stream{std::string(text)};
    std::vector<std::vector<std::string>> rows;
    for (std::string line; std::getline(stream, line);) {
        if (line.empty() || line[0] == '#') continue;
        auto parts = split(line, '\t');
        if (parts[0] != "encoding") {
            rows.push_back(parts);
            continue;
        }
        Encoding e;
        e.name = parts[1];
        e.words = (unsigned)std::stoul(parts[2]);
        for (const auto& bits : split(parts[3], ' ')) {
            const auto f = split(bits, ':');
            const u8 high = (u8)std::stoul(f[0]), low = (u8)std::stoul(f[1]);
            e.fixed.push_back({{"", high, low}, (u32)std::stoul(f[2])});
            e.fixed_bits += high - low + 1;
        }
        for (const auto& span : split(parts[4], ' ')) {
            const auto f = split(span, ':');
            e.fields.push_back({f[0], (u8)std::stoul(f[1]), (u8)std::stoul(f[2])});
        }
        encodings.push_back(e);
    }
    std::stable_sort(encodings.begin(), encodings.end(),
                     [](const auto& a, const auto& b) { return a.fixed_bits > b.fixed_bits; });
    for (size_t k = 0; k < encodings.size(); ++k) by_name[encodings[k].name] = (u8)k;
    entries.resize(encodings.size());
    for (const auto& row : rows) {
        Entry entry;
        entry.name = (u32)names.size();
        names.push_back(row[2]);
        if (row.size() > 3)
            for (const auto& operand : split(row[3], ' ')) {
                const auto f = split(operand, ':');
                const u16 s = f[1].back() == 's' ? 0x8000 : 0;
                entry.operands.push_back({f[0], (u16)(std::stoul(f[1]) | s)});
            }
        entries[by_name.at(row[0])][(u32)std::stoul(row[1])] = entry;
    }
    cdna = !by_name.count("VOPD"), rdna4 = by_name.count("VGLOBAL");
}

Program decode(const Table& table, const u8* image, u32 start, u32 size, unsigned wave_size,
               bool gfx90a) {
    Program program;
    program.start = start, program.cdna = table.cdna;
    program.gfx90a = gfx90a;
    program.at.assign(size / 4 + 1, ~0u);
    Decoder decoder(table, wave_size, gfx90a);
    for (u32 pc = start; pc + 4 <= start + size;) {
        program.at[(pc - start) / 4] = (u32)program.code.size();
        pc += 4 * decoder.next({image + pc, (start + size - pc) / 4}, pc, program.code);
    }
    Instruction end;           // running off the section's end
    end.model = unmodelled;
    end.pc = end.next = start + size;
    program.at[size / 4] = (u32)program.code.size();
    program.code.push_back(end);
    for (Instruction& i : program.code) {
        const std::string& name = table.names[i.name];
        program.access.push_back(access_of(name));
        program.orders.push_back(synchronises(name));
        if (!starts(name, "s_branch") && !starts(name, "s_cbranch") && !starts(name, "s_call"))
            continue;
        const u64 to = ((u32)i.imm - start) / 4;
        const bool inside = (u32)i.imm >= start && to < program.at.size();
        i.imm = inside ? (i32)program.at[to] : -1;
        if (i.imm < 0) i.model = unmodelled;
    }
    add_moded(table, program);
    return program;
}

}  // namespace isa
