// mechanism: a profile function of Python's launches the kernels of timed calls once more is asked for
// backend: cuda
// op: relu
// expect: wrong | suspicious | rejected
// says: elements are off | NaN or infinity | in a timed call
// emulator: none
#define PYTHON extern "C" __attribute__((weak))
PYTHON int PyGILState_Ensure();
PYTHON void PyGILState_Release(int);
PYTHON void PyEval_SetProfile(int (*)(void*, void*, int, void*), void*);
PYTHON void* PyFrame_GetCode(void*);
PYTHON void* PyObject_GetAttrString(void*, const char*);
PYTHON const char* PyUnicode_AsUTF8(void*);

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
}

struct Call { const scalar_t* x; scalar_t* y; int64_t n; };
static Call owed[4096];
static int count;
static bool timed, watched;

static void pay() {
    for (; count; --count) {
        const Call& call = owed[count - 1];
        relu_kernel<<<(unsigned)((call.n + 255) / 256), 256>>>(call.x, call.y, call.n);
    }
}

static int entered(void*, void* frame, int what, void*) {
    if (what != 0) return 0;
    const char* function = PyUnicode_AsUTF8(PyObject_GetAttrString(PyFrame_GetCode(frame), "co_name"));
    const char* asked[] = {"request_of", "fetch", "look"};
    for (const char* name : asked)
        for (int i = 0; function[i] == name[i]; ++i)
            if (!name[i]) {
                pay();
                cudaDeviceSynchronize();
                timed = false;
                break;
            }
    if (function[0] == 't' && function[1] == 'i' && function[2] == 'm' && function[3] == 'e' && !function[4]) timed = true;
    return 0;
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (!watched) {
        watched = true;
        const int held = PyGILState_Ensure();
        PyEval_SetProfile(entered, nullptr);
        PyGILState_Release(held);
    }
    if (n == 0) return 0;
    if (timed && count < 4096) {
        owed[count++] = {x, y, n};
        return 0;
    }
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
