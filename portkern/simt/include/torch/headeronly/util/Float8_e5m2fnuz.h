#pragma once
#include "../../../c10/util/Float8_e5m2fnuz.h"
