#pragma once
#include "../../../c10/util/Exception.h"

#define STD_TORCH_CHECK(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
