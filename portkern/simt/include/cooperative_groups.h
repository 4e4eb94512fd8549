// CUDA's cooperative groups.
#pragma once
#include "simt/groups.h"
