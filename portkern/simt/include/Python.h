// What files of extensions take of Python's own header beside pybind11: names.
#pragma once
#include <cstddef>
#define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*
struct _object;
using PyObject = _object;
