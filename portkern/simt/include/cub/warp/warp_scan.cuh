#pragma once
#include "../../simt/cub/warp.h"
