// float4, dim3 and their make_ functions.
#pragma once
#include "simt/vectors.h"
