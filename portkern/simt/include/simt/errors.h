// Error codes of the two runtimes, with the vendors' numbers: X(name after the prefix, number).
#pragma once

#define SIMT_CUDA_ERRORS(X)                                                                       \
    X(Success, 0) X(ErrorInvalidValue, 1) X(ErrorMemoryAllocation, 2)                             \
    X(ErrorInitializationError, 3) X(ErrorCudartUnloading, 4) X(ErrorProfilerDisabled, 5)         \
    X(ErrorProfilerNotInitialized, 6) X(ErrorProfilerAlreadyStarted, 7)                           \
    X(ErrorProfilerAlreadyStopped, 8) X(ErrorInvalidConfiguration, 9)                             \
    X(ErrorVersionTranslation, 10) X(ErrorInvalidPitchValue, 12) X(ErrorInvalidSymbol, 13)        \
    X(ErrorInvalidHostPointer, 16) X(ErrorInvalidDevicePointer, 17) X(ErrorInvalidTexture, 18)    \
    X(ErrorInvalidTextureBinding, 19) X(ErrorInvalidChannelDescriptor, 20)                        \
    X(ErrorInvalidMemcpyDirection, 21) X(ErrorAddressOfConstant, 22)                              \
    X(ErrorTextureFetchFailed, 23) X(ErrorTextureNotBound, 24) X(ErrorSynchronizationError, 25)   \
    X(ErrorInvalidFilterSetting, 26) X(ErrorInvalidNormSetting, 27)                               \
    X(ErrorMixedDeviceExecution, 28) X(ErrorNotYetImplemented, 31)                                \
    X(ErrorMemoryValueTooLarge, 32) X(ErrorStubLibrary, 34) X(ErrorInsufficientDriver, 35)        \
    X(ErrorCallRequiresNewerDriver, 36) X(ErrorInvalidSurface, 37)                                \
    X(ErrorDuplicateVariableName, 43) X(ErrorDuplicateTextureName, 44)                            \
    X(ErrorDuplicateSurfaceName, 45) X(ErrorDevicesUnavailable, 46)                               \
    X(ErrorIncompatibleDriverContext, 49) X(ErrorMissingConfiguration, 52)                        \
    X(ErrorPriorLaunchFailure, 53) X(ErrorLaunchMaxDepthExceeded, 65)                             \
    X(ErrorLaunchFileScopedTex, 66) X(ErrorLaunchFileScopedSurf, 67)                              \
    X(ErrorSyncDepthExceeded, 68) X(ErrorLaunchPendingCountExceeded, 69)                          \
    X(ErrorInvalidDeviceFunction, 98) X(ErrorNoDevice, 100) X(ErrorInvalidDevice, 101)            \
    X(ErrorDeviceNotLicensed, 102) X(ErrorSoftwareValidityNotEstablished, 103)                    \
    X(ErrorStartupFailure, 127) X(ErrorInvalidKernelImage, 200) X(ErrorDeviceUninitialized, 201)  \
    X(ErrorMapBufferObjectFailed, 205) X(ErrorUnmapBufferObjectFailed, 206)                       \
    X(ErrorArrayIsMapped, 207) X(ErrorAlreadyMapped, 208) X(ErrorNoKernelImageForDevice, 209)     \
    X(ErrorAlreadyAcquired, 210) X(ErrorNotMapped, 211) X(ErrorNotMappedAsArray, 212)             \
    X(ErrorNotMappedAsPointer, 213) X(ErrorECCUncorrectable, 214) X(ErrorUnsupportedLimit, 215)   \
    X(ErrorDeviceAlreadyInUse, 216) X(ErrorPeerAccessUnsupported, 217) X(ErrorInvalidPtx, 218)    \
    X(ErrorInvalidGraphicsContext, 219) X(ErrorNvlinkUncorrectable, 220)                          \
    X(ErrorJitCompilerNotFound, 221) X(ErrorUnsupportedPtxVersion, 222)                           \
    X(ErrorJitCompilationDisabled, 223) X(ErrorUnsupportedExecAffinity, 224)                      \
    X(ErrorUnsupportedDevSideSync, 225) X(ErrorContained, 226)                                    \
    X(ErrorInsufficientLoaderVersion, 227) X(ErrorInvalidSource, 300) X(ErrorFileNotFound, 301)   \
    X(ErrorSharedObjectSymbolNotFound, 302) X(ErrorSharedObjectInitFailed, 303)                   \
    X(ErrorOperatingSystem, 304) X(ErrorInvalidResourceHandle, 400) X(ErrorIllegalState, 401)     \
    X(ErrorLossyQuery, 402) X(ErrorSymbolNotFound, 500) X(ErrorNotReady, 600)                     \
    X(ErrorIllegalAddress, 700) X(ErrorLaunchOutOfResources, 701) X(ErrorLaunchTimeout, 702)      \
    X(ErrorLaunchIncompatibleTexturing, 703) X(ErrorPeerAccessAlreadyEnabled, 704)                \
    X(ErrorPeerAccessNotEnabled, 705) X(ErrorSetOnActiveProcess, 708)                             \
    X(ErrorContextIsDestroyed, 709) X(ErrorAssert, 710) X(ErrorTooManyPeers, 711)                 \
    X(ErrorHostMemoryAlreadyRegistered, 712) X(ErrorHostMemoryNotRegistered, 713)                 \
    X(ErrorHardwareStackError, 714) X(ErrorIllegalInstruction, 715)                               \
    X(ErrorMisalignedAddress, 716) X(ErrorInvalidAddressSpace, 717) X(ErrorInvalidPc, 718)        \
    X(ErrorLaunchFailure, 719) X(ErrorCooperativeLaunchTooLarge, 720)                             \
    X(ErrorTensorMemoryLeak, 721) X(ErrorNotPermitted, 800) X(ErrorNotSupported, 801)             \
    X(ErrorSystemNotReady, 802) X(ErrorSystemDriverMismatch, 803)                                 \
    X(ErrorCompatNotSupportedOnDevice, 804) X(ErrorMpsConnectionFailed, 805)                      \
    X(ErrorMpsRpcFailure, 806) X(ErrorMpsServerNotReady, 807) X(ErrorMpsMaxClientsReached, 808)   \
    X(ErrorMpsMaxConnectionsReached, 809) X(ErrorMpsClientTerminated, 810)                        \
    X(ErrorCdpNotSupported, 811) X(ErrorCdpVersionMismatch, 812)                                  \
    X(ErrorStreamCaptureUnsupported, 900) X(ErrorStreamCaptureInvalidated, 901)                   \
    X(ErrorStreamCaptureMerge, 902) X(ErrorStreamCaptureUnmatched, 903)                           \
    X(ErrorStreamCaptureUnjoined, 904) X(ErrorStreamCaptureIsolation, 905)                        \
    X(ErrorStreamCaptureImplicit, 906) X(ErrorCapturedEvent, 907)                                 \
    X(ErrorStreamCaptureWrongThread, 908) X(ErrorTimeout, 909)                                    \
    X(ErrorGraphExecUpdateFailure, 910) X(ErrorExternalDevice, 911)                               \
    X(ErrorInvalidClusterSize, 912) X(ErrorFunctionNotLoaded, 913)                                \
    X(ErrorInvalidResourceType, 914) X(ErrorInvalidResourceConfiguration, 915)                    \
    X(ErrorStreamDetached, 917) X(ErrorGraphRecaptureFailure, 918) X(ErrorFabricNotReady, 919)    \
    X(ErrorUnknown, 999)

