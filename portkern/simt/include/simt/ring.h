// Conversions of arithmetic=ring that no compiler sees as such: formats that are classes here. All
// other operations on elements are put in by portkern/simt/translate/ring_code.py.
#pragma once
#ifdef SIMT_RING
#include <cstdint>

extern "C" {
uint16_t simt_ring_f32_to_f16(uint32_t);
uint16_t simt_ring_f32_to_bf16(uint32_t);
uint32_t simt_ring_f16_to_f32(uint16_t);
uint32_t simt_ring_bf16_to_f32(uint16_t);
void simt_ring_lost();  // a value goes where there are no elements
}
#endif
