#pragma once
#include "../simt/thrust/random.h"
