// What extensions that bind by themselves include.
#pragma once
#include "extension.h"
