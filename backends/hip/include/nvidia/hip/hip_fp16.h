// CUDA and HIP name float16 and its functions alike.
#pragma once
#include <cuda_fp16.h>
