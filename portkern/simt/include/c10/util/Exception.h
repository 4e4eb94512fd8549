// c10::Error and the checks that throw it.
#pragma once
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "../../simt/lite.h"

namespace c10 {

class Error : public std::exception {
  public:
    explicit Error(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }
    const char* what_without_backtrace() const noexcept { return message_.c_str(); }
    const std::string& msg() const { return message_; }

  private:
    std::string message_;
};
class IndexError : public Error {
    using Error::Error;
};
class ValueError : public Error {
    using Error::Error;
};
class TypeError : public Error {
    using Error::Error;
};
class NotImplementedError : public Error {
    using Error::Error;
};

template <class... A>
inline std::string str(const A&... parts) {
    std::ostringstream out;
    (void)(out << ... << parts);
    return out.str();
}

namespace detail {

template <class E = Error>
[[noreturn]] __attribute__((noinline, cold)) inline void fail(const char* text) {
    throw E(text);
}
template <class E = Error, class... A>
[[noreturn]] __attribute__((noinline, cold)) void fail(const char*, const A&... parts) {
    throw E(str(parts...));
}
// A message of one literal, the usual case, needs no stream.
template <class E = Error>
[[noreturn]] inline void fail(const char*, const char* text) {
    fail<E>(text);
}
// What the runtime returned null for.
[[noreturn]] __attribute__((noinline, cold)) inline void fail_as_told() {
    const simt::lite::Failure told = simt::lite::error();
    if (told.kind[0] == 'I') fail<IndexError>(told.text);
    if (told.kind[0] == 'V') fail<ValueError>(told.text);
    fail<Error>(told.text);
}

}  // namespace detail

}  // namespace c10

// A statement of its own, as in PyTorch: sources leave out the semicolon.
#define TORCH_CHECK_WITH(error, condition, ...)                                                   \
    if (!(condition)) {                                                                           \
        ::c10::detail::fail<::c10::error>("Expected " #condition " to be true, but got false.",   \
                                          ##__VA_ARGS__);                                         \
    }
#define TORCH_CHECK(condition, ...) TORCH_CHECK_WITH(Error, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK_WITH(IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK_WITH(ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK_WITH(TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...)                                               \
    TORCH_CHECK_WITH(NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK_WITH(Error, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) ((void)0)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...)                                                                             \
    do {                                                                                          \
        ::c10::detail::fail("", ##__VA_ARGS__);                                                   \
    } while (false)
#define TORCH_WARN(...) ((void)(std::cerr << "Warning: " << ::c10::str(__VA_ARGS__) << '\n'))

#define TORCH_CHECK_COMPARED(a, op, b, ...)                                                       \
    TORCH_CHECK((a)op(b), "Check failed: " #a " " #op " " #b " (", (a), " vs. ", (b), "). ",      \
                ##__VA_ARGS__)
#define TORCH_CHECK_EQ(a, b, ...) TORCH_CHECK_COMPARED(a, ==, b, ##__VA_ARGS__)
#define TORCH_CHECK_NE(a, b, ...) TORCH_CHECK_COMPARED(a, !=, b, ##__VA_ARGS__)
#define TORCH_CHECK_LT(a, b, ...) TORCH_CHECK_COMPARED(a, <, b, ##__VA_ARGS__)
#define TORCH_CHECK_LE(a, b, ...) TORCH_CHECK_COMPARED(a, <=, b, ##__VA_ARGS__)
#define TORCH_CHECK_GT(a, b, ...) TORCH_CHECK_COMPARED(a, >, b, ##__VA_ARGS__)
#define TORCH_CHECK_GE(a, b, ...) TORCH_CHECK_COMPARED(a, >=, b, ##__VA_ARGS__)
