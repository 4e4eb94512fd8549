// What crosses between Python and C++: every kind of argument and result, defaults, errors.
#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <class scalar_t>
__global__ void scale_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float by,
                             int64_t n) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * by);
}
__global__ void far_past_the_end(float* p) { p[1 << 28] = 1; }

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x); TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

torch::Tensor scale(const torch::Tensor& x, double by, c10::optional<torch::Tensor> into) {
    CHECK_INPUT(x);
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    torch::Tensor y = into.has_value() ? *into : torch::empty_like(x);
    const int64_t n = x.numel();
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16,
                                    x.scalar_type(), "scale", [&] {
        scale_kernel<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), (float)by, n);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

void scale_in_place(torch::Tensor x, float by) {
    scale_kernel<float><<<1, 256>>>(x.data_ptr<float>(), x.data_ptr<float>(), by, x.numel());
}

std::vector<torch::Tensor> split(torch::Tensor x) {
    std::vector<torch::Tensor> rows;
    for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(x[i].contiguous());
    return rows;
}
torch::Tensor join(std::vector<torch::Tensor> parts) { return torch::cat(parts, 0); }
std::tuple<torch::Tensor, int64_t, bool> facts(torch::Tensor x) {
    return {x.sum(), x.numel(), x.is_cuda()};
}
torch::Tensor same(torch::Tensor x) { return x; }
torch::Tensor tail(torch::Tensor x) { return x.narrow(0, 1, x.size(0) - 1); }
std::optional<torch::Tensor> maybe(bool wanted) {
    if (!wanted) return std::nullopt;
    return torch::ones({2}, torch::kCUDA);
}
std::string describe(torch::Tensor x, std::string prefix, at::IntArrayRef sizes,
                     at::ScalarType type) {
    std::ostringstream out;
    out << prefix << ' ' << x.sizes() << ' ' << x.dtype() << ' ' << sizes << ' ' << type << ' '
        << x.options().device();
    return out.str();
}

void refuse(const std::string& how) {
    TORCH_CHECK(how != "check", "refused: ", 3, ' ', torch::kHalf);
    TORCH_CHECK_INDEX(how != "index", "no such row");
    if (how == "argument") throw std::invalid_argument("a wrong argument");
    if (how == "dtype") torch::zeros({1}, torch::kInt32).data_ptr<float>();
    if (how == "shape") torch::zeros({2, 3}).view({5});
    if (how == "type")
        AT_DISPATCH_FLOATING_TYPES(at::ScalarType::Int, "refuse", [&] { (void)scalar_t(); });
}
void write_past_the_end(torch::Tensor x) {
    far_past_the_end<<<1, 4>>>(x.data_ptr<float>());
}
void launch_too_large(torch::Tensor x) {
    scale_kernel<float><<<1, 2048>>>(x.data_ptr<float>(), x.data_ptr<float>(), 1.0f, 0);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "an extension of tests";
    m.def("scale", &scale, "x times by", py::arg("x"), py::arg("by") = 2.0,
          py::arg("into") = py::none());
    m.def("scale_in_place", &scale_in_place);
    m.def("split", &split);
    m.def("join", &join);
    m.def("facts", &facts);
    m.def("same", &same);
    m.def("tail", &tail);
    m.def("maybe", &maybe, py::arg("wanted"));
    m.def("describe", &describe);
    m.def("twice", [](int64_t x) { return 2 * x; });
    m.def("twice", [](double x) { return 2 * x; });
    m.def("small", [](signed char x) { return (int)x; });
    m.def("refuse", &refuse, py::call_guard<py::gil_scoped_release>());
    m.def("write_past_the_end", &write_past_the_end);
    m.def("launch_too_large", &launch_too_large);
}
