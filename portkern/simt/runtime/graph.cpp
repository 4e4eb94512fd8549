// Graphs of work and the capture of streams into them.
#include "simt/graph.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "host.h"

namespace simt::api {

struct GraphNode {
    Node kind;
    Work work;
    std::set<size_t> after;  // of the graph's nodes, by their numbers
    size_t number;
    Graph* graph;
};

struct Graph {
    std::vector<std::unique_ptr<GraphNode>> nodes;
};

struct GraphExec {
    Graph graph;
    std::vector<size_t> order;
    std::map<const GraphNode*, size_t> numbers;  // of the nodes that it was made from
};

namespace {

std::mutex lock;
std::map<const void*, Graph*> captures;  // by stream
std::atomic<int> capturing_streams{0};

void copy_into(Graph& to, const Graph& from) {
    for (const auto& node : from.nodes) {
        auto copy = std::make_unique<GraphNode>(*node);
        copy->graph = &to;
        to.nodes.push_back(std::move(copy));
    }
}

// Nodes behind those that they follow, else as they were added; empty where they wait in a circle.
std::vector<size_t> order_of(const Graph& graph) {
    std::vector<size_t> order;
    std::set<size_t> done;
    for (bool more = true; more;) {
        more = false;
        for (const auto& node : graph.nodes) {
            const bool ready = std::all_of(node->after.begin(), node->after.end(),
                                           [&](size_t n) { return done.count(n) > 0; });
            if (!ready || !done.insert(node->number).second) continue;
            order.push_back(node->number);
            more = true;
        }
    }
    if (order.size() < graph.nodes.size()) order.clear();
    return order;
}

int run_all(const Graph& graph, const std::vector<size_t>& order) {
    for (const size_t n : order)
        if (graph.nodes[n]->work)
            if (const int error = graph.nodes[n]->work()) return error;
    return success;
}

}  // namespace

int graph_create(Graph** graph) {
    if (!graph) return finish(invalid_value);
    *graph = new Graph;
    return success;
}

int graph_destroy(Graph* graph) {
    if (!graph) return finish(invalid_value);
    delete graph;
    return success;
}

int graph_clone(Graph** clone, const Graph* graph) {
    if (!clone || !graph) return finish(invalid_value);
    *clone = new Graph;
    copy_into(**clone, *graph);
    return success;
}

int graph_add(GraphNode** node, Graph* graph, GraphNode* const* after, size_t count, Node kind,
              Work work) {
    if (!node || !graph || (count && !after)) return finish(invalid_value);
    auto made = std::make_unique<GraphNode>();
    made->kind = kind;
    made->work = std::move(work);
    made->number = graph->nodes.size();
    made->graph = graph;
    for (size_t i = 0; i < count; ++i) {
        if (!after[i] || after[i]->graph != graph) return finish(invalid_value);
        made->after.insert(after[i]->number);
    }
    *node = made.get();
    graph->nodes.push_back(std::move(made));
    return success;
}

int graph_add_graph(GraphNode** node, Graph* graph, GraphNode* const* after, size_t count,
                    const Graph* child) {
    if (!child) return finish(invalid_value);
    auto kept = std::make_shared<Graph>();
    copy_into(*kept, *child);
    const std::vector<size_t> order = order_of(*kept);
    if (order.size() < kept->nodes.size()) return finish(invalid_value);
    return graph_add(node, graph, after, count, Node::graph,
                     [kept, order] { return run_all(*kept, order); });
}

int graph_order(Graph* graph, GraphNode* const* from, GraphNode* const* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (!graph || from[i]->graph != graph || to[i]->graph != graph)
            return finish(invalid_value);
        to[i]->after.insert(from[i]->number);
    }
    return success;
}

int graph_nodes(const Graph* graph, GraphNode** nodes, size_t* count) {
    if (!graph || !count) return finish(invalid_value);
    const size_t room = nodes ? std::min(*count, graph->nodes.size()) : 0;
    for (size_t i = 0; i < room; ++i) nodes[i] = graph->nodes[i].get();
    *count = graph->nodes.size();
    return success;
}

