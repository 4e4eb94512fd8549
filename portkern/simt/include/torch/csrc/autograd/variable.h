#pragma once
#include "../../autograd.h"
