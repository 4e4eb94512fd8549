"""Extensions written against PyTorch's C++ API, called from Python."""
