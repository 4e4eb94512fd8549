#pragma once
#include "../simt/cub.h"
