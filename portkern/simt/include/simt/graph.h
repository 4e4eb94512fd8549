// Graphs of work: nodes that run in the order of their edges when the graph is launched, made by hand
// or by capturing what a stream is given. Kernels' arguments are copied when a node is made.
#pragma once
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "api.h"

namespace simt::api {

struct Graph;
struct GraphNode;
struct GraphExec;
// What a node does; returns an Error.
using Work = std::function<int()>;

enum class Node : int { kernel = 0, copy = 1, fill = 2, host = 3, graph = 4, empty = 5 };

SIMT_API int graph_create(Graph** graph);
SIMT_API int graph_destroy(Graph* graph);
SIMT_API int graph_clone(Graph** clone, const Graph* graph);
// `node` runs behind the `count` nodes of `after`, which must be the graph's.
SIMT_API int graph_add(GraphNode** node, Graph* graph, GraphNode* const* after, size_t count,
                       Node kind, Work work);
SIMT_API int graph_add_graph(GraphNode** node, Graph* graph, GraphNode* const* after, size_t count,
                             const Graph* child);
SIMT_API int graph_order(Graph* graph, GraphNode* const* from, GraphNode* const* to, size_t count);
SIMT_API int graph_nodes(const Graph* graph, GraphNode** nodes, size_t* count);
SIMT_API int node_kind(const GraphNode* node, Node* kind);
SIMT_API int node_set(GraphNode* node, Work work);
// A copy of the graph as it is now, which later changes to the graph do not change.
SIMT_API int graph_instantiate(GraphExec** exec, const Graph* graph);
SIMT_API int exec_set(GraphExec* exec, const GraphNode* node, Work work);
SIMT_API int exec_update(GraphExec* exec, const Graph* graph);  // 910: it has other nodes
SIMT_API int exec_run(GraphExec* exec, void* stream);
SIMT_API int exec_destroy(GraphExec* exec);

SIMT_API int capture_begin(void* stream);
SIMT_API int capture_end(void* stream, Graph** graph);
SIMT_API bool capturing(const void* stream);
// Whether the stream is capturing and the work has become a node, which the caller then does not do.
SIMT_API bool captured(void* stream, Node kind, Work work);
// For an operation that is not modelled in a graph: reports SX409 if the stream is capturing.
SIMT_API int refuse_captured(void* stream, const char* call, Site at);

// A kernel with its type, which is lost behind a void*.
class TypedKernel {
  public:
    TypedKernel(const void* at = nullptr) : at_(at) {}
    template <class... P>
    TypedKernel(void (*kernel)(P...)) : at_((const void*)kernel), work_(&make<P...>) {}
    operator void*() const { return const_cast<void*>(at_); }
    Work work(const Shape& shape, void** arguments, Site at) const {
        return work_ ? work_(at_, shape, arguments, at) : Work();
    }

  private:
    template <class... P>
    static Work make(const void* kernel, const Shape& shape, void** arguments, Site at) {
        return copied<P...>((void (*)(P...))kernel, shape, arguments, at,
                            std::index_sequence_for<P...>());
    }
    template <class... P, size_t... I>
    static Work copied(void (*kernel)(P...), const Shape& shape, [[maybe_unused]] void** arguments,
                       Site at, std::index_sequence<I...>) {
        std::tuple<std::remove_cv_t<P>...> values(
            *static_cast<std::remove_cv_t<P>*>(arguments[I])...);
        return [kernel, shape, values, at] {
            Shape now = shape;
            now.stream = nullptr;
            launch_values(kernel, now, at, std::get<I>(values)...);
            return launch_result();
        };
    }

    const void* at_;
    Work (*work_)(const void*, const Shape&, void**, Site) = nullptr;
};

}  // namespace simt::api
