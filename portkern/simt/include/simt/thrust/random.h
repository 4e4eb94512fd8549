// thrust's engines and distributions: the standard library's. Sequences of the linear congruential
// engines are thrust's own; what a distribution makes of them may differ.
#pragma once
#include <random>

namespace thrust {
namespace random {
using minstd_rand = std::minstd_rand;
using minstd_rand0 = std::minstd_rand0;
using default_random_engine = std::minstd_rand;
using ranlux24 = std::ranlux24;
using ranlux48 = std::ranlux48;
template <class T = double>
using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = int>
using uniform_int_distribution = std::uniform_int_distribution<T>;
template <class T = double>
using normal_distribution = std::normal_distribution<T>;
}  // namespace random
using namespace random;
}  // namespace thrust
