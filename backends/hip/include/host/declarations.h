// Names that glibc's headers bring along, as ROCm's users have them, and musl's do not.
#pragma once
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
