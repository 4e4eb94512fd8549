// Constants for HIP where ROCm's header is absent (PyPI has none).
#pragma once
#define HIP_INF_F __int_as_float(0x7f800000)
#define HIP_NAN_F __int_as_float(0x7fffffff)
#define HIP_MIN_DENORM_F __int_as_float(0x00000001)
#define HIP_MAX_NORMAL_F __int_as_float(0x7f7fffff)
#define HIP_NEG_ZERO_F __int_as_float(0x80000000)
#define HIP_ZERO_F 0.0f
#define HIP_ONE_F 1.0f
#define HIP_SQRT_HALF_F 0.707106781f
#define HIP_SQRT_TWO_F 1.414213562f
#define HIP_PI_F 3.141592654f
#define HIP_PIO2_F 1.570796327f
#define HIP_PIO4_F 0.785398163f
#define HIP_2_OVER_PI_F 0.636619772f
#define HIP_LOG2E_F 1.442695041f
#define HIP_L2E_F 1.442695041f
#define HIP_LN2_F 0.693147181f
#define HIP_INF __longlong_as_double(0x7ff0000000000000ULL)
#define HIP_NAN __longlong_as_double(0xfff8000000000000ULL)
#define HIP_ZERO 0.0
#define HIP_ONE 1.0
#define HIP_SQRT_TWO 1.4142135623730951e+0
#define HIP_PI 3.1415926535897931e+0
#define HIP_PIO2 1.5707963267948966e+0
#define HIP_LOG2E 1.4426950408889634e+0
#define HIP_LN2 6.9314718055994529e-1
