#pragma once
#include "../../simt/rocprim.h"
