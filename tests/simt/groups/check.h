// A host check that says where it failed; the program's exit status is the number of failures.
#pragma once
#include <cmath>
#include <cstdio>

static int failures = 0;

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition) && ++failures < 20)                                \
            printf("line %d: %s (case %d)\n", __LINE__, #condition, check_case); \
    } while (0)
static int check_case = 0;

static int finish() {
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
