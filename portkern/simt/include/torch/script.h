// What libraries of operators include: tensors, operators by name, autograd functions.
#pragma once
#include "extension.h"
