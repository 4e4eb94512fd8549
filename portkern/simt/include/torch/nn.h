#pragma once
#include "nn/functional.h"
