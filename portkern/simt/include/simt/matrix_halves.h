// 16-bit floats as classes, as elements of matrices.
#pragma once
#include "bfloat16.h"
#include "half.h"
#include "matrix.h"

namespace simt {
namespace matrix {

template <>
struct Traits<__half> : Traits<f16> {};
template <>
struct Traits<__nv_bfloat16> : Traits<bf16> {};
#ifdef __FLT16_MAX__
template <>
struct Traits<_Float16> : Traits<f16> {};
#endif

}  // namespace matrix
}  // namespace simt
