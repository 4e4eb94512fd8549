// Part of cuda_runtime.h here.
#pragma once
#include "simt/core.h"
