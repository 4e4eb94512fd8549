"""What a library is made of beside its kernels: these files are copied into it as they are."""
