// thrust::complex: the standard library's.
#pragma once
#include <complex>

namespace thrust {
template <class T>
using complex = std::complex<T>;
using std::abs;
using std::arg;
using std::conj;
using std::exp;
using std::log;
using std::norm;
using std::polar;
using std::pow;
using std::sqrt;
}  // namespace thrust
