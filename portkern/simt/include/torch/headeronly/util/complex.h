#pragma once
#include "../../../c10/util/complex.h"
