// The cub library: collectives of warps and blocks, algorithms on whole arrays.
#pragma once
#include "cub/block.h"
#include "cub/device.h"
#include "cub/sort.h"
#include "cub/types.h"
#include "cub/warp.h"
