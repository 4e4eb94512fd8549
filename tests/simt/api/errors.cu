// Codes have the vendor's numbers, names and, where programs print them, words.
#include <cstring>

#include "expect.h"

static bool same(const char* a, const char* b) { return !strcmp(a, b); }

int main() {
    EXPECT(cudaErrorMemoryAllocation == 2 && cudaErrorInvalidConfiguration == 9);
    EXPECT(cudaErrorNotReady == 600 && cudaErrorIllegalAddress == 700 && cudaErrorUnknown == 999);
    EXPECT(same(cudaGetErrorName(cudaSuccess), "cudaSuccess"));
    EXPECT(same(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure"));
    EXPECT(same(cudaGetErrorName((cudaError_t)12345), "unrecognized error code"));
    EXPECT(same(cudaGetErrorString(cudaSuccess), "no error"));
    EXPECT(same(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument"));
    EXPECT(same(cudaGetErrorString(cudaErrorIllegalAddress),
                "an illegal memory access was encountered"));
    EXPECT(same(cudaGetErrorString(cudaErrorStreamCaptureUnjoined), "stream capture unjoined"));
    // Calls that are not modelled say so.
    int dummy;
    EXPECT(cudaHostRegister(&dummy, 4, cudaHostRegisterDefault) == 801);  // SX409
    EXPECT(cudaGetLastError() == cudaErrorNotSupported);
    cudaGraph_t graph;
    EXPECT(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal) ==
           cudaErrorStreamCaptureUnsupported);  // nor would a device capture the legacy stream
    EXPECT(cudaStreamEndCapture(0, &graph) == cudaErrorInvalidValue);
    cudaStreamCaptureStatus capturing;
    EXPECT(cudaStreamIsCapturing(0, &capturing) == cudaSuccess);
    EXPECT(capturing == cudaStreamCaptureStatusNone);
    return unmet != 0;
}
