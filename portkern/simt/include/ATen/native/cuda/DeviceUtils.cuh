#pragma once
#include "../../cuda/DeviceUtils.cuh"
