"""The shipped ops as PyTorch's C++ has them: what a library falls back to, and the gradients that
have a closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Formula:
    """``forward`` is an expression of the inputs and scalars. ``backward`` has one of the gradient
    ``g``, the output ``y`` and them for each input, '' where the gradient is that of ``forward``,
    computed again. ``lengths``: of axes that follow, in whole numbers. ``limits``: conditions on
    lengths and scalars that hold wherever there is an answer, as C++ and Python say them.
    ``differentiable``: whether there is a gradient at all."""

    forward: str
    backward: tuple[str, ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    differentiable: bool = True


def _windows(length: str, window: str, stride: str, padding: str = "0") -> str:
    return f"({length} + 2 * {padding} - {window}) // {stride} + 1"


_CONVOLVED = {axis: _windows(axis[1], f"k{axis[1]}", "stride", "padding") for axis in ("oh", "ow")}
_CONV = "at::conv2d(x, weight, bias, {stride, stride}, {padding, padding})"

#: Gradients of a normalisation: rows without their mean, what is taken out of w g, and the bias'.
_BACKWARD = (
    "[&] {{ const auto wide = c10::promoteTypes(x.scalar_type(), at::kFloat); "
    "const Tensor wide_grad = grad.to(wide), wide_x = x.to(wide); {}; "
    "const Tensor scale = at::rsqrt((v * v).mean(-1, true) + eps); "
    "const Tensor z = v * scale, own = wide_grad * weight.to(wide); "
    "return std::make_tuple((scale * ({} - z * (own * z).mean(-1, true))).to(x.scalar_type()), "
    "(wide_grad * z).sum(0).to(x.scalar_type()){}); }}()"
)

FORMULAS: Mapping[str, Formula] = {
    "add": Formula("at::add(a, b)"),
    "add_rmsnorm": Formula(
        "[&] { const Tensor total = x + residual; return std::make_tuple("
        "rms_norm(total, weight, eps), total); }()"
    ),
    "argmax": Formula("at::argmax(x, -1)", differentiable=False),
    "attention": Formula("attention(q, k, v)"),
    "bias_gelu": Formula("at::gelu(x + bias)"),
    "bmm": Formula("at::matmul(a, b)"),
    "causal_conv1d": Formula(
        '[&] { TORCH_CHECK(x.dim() == 3 && weight.dim() == 2, "expected x of 3 dimensions and a '
        'weight of 2"); const auto wide = c10::promoteTypes(x.scalar_type(), at::kFloat); '
        "const int64_t taps = weight.sym_size(1).guard_int(__FILE__, __LINE__); "
        "const Tensor padded = at::constant_pad_nd(x.to(wide), "
        "{0, 0, std::max(taps - 1, int64_t(0)), 0}); "
        "Tensor total = bias.to(wide).expand_symint(x.sym_sizes()); "
        "for (int64_t tap = 0; tap < taps; ++tap) total = total + "
        "padded.narrow_symint(1, tap, x.sym_size(1)) * weight.select(1, tap).to(wide); "
        "return (silu ? at::silu(total) : total).to(x.scalar_type()).contiguous(); }()"
    ),
    "conv2d": Formula(_CONV, lengths=_CONVOLVED),
    "conv2d_relu_maxpool": Formula(
        f"at::max_pool2d(at::relu({_CONV}), {{window, window}}, {{pool_stride, pool_stride}})",
        lengths={
            axis: _windows(f"({text})", "window", "pool_stride")
            for axis, text in _CONVOLVED.items()
        },
    ),
    "cross_entropy": Formula("at::cross_entropy_loss(logits, target, {}, at::Reduction::None)"),
    "cross_entropy_backward": Formula(
        "[&] { const auto wide = c10::promoteTypes(logits.scalar_type(), at::kFloat); "
        "const Tensor share = at::softmax(logits.to(wide), -1); "
        "const auto whole = logits.options().dtype(at::kLong); "
        "const Tensor own = at::arange(at::Scalar(logits.sym_size(1)), whole) "
        "== target.unsqueeze(1); "
        "return ((share - own.to(wide)) * grad.to(wide).unsqueeze(1))"
        ".to(logits.scalar_type()); }()"
    ),
    "cumsum": Formula("at::cumsum(x, -1)", ("g.flip({-1}).cumsum(-1).flip({-1})",)),
    "embedding": Formula("at::embedding(table, index)"),
    "fp8_linear": Formula(
        "at::linear(x, (packed.view(at::kFloat8_e4m3fn).to(x.scalar_type()) * scale.unsqueeze(-1))"
        ".flatten(1))",
        lengths={"k": "groups * bytes"},
    ),
    "gelu": Formula("at::gelu(x)", ("at::gelu_backward(g, x)",)),
    "group_norm_silu": Formula(
        "[&] { const auto wide = c10::promoteTypes(x.scalar_type(), at::kFloat); "
        "const Tensor normal = at::layer_norm_symint(x.to(wide), {x.sym_size(2), x.sym_size(3)}, "
        "{}, {}, eps), scaled = normal * weight.to(wide).unsqueeze(-1) "
        "+ bias.to(wide).unsqueeze(-1); return at::silu(scaled).to(x.scalar_type()); }()"
    ),
    "grouped_attention": Formula(
        "[&] { const c10::SymInt queries = q.sym_size(3), keys = k.sym_size(2); "
        "const at::Scalar root(c10::SymFloat(q.sym_size(4)).sqrt()); "
        "Tensor scores = at::matmul(q, (k / root).mT().unsqueeze(2)); "
        "if (softcap > 0) scores = softcap * at::tanh(scores / softcap); "
        "const auto whole = q.options().dtype(at::kLong); "
        "const at::Scalar ahead(keys - queries); "
        "const Tensor place = at::arange(at::Scalar(queries), whole).unsqueeze(1) + ahead, "
        "key = at::arange(at::Scalar(keys), whole); Tensor hidden = key > place; "
        "if (window > 0) hidden = hidden | (key <= place - window); "
        "const double none = -std::numeric_limits<double>::infinity(); "
        "const Tensor share = at::softmax(scores.masked_fill(hidden, none), -1); "
        "return at::matmul(share.masked_fill(hidden, 0), v.unsqueeze(2)); }()"
    ),
    "grouped_linear": Formula(
        "[&] { TORCH_CHECK(ends.dim() == 1 && weight.dim() > 0 && ends.sym_size(0) == "
        'weight.sym_size(0), "expected an end for each weight"); '
        "const Tensor until = std::get<0>(at::cummax(ends, 0)); "
        "const Tensor row = at::arange(at::Scalar(x.sym_size(0)), "
        "ends.options().dtype(at::kLong)); "
        "Tensor y = x.new_zeros_symint({x.sym_size(0), weight.sym_size(1)}); "
        "for (int64_t expert = ends.sym_size(0).guard_int(__FILE__, __LINE__); expert-- > 0;) "
        "y = at::where((row < until.select(0, expert)).unsqueeze(1), "
        "at::linear(x, weight.select(0, expert)), y); return y; }()"
    ),
    "int4_linear": Formula(
        "[&] { const Tensor q = at::stack({at::bitwise_and(packed, 15), "
        "at::bitwise_right_shift(packed, 4)}, -1).flatten(2).to(x.scalar_type()); "
        "const Tensor weight = q * scale.unsqueeze(-1) + low.unsqueeze(-1); "
        "return at::linear(x, weight.flatten(1)); }()",
        lengths={"k": "2 * groups * bytes"},
    ),
    "int8_matmul": Formula("at::matmul(a, weight.to(a.scalar_type())) * scale"),
    "layernorm": Formula("at::layer_norm_symint(x, {x.sym_size(-1)}, weight, bias, eps)"),
    "layernorm_backward": Formula(
        _BACKWARD.format(
            "const Tensor v = wide_x - wide_x.mean(-1, true)",
            "own - own.mean(-1, true)",
            ", wide_grad.sum(0).to(x.scalar_type())",
        )
    ),
    "linear": Formula("at::linear(x, weight)"),
    "linear_bias": Formula("at::linear(x, weight, bias)"),
    "matmul": Formula("at::matmul(a, b)"),
    "maxpool2d": Formula(
        "at::max_pool2d(x, {window, window}, {stride, stride}, {padding, padding})",
        lengths={axis: _windows(axis[1], "window", "stride", "padding") for axis in ("oh", "ow")},
        limits=("2 * padding <= window",),
    ),
    "moe_combine": Formula(
        "[&] { const auto wide = c10::promoteTypes(x.scalar_type(), at::kFloat); "
        "return (gates.to(wide).unsqueeze(2) * "
        "x.index({at::indexing::TensorIndex(index)}).to(wide)).sum(1).to(x.scalar_type()); }()"
    ),
    "moe_route": Formula(
        "[&] { auto [values, experts] = at::sort(logits, /*stable=*/true, -1, true); "
        "const auto wide = c10::promoteTypes(logits.scalar_type(), at::kFloat); "
        "return std::make_tuple(at::softmax(values.slice(1, 0, k).to(wide), -1)"
        ".to(logits.scalar_type()), experts.slice(1, 0, k).contiguous()); }()",
        lengths={"kept": "k"},
        limits=("k <= experts",),
    ),
    "paged_attention": Formula(
        "[&] { const auto gathered = [&](const Tensor& pages) { return pages.index("
        "{at::indexing::TensorIndex(table.to(at::kLong))}).flatten(1, 2).transpose(1, 2); }; "
        "Tensor keys = gathered(key_pages), values = gathered(value_pages); "
        "const at::Scalar root(c10::SymFloat(q.sym_size(3)).sqrt()); "
        "const Tensor hidden = (at::arange(at::Scalar(keys.sym_size(2)), lengths.options()) "
        ">= lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1); "
        "keys = keys.masked_fill(hidden.mT(), 0), values = values.masked_fill(hidden.mT(), 0); "
        "const double none = -std::numeric_limits<double>::infinity(); "
        "const Tensor scores = at::matmul(q, (keys / root).mT()).masked_fill(hidden, none); "
        "return at::matmul(at::softmax(scores, -1).masked_fill(hidden, 0), values); }()"
    ),
    "relu": Formula("at::relu(x)", ("at::threshold_backward(g, y, 0)",)),
    "rmsnorm": Formula("rms_norm(x, weight, eps)"),
    "rmsnorm_backward": Formula(_BACKWARD.format("const Tensor v = wide_x", "own", "")),
    "rope": Formula(
        "[&] { const Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1), p = x.select(2, 0), "
        "q = x.select(2, 1); return at::stack({p * c - q * s, q * c + p * s}, 2)"
        ".to(x.scalar_type()); }()"
    ),
    "scatter_add": Formula(
        "[&] { const auto wide = c10::promoteTypes(x.scalar_type(), at::kFloat); "
        "return x.to(wide).index_add(0, index, src.to(wide)).to(x.scalar_type()); }()"
    ),
    "selective_scan": Formula(
        "[&] { const auto kind = at::promote_types(x.scalar_type(), at::kFloat); "
        "const Tensor wide_x = x.to(kind), time = step.to(kind).unsqueeze(-1), "
        "rates = rate.to(kind), into = b.to(kind).unsqueeze(2), out = c.to(kind).unsqueeze(2), "
        "given = time * wide_x.unsqueeze(-1); "
        "Tensor state = wide_x.new_zeros_symint({x.sym_size(0), rate.sym_size(0), "
        "rate.sym_size(1)}); std::vector<Tensor> seen{wide_x.narrow_symint(1, 0, 0)}; "
        "const int64_t length = x.sym_size(1).guard_int(__FILE__, __LINE__); "
        "for (int64_t t = 0; t < length; ++t) { "
        "state = at::exp(-time.select(1, t) * rates) * state + given.select(1, t) * "
        "into.select(1, t); "
        "seen.push_back((state * out.select(1, t)).sum(-1).unsqueeze(1)); } "
        "return (at::cat(seen, 1) + skip.to(kind) * wide_x).to(x.scalar_type()); }()"
    ),
    "silu_mul": Formula(
        "at::silu(gate) * up", ("at::silu_backward(g * up, gate)", "g * at::silu(gate)")
    ),
    "softmax": Formula(
        "at::softmax(x, -1)", ("at::_softmax_backward_data(g, y, -1, x.scalar_type())",)
    ),
    "sum": Formula("at::sum(x, 1)"),
    "topk": Formula(
        "[&] { auto [values, indices] = at::sort(x, /*stable=*/true, -1, true); "
        "return std::make_tuple(values.slice(1, 0, k).contiguous(), "
        "indices.slice(1, 0, k).contiguous()); }()",
        lengths={"kept": "k"},
        limits=("k <= cols",),
    ),
    "transpose": Formula("x.t().contiguous()", ("g.t().contiguous()",)),
}
