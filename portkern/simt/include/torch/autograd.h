// Autograd functions of C++. apply() computes and remembers; the backward pass is asked for by the
// torch of the process, see portkern/simt/torch_extension/gradients.py. Between operations of C++
// there are no gradients: what is not made by apply() has none.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../ATen/core/ivalue.h"
#include "types.h"

namespace torch::autograd {

using Variable = at::Tensor;
using variable_list = std::vector<Variable>;
using tensor_list = variable_list;

class AutogradContext {
  public:
    std::unordered_map<std::string, c10::IValue> saved_data;
    void save_for_backward(variable_list saved) { saved_ = std::move(saved); }
    variable_list get_saved_variables() const { return saved_; }
    void mark_dirty(const variable_list&) {}
    void mark_non_differentiable(const variable_list& of) {
        for (const Variable& t : of) without_.insert(t.unsafeGetTensorImpl());
    }
    void set_materialize_grads(bool) {}
    bool needs_input_grad(size_t) const { return true; }
    bool has_gradient(const Variable& t) const {
        return t.is_floating_point() && !without_.count(t.unsafeGetTensorImpl());
    }

  private:
    variable_list saved_;
    std::unordered_set<const void*> without_;
};

namespace detail {

inline variable_list listed(variable_list all) { return all; }
inline variable_list listed(Variable one) { return {std::move(one)}; }

inline simt::lite::Impl* tensor_in(const Variable& t) { return t.unsafeGetTensorImpl(); }
inline simt::lite::Impl* tensor_in(const std::optional<Variable>& t) {
    return t ? t->unsafeGetTensorImpl() : nullptr;
}
template <class T>
inline simt::lite::Impl* tensor_in(const T&) { return nullptr; }

template <class F>
bool backward(void* context, const simt::lite::Value* gradients, int64_t count,
              simt::lite::Value* result) {
    using simt::lite::Convert;
    try {
        variable_list of;
        for (int64_t i = 0; i < count; ++i) of.push_back(Convert<Variable>::from(gradients[i]));
        Convert<variable_list>::to(
            *result, listed(F::backward(static_cast<AutogradContext*>(context), std::move(of))));
        return true;
    } catch (const std::exception& e) {
        simt::lite::fail("RuntimeError", e.what());
        return false;
    }
}

}  // namespace detail

template <class F>
struct Function {
    template <class... A>
    static auto apply(A&&... given) {
        using simt::lite::Impl;
        auto context = std::make_unique<AutogradContext>();
        std::vector<Impl*> inputs{detail::tensor_in(given)...};
        for (Impl* t : inputs) simt::lite::retain(t);  // forward may give another to its own name
        auto made = F::forward(context.get(), std::forward<A>(given)...);
        const variable_list outputs = detail::listed(made);
        auto** of = new Impl*[inputs.size() + 1];
        std::copy(inputs.begin(), inputs.end(), of);
        auto* maker = new simt::lite::Maker{
            detail::backward<F>, [](void* known) { delete static_cast<AutogradContext*>(known); },
            nullptr, 1, (int64_t)inputs.size(), of};
        for (size_t i = 0; i < outputs.size(); ++i)
            if (outputs[i].defined() && context->has_gradient(outputs[i]))
                simt::lite::made_by(maker, outputs[i].unsafeGetTensorImpl(), (int64_t)i);
        maker->function = context.release();
        simt::lite::release_maker(maker);
        return made;
    }
};

// Whether the torch of the process will ask for gradients is not known here.
inline bool any_variable_requires_grad(const variable_list&) { return true; }

}  // namespace torch::autograd
namespace torch {
using autograd::Variable;
using autograd::any_variable_requires_grad;
}  // namespace torch
