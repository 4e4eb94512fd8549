#pragma once
#include "../../simt/cub/types.h"
