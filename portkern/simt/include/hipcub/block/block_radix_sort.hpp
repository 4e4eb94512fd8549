#pragma once
#include "../../simt/cub/sort.h"
