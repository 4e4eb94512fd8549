#pragma once
#include "../simt/thrust/algorithms.h"
