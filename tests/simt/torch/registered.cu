// Operators as libraries registered them before TORCH_LIBRARY, with gradients of their own and
// PyTorch's operations around the kernels.
#include <torch/script.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/detail/IndexUtils.cuh>
#include <ATen/cuda/detail/TensorInfo.cuh>

template <typename scalar_t>
__global__ void spread(at::cuda::detail::TensorInfo<scalar_t, int> in, scalar_t* out, int n,
                       scalar_t by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in.data[at::cuda::detail::IndexToOffset<scalar_t, int, -1>::get(i, in)] * by;
}

static torch::Tensor scaled(torch::Tensor x, double by) {
    c10::cuda::MaybeSetDevice(x.get_device());
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU")  // no semicolon, as some write it
    auto out = torch::empty(x.sizes(), x.options());
    const int n = (int)x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "spread", [&] {
        spread<scalar_t><<<(n + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
            at::cuda::detail::getTensorInfo<scalar_t, int>(x), out.data_ptr<scalar_t>(), n,
            (scalar_t)by);
    });
    return out;
}

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

class Scale : public torch::autograd::Function<Scale> {
  public:
    static variable_list forward(AutogradContext* ctx, Variable x, Variable by,
                                 std::optional<Variable> without) {
        ctx->saved_data["factor"] = by.item<double>();
        ctx->saved_data["shape"] = x.sizes();
        ctx->save_for_backward({x});
        auto signs = (x > 0).to(torch::kLong);
        ctx->mark_non_differentiable({signs});
        return {scaled(x, by.item<double>()), signs};
    }
    static variable_list backward(AutogradContext* ctx, variable_list gradients) {
        auto x = ctx->get_saved_variables()[0];
        const double factor = ctx->saved_data["factor"].toDouble();
        TORCH_CHECK(ctx->saved_data["shape"].toIntVector() == x.sizes().vec());
        return {scaled(gradients[0], factor), (gradients[0] * x).sum(), Variable()};
    }
};

std::tuple<torch::Tensor, torch::Tensor> scale(torch::Tensor x, torch::Tensor by,
                                               std::optional<torch::Tensor> without) {
    auto made = Scale::apply(x, by, without);
    return std::make_tuple(made[0], made[1]);
}

torch::Tensor around(torch::Tensor x) {
    auto ranked = x.cumsum(0).masked_fill_(x < 0, 0);
    auto padded = torch::nn::functional::pad(ranked, torch::nn::functional::PadFuncOptions({0, 1}));
    auto top = std::get<0>(padded.topk(2));
    return padded.index({torch::indexing::Slice(torch::indexing::None, 2)}) + top.sum({0}).mean();
}

torch::Tensor drawn(torch::Tensor x) {
    if (!torch::autograd::any_variable_requires_grad({x})) return x;
    auto [often, where] = x.mode(-1, true);
    return at::where(x > 0, at::ones_like(x).bernoulli(), often) + torch::cdist(x, x).median();
}

torch::Tensor unknown(torch::Tensor x) { return x.cross(x); }

static auto registry = torch::RegisterOperators()
                           .op("simt_tests::scale", &scale)
                           .op("simt_tests::around(Tensor x) -> Tensor", &around)
                           .op("simt_tests::drawn", &drawn)
                           .op("simt_tests::unknown", &unknown);
