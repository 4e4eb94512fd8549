// What inline PTX becomes: portkern/simt/asm.py turns each asm statement into calls of simt::ptx.
#pragma once
#include "ptx_arithmetic.h"
#include "ptx_memory.h"
#include "ptx_warp.h"
