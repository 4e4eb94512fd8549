// What a build of PyTorch for GPUs writes for itself.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
