// hipRAND's generators for kernels, by the model of cuRAND's: a port draws what its original draws.
// On a device the numbers of XORWOW and MRG32k3a are others, as they are in curand_kernel.h.
#pragma once
#include "../curand_kernel.h"

typedef curandStatePhilox4_32_10_t hiprandStatePhilox4_32_10_t, hiprandStatePhilox4_32_10;
typedef curandStateXORWOW_t hiprandStateXORWOW_t, hiprandStateXORWOW, hiprandState_t, hiprandState;
typedef curandStateMRG32k3a_t hiprandStateMRG32k3a_t, hiprandStateMRG32k3a;

#define SIMT_AS_CURAND(name)                            \
    template <class... Given>                           \
    static inline auto hiprand##name(Given... given) {  \
        return curand##name(given...);                  \
    }

SIMT_AS_CURAND(_init)
SIMT_AS_CURAND()
SIMT_AS_CURAND(_uniform)
SIMT_AS_CURAND(_uniform_double)
SIMT_AS_CURAND(_normal)
SIMT_AS_CURAND(_normal2)
SIMT_AS_CURAND(_normal_double)
SIMT_AS_CURAND(_normal2_double)
SIMT_AS_CURAND(_log_normal)
SIMT_AS_CURAND(_log_normal_double)
SIMT_AS_CURAND(4)
SIMT_AS_CURAND(_uniform4)
SIMT_AS_CURAND(_normal4)
SIMT_AS_CURAND(_uniform2_double)

#undef SIMT_AS_CURAND
