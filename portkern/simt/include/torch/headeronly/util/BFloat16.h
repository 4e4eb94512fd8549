#pragma once
#include "../../../c10/util/BFloat16.h"
