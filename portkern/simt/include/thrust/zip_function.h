#pragma once
#include "../simt/thrust/functional.h"
