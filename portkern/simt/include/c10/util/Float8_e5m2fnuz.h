#pragma once
#include "Half.h"