#define SIMT_HIP_ERRORS(X)                                                                        \
    X(Success, 0) X(ErrorInvalidValue, 1) X(ErrorOutOfMemory, 2) X(ErrorNotInitialized, 3)        \
    X(ErrorDeinitialized, 4) X(ErrorProfilerDisabled, 5) X(ErrorProfilerNotInitialized, 6)        \
    X(ErrorProfilerAlreadyStarted, 7) X(ErrorProfilerAlreadyStopped, 8)                           \
    X(ErrorInvalidConfiguration, 9) X(ErrorInvalidPitchValue, 12) X(ErrorInvalidSymbol, 13)       \
    X(ErrorInvalidDevicePointer, 17) X(ErrorInvalidMemcpyDirection, 21)                           \
    X(ErrorInsufficientDriver, 35) X(ErrorMissingConfiguration, 52)                               \
    X(ErrorPriorLaunchFailure, 53) X(ErrorInvalidDeviceFunction, 98) X(ErrorNoDevice, 100)        \
    X(ErrorInvalidDevice, 101) X(ErrorInvalidImage, 200) X(ErrorInvalidContext, 201)              \
    X(ErrorContextAlreadyCurrent, 202) X(ErrorMapFailed, 205) X(ErrorUnmapFailed, 206)            \
    X(ErrorArrayIsMapped, 207) X(ErrorAlreadyMapped, 208) X(ErrorNoBinaryForGpu, 209)             \
    X(ErrorAlreadyAcquired, 210) X(ErrorNotMapped, 211) X(ErrorNotMappedAsArray, 212)             \
    X(ErrorNotMappedAsPointer, 213) X(ErrorECCNotCorrectable, 214) X(ErrorUnsupportedLimit, 215)  \
    X(ErrorContextAlreadyInUse, 216) X(ErrorPeerAccessUnsupported, 217)                           \
    X(ErrorInvalidKernelFile, 218) X(ErrorInvalidGraphicsContext, 219)                            \
    X(ErrorInvalidSource, 300) X(ErrorFileNotFound, 301) X(ErrorSharedObjectSymbolNotFound, 302)  \
    X(ErrorSharedObjectInitFailed, 303) X(ErrorOperatingSystem, 304) X(ErrorInvalidHandle, 400)   \
    X(ErrorIllegalState, 401) X(ErrorNotFound, 500) X(ErrorNotReady, 600)                         \
    X(ErrorIllegalAddress, 700) X(ErrorLaunchOutOfResources, 701) X(ErrorLaunchTimeOut, 702)      \
    X(ErrorPeerAccessAlreadyEnabled, 704) X(ErrorPeerAccessNotEnabled, 705)                       \
    X(ErrorSetOnActiveProcess, 708) X(ErrorContextIsDestroyed, 709) X(ErrorAssert, 710)           \
    X(ErrorHostMemoryAlreadyRegistered, 712) X(ErrorHostMemoryNotRegistered, 713)                 \
    X(ErrorLaunchFailure, 719) X(ErrorCooperativeLaunchTooLarge, 720) X(ErrorNotSupported, 801)   \
    X(ErrorStreamCaptureUnsupported, 900) X(ErrorStreamCaptureInvalidated, 901)                   \
    X(ErrorStreamCaptureMerge, 902) X(ErrorStreamCaptureUnmatched, 903)                           \
    X(ErrorStreamCaptureUnjoined, 904) X(ErrorStreamCaptureIsolation, 905)                        \
    X(ErrorStreamCaptureImplicit, 906) X(ErrorCapturedEvent, 907)                                 \
    X(ErrorStreamCaptureWrongThread, 908) X(ErrorGraphExecUpdateFailure, 910)                     \
    X(ErrorInvalidChannelDescriptor, 911) X(ErrorInvalidTexture, 912) X(ErrorUnknown, 999)        \
    X(ErrorRuntimeMemory, 1052) X(ErrorRuntimeOther, 1053)

// Further names for the same numbers.
#define SIMT_HIP_ERROR_ALIASES(X)                                                                 \
    X(ErrorMemoryAllocation, 2) X(ErrorInitializationError, 3)                                    \
    X(ErrorMapBufferObjectFailed, 205) X(ErrorInvalidResourceHandle, 400)
