#pragma once
#include "all.h"
#include "library.h"
