#pragma once
#include "../../simt/thrust/core.h"
