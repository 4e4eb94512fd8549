// A program says what it expects, goes on when that is not so, and ends with status 1 if anything
// was not.
#pragma once
#include <cstdio>

static int unmet = 0;
#define EXPECT(condition)                                                                         \
    ((condition) ? (void)0 : (void)(++unmet, printf("line %d: not so: %s\n", __LINE__, #condition)))
