#pragma once
#include "AccumulateType.h"
