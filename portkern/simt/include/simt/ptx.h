// What inline PTX becomes: portkern/simt/translate/inline_ptx.py turns each asm statement into calls of simt::ptx.
#pragma once
#include "ptx_arithmetic.h"
#include "ptx_async.h"
#include "ptx_memory.h"
#include "ptx_warp.h"
#include "wgmma.h"
