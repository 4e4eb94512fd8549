// Stand-in of rocThrust's complex numbers, which PyTorch's headers name: a value has its parts, and
// functions are declared alone, so that a kernel that calls one cannot be linked.
#pragma once
#if __has_include_next(<thrust/complex.h>)
#include_next <thrust/complex.h>
#else
#include <hip/hip_runtime.h>

#include <complex>

namespace thrust {
template <class T>
struct complex {
    using value_type = T;
    __host__ __device__ constexpr complex(T re = T(), T im = T()) : re_(re), im_(im) {}
    template <class U>
    __host__ __device__ constexpr complex(const complex<U>& z)
        : re_(T(z.real())), im_(T(z.imag())) {}
    template <class U>
    __host__ constexpr complex(const std::complex<U>& z) : re_(T(z.real())), im_(T(z.imag())) {}
    __host__ __device__ constexpr T real() const { return re_; }
    __host__ __device__ constexpr T imag() const { return im_; }
    __host__ __device__ void real(T re) { re_ = re; }
    __host__ __device__ void imag(T im) { im_ = im; }

private:
    T re_, im_;
};

#define PORTKERN_OF_ONE(name) \
    template <class T>        \
    __host__ __device__ complex<T> name(const complex<T>&);
PORTKERN_OF_ONE(acos)
PORTKERN_OF_ONE(acosh)
PORTKERN_OF_ONE(asin)
PORTKERN_OF_ONE(asinh)
PORTKERN_OF_ONE(atan)
PORTKERN_OF_ONE(atanh)
PORTKERN_OF_ONE(conj)
PORTKERN_OF_ONE(cos)
PORTKERN_OF_ONE(cosh)
PORTKERN_OF_ONE(exp)
PORTKERN_OF_ONE(log)
PORTKERN_OF_ONE(log10)
PORTKERN_OF_ONE(proj)
PORTKERN_OF_ONE(sin)
PORTKERN_OF_ONE(sinh)
PORTKERN_OF_ONE(sqrt)
PORTKERN_OF_ONE(tan)
PORTKERN_OF_ONE(tanh)
#undef PORTKERN_OF_ONE
template <class T>
__host__ __device__ T abs(const complex<T>&);
template <class T>
__host__ __device__ T arg(const complex<T>&);
template <class T>
__host__ __device__ T norm(const complex<T>&);
template <class T>
__host__ __device__ complex<T> polar(const T&, const T& = T());
template <class T, class U>
__host__ __device__ complex<T> pow(const complex<T>&, const complex<U>&);
template <class T, class U>
__host__ __device__ complex<T> pow(const complex<T>&, const U&);
template <class T, class U>
__host__ __device__ complex<U> pow(const T&, const complex<U>&);
}  // namespace thrust
#endif
