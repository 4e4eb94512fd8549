"""The files of a library beside its kernels, which are copied into it as they are."""
