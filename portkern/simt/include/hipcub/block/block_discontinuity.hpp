#pragma once
#include "../../simt/cub/block.h"
