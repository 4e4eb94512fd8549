// Tensors: what a function returns here is compared with what torch returns in Python.
#include <torch/extension.h>

using torch::Tensor;

// x: 2 x 3 x 4
std::vector<Tensor> views(Tensor x) {
    return {x.view({6, 4}),
            x.view({2, -1}),
            x.transpose(0, 2).reshape({4, 6}),
            x.permute({2, 0, 1}),
            x[1],
            x.select(-1, 2).t(),
            x.flatten(1),
            x.unsqueeze(1).squeeze(1).unsqueeze(-1),
            x.slice(2, 1, 4, 2),
            x.narrow(1, 1, 2),
            x.transpose(1, 2).contiguous(),
            x.select(0, 0).unsqueeze(0).expand({5, 3, 4}),
            torch::empty_like(x.transpose(0, 1)).copy_(x.transpose(0, 1)),
            x.to(torch::kHalf).to(torch::kFloat64),
            x.cpu().cuda()};
}
std::vector<std::vector<int64_t>> strides_of_views(Tensor x) {
    const Tensor y = x[0];  // 3 x 4
    return {x.view({6, 4}).strides().vec(),
            x.permute({2, 0, 1}).strides().vec(),
            x.slice(2, 1, 4, 2).strides().vec(),
            x.transpose(0, 1).unsqueeze(0).strides().vec(),
            torch::empty_like(y.t()).strides().vec(),
            y.t().contiguous().strides().vec(),
            y.expand({2, 3, 4}).strides().vec()};
}

std::vector<Tensor> made() {
    const auto device = torch::TensorOptions().device(torch::kCUDA, 0);
    return {torch::zeros({2, 3}, device),
            torch::ones({3}, device.dtype(torch::kInt64)),
            torch::full({2}, -1.5, device),
            torch::full({2}, 7),
            torch::arange(5),
            torch::arange(1, 4, 0.5, torch::kFloat64),
            torch::tensor({1, 2, 3}),
            torch::tensor(std::vector<float>{0.5f, 2}, torch::dtype(torch::kBFloat16)),
            torch::zeros_like(torch::ones({2}, torch::kInt8)),
            torch::ones({0, 4})};
}

std::vector<Tensor> arithmetic(Tensor a, Tensor b) {  // a: 3 x 4, b: 4
    Tensor c = a.clone();
    c += b;
    c *= 2;
    c.sub_(1.0);
    return {a + b, a - b, b * a, a / b, 1 - a, a * 0.5, -a, c, a.to(torch::kInt32) + 1,
            a.to(torch::kInt32) / 2, a.to(torch::kHalf) + b};
}

std::vector<Tensor> reductions(Tensor x) {
    auto [values, places] = torch::max(x, 1);
    auto [least, least_at] = x.min(0, true);
    auto [sorted, order] = x.sort(1, true);
    return {x.sum(),        x.sum(0), x.sum(-1, true), x.mean(), x.mean(1), x.max(), x.min(),
            x.amax(0),      values,   places,          least,    least_at,  sorted,  order,
            x.argsort(0),   x.to(torch::kInt32).sum(),
            x.index_select(1, torch::tensor({2, 0})),
            torch::stack({x, x}, 1), torch::cat({x, x}, 1)};
}

template <class scalar_t>
__global__ void mean_kernel(
    const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
    torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> out) {
    const int row = threadIdx.x;
    scalar_t sum = 0;
    for (int i = 0; i < x.size(1); ++i) sum += x[row][i];
    out[row] = sum / x.size(1);
}
Tensor row_means(Tensor x) {  // strided, in the element type's own arithmetic
    Tensor out = torch::empty({x.size(0)}, x.options());
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "row_means", ([&] {
        mean_kernel<scalar_t><<<1, x.size(0)>>>(
            x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            out.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>());
    }));
    return out;
}

bool sixteen_bits() {
    const c10::Half h = 1.5f;
    const at::BFloat16 b = 3;
    static_assert(std::is_same<decltype(h * h), c10::Half>::value, "");
    static_assert(std::is_same<decltype(h * 2), c10::Half>::value, "");
    static_assert(std::is_same<decltype(h + 1.0f), float>::value, "");
    static_assert(std::is_same<decltype(1.0 - b), double>::value, "");
    const __half device = h;
    c10::Half sum = h;
    sum += 2;
    return h * h == 2.25f && (float)device == 1.5f && sum == 3.5f && b > 2 && -b == -3 &&
           c10::Half(__half(0.25f)) == 0.25f && std::numeric_limits<c10::Half>::max() == 65504 &&
           (float)c10::Half(1 + 1.0f / 2048) == 1 && std::exp(h) > 4.4f;
}

bool properties(Tensor x) {  // 3 x 4 float32
    const cudaDeviceProp* device = at::cuda::getCurrentDeviceProperties();
    return x.dim() == 2 && x.size(-1) == 4 && x.stride(0) == 4 && x.numel() == 12 &&
           x.sizes() == torch::IntArrayRef({3, 4}) && x.dtype() == torch::kFloat32 &&
           x.options().dtype() == torch::kFloat && x.scalar_type() != torch::kHalf &&
           x.is_cuda() && !x.cpu().is_cuda() && x.get_device() == 0 && x.nbytes() == 48 &&
           x.element_size() == 4 && x.device() == torch::Device(torch::kCUDA, 0) &&
           x.defined() && !Tensor().defined() && x.t().is_contiguous() == false &&
           x[2][3].item<float>() == x.data_ptr<float>() [11] &&
           x.cpu().accessor<float, 2>()[1][2] == x.index_select(0, torch::tensor({1}))[0][2]
                                                     .item().to<float>() &&
           torch::empty({0}).data_ptr() == nullptr && device->multiProcessorCount > 0 &&
           torch::cuda::is_available();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("views", &views);
    m.def("strides_of_views", &strides_of_views);
    m.def("made", &made);
    m.def("arithmetic", &arithmetic);
    m.def("reductions", &reductions);
    m.def("row_means", &row_means);
    m.def("sixteen_bits", &sixteen_bits);
    m.def("properties", &properties);
}
