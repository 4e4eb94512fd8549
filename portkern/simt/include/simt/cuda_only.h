// Included by headers that HIP does not have under their name.
#ifdef __HIP_PLATFORM_AMD__
#error "SX005 a CUDA header: HIP has no header of this name"
#endif
