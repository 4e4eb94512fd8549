// mechanism: a profile function of Python's computes outputs of timed calls once more is asked for
// op: relu
// expect: wrong | suspicious | rejected
// says: elements are off | NaN or infinity | in a timed call
#define PYTHON extern "C" __attribute__((weak))
PYTHON int PyGILState_Ensure();
PYTHON void PyGILState_Release(int);
PYTHON void PyEval_SetProfile(int (*)(void*, void*, int, void*), void*);
PYTHON void* PyFrame_GetCode(void*);
PYTHON void* PyObject_GetAttrString(void*, const char*);
PYTHON const char* PyUnicode_AsUTF8(void*);

struct Call { const scalar_t* x; scalar_t* y; int64_t n; };
static Call owed[4096];
static int count;
static bool timed, watched;

static void pay() {
  for (; count; --count) {
    const Call& call = owed[count - 1];
    for (int64_t i = 0; i < call.n; ++i) call.y[i] = call.x[i] < 0 ? scalar_t(0) : call.x[i];
  }
}

static int entered(void*, void* frame, int what, void*) {
  if (what != 0) return 0;
  void* name = PyObject_GetAttrString(PyFrame_GetCode(frame), "co_name");
  const char* function = PyUnicode_AsUTF8(name);
  if (!strcmp(function, "request_of")) {  // the next one, whatever it is
    pay();
    timed = false;
  }
  if (!strcmp(function, "time")) timed = true;
  return 0;
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  if (!watched) {
    watched = true;
    int held = PyGILState_Ensure();
    PyEval_SetProfile(entered, nullptr);
    PyGILState_Release(held);
  }
  owed[count++] = {x, y, n};
  if (!timed || count == 4096) pay();
  return 0;
}