int node_kind(const GraphNode* node, Node* kind) {
    if (!node || !kind) return finish(invalid_value);
    *kind = node->kind;
    return success;
}

int node_set(GraphNode* node, Work work) {
    if (!node) return finish(invalid_value);
    node->work = std::move(work);
    return success;
}

int graph_instantiate(GraphExec** exec, const Graph* graph) {
    if (!exec || !graph) return finish(invalid_value);
    auto made = std::make_unique<GraphExec>();
    copy_into(made->graph, *graph);
    made->order = order_of(made->graph);
    if (made->order.size() < graph->nodes.size()) return finish(invalid_value);
    for (const auto& node : graph->nodes) made->numbers[node.get()] = node->number;
    *exec = made.release();
    return success;
}

int exec_set(GraphExec* exec, const GraphNode* node, Work work) {
    if (!exec || !exec->numbers.count(node)) return finish(invalid_value);
    exec->graph.nodes[exec->numbers[node]]->work = std::move(work);
    return success;
}

int exec_update(GraphExec* exec, const Graph* graph) {
    constexpr int update_failure = 910;
    if (!exec || !graph) return finish(invalid_value);
    auto& mine = exec->graph.nodes;
    const auto alike = [](const auto& a, const auto& b) {
        return a->kind == b->kind && a->after == b->after;
    };
    if (!std::equal(mine.begin(), mine.end(), graph->nodes.begin(), graph->nodes.end(), alike))
        return finish(update_failure);
    exec->numbers.clear();
    for (size_t i = 0; i < mine.size(); ++i) {
        mine[i]->work = graph->nodes[i]->work;
        exec->numbers[graph->nodes[i].get()] = i;
    }
    return success;
}

int exec_run(GraphExec* exec, void* stream) {
    if (!exec) return finish(invalid_value);
    if (captured(stream, Node::graph, [exec] { return run_all(exec->graph, exec->order); }))
        return success;
    if (const int error = stream_synchronize(stream)) return error;
    return finish(run_all(exec->graph, exec->order));
}

int exec_destroy(GraphExec* exec) {
    if (!exec) return finish(invalid_value);
    delete exec;
    return success;
}

// ---- capture

bool capturing(const void* stream) {
    if (!capturing_streams.load(std::memory_order_relaxed)) return false;
    std::lock_guard<std::mutex> guard(lock);
    return captures.count(stream) > 0;
}

int capture_begin(void* stream) {
    constexpr int unsupported_here = 900;  // the legacy stream cannot be captured
    if ((uintptr_t)stream <= 1) return finish(unsupported_here);
    if (const int error = stream_synchronize(stream)) return error;
    std::lock_guard<std::mutex> guard(lock);
    captures[stream] = new Graph;
    ++capturing_streams;
    return success;
}

int capture_end(void* stream, Graph** graph) {
    std::lock_guard<std::mutex> guard(lock);
    const auto begun = captures.find(stream);
    if (begun == captures.end() || !graph) return finish(invalid_value);
    *graph = begun->second;
    for (auto it = captures.begin(); it != captures.end();)
        it = it->second == *graph ? (--capturing_streams, captures.erase(it)) : std::next(it);
    return success;
}

// In the order in which the streams were given their work, which keeps every order they ask for.
bool captured(void* stream, Node kind, Work work) {
    if (!capturing(stream)) return false;
    std::lock_guard<std::mutex> guard(lock);
    Graph* graph = captures[stream];
    GraphNode* last = graph->nodes.empty() ? nullptr : graph->nodes.back().get();
    GraphNode* node = nullptr;
    graph_add(&node, graph, &last, last ? 1 : 0, kind, std::move(work));
    return true;
}

void join_capture(const void* stream, const void* origin) {
    std::lock_guard<std::mutex> guard(lock);
    const auto begun = captures.find(origin);
    if (begun != captures.end() && captures.emplace(stream, begun->second).second)
        ++capturing_streams;
}

int refuse_captured(void* stream, const char* call, Site at) {
    return capturing(stream) ? unsupported(call, at) : success;
}

}  // namespace simt::api
