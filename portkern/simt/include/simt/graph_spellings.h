// Graphs, and copies of boxes of memory, under one vendor's names, as spellings.h has the rest. Nodes
// of allocations and conditions are not modelled.
#include "graph.h"

#define SIMT_CALL(name) static inline SIMT_N(Error_t) SIMT_N(name)
#define SIMT_DO(call) (SIMT_N(Error_t))::simt::api::call
#define SIMT_NODE_AT                                                                               \
    SIMT_N(GraphNode_t)* node, SIMT_N(Graph_t) graph, const SIMT_N(GraphNode_t)* after, size_t count
#define SIMT_ADDED(kind, work)                                                                     \
    SIMT_DO(graph_add(node, graph, (::simt::api::GraphNode* const*)after, count,                   \
                      ::simt::api::Node::kind, work))

// ---- boxes of memory

typedef struct SIMT_N(Array)* SIMT_N(Array_t);  // of textures: there is none
struct SIMT_N(Extent) { size_t width, height, depth; };  // bytes, rows, slices
struct SIMT_N(Pos) { size_t x, y, z; };
struct SIMT_N(PitchedPtr) {
    void* ptr;
    size_t pitch, xsize, ysize;
};
struct SIMT_N(Memcpy3DParms) {
    SIMT_N(Array_t) srcArray;
    SIMT_N(Pos) srcPos;
    SIMT_N(PitchedPtr) srcPtr;
    SIMT_N(Array_t) dstArray;
    SIMT_N(Pos) dstPos;
    SIMT_N(PitchedPtr) dstPtr;
    SIMT_N(Extent) extent;
    SIMT_N(MemcpyKind) kind;
};

static inline SIMT_N(Extent) SIMT_MAKE(Extent)(size_t width, size_t height, size_t depth) {
    return {width, height, depth};
}
static inline SIMT_N(Pos) SIMT_MAKE(Pos)(size_t x, size_t y, size_t z) { return {x, y, z}; }
static inline SIMT_N(PitchedPtr) SIMT_MAKE(PitchedPtr)(void* p, size_t pitch, size_t width,
                                                       size_t height) {
    return {p, pitch, width, height};
}
SIMT_CALL(Malloc3D)(SIMT_N(PitchedPtr)* to, SIMT_N(Extent) extent, SIMT_AT) {
    *to = {nullptr, 0, extent.width, extent.height};
    return SIMT_DO(allocate_pitched(&to->ptr, &to->pitch, extent.width,
                                    extent.height * extent.depth, at));
}
SIMT_CALL(Memcpy3DAsync)(const SIMT_N(Memcpy3DParms)* p, SIMT_N(Stream_t) stream = nullptr,
                         SIMT_AT) {
    if (p->srcArray || p->dstArray) return SIMT_DO(unsupported("a copy of a texture's array", at));
    const auto start = [](const SIMT_N(PitchedPtr)& of, const SIMT_N(Pos)& pos, size_t slice) {
        return (char*)of.ptr + ((pos.z + slice) * of.ysize + pos.y) * of.pitch + pos.x;
    };
    for (size_t slice = 0; slice < p->extent.depth; ++slice)
        if (const int error = ::simt::api::copy_2d(
                start(p->dstPtr, p->dstPos, slice), p->dstPtr.pitch,
                start(p->srcPtr, p->srcPos, slice), p->srcPtr.pitch, p->extent.width,
                p->extent.height, (::simt::api::Copy)p->kind, (void*)stream, at))
            return (SIMT_N(Error_t))error;
    return SIMT_DO(success);
}
SIMT_CALL(Memcpy3D)(const SIMT_N(Memcpy3DParms)* p, SIMT_AT) {
    return SIMT_N(Memcpy3DAsync)(p, nullptr, at);
}
SIMT_CALL(Memset3DAsync)(SIMT_N(PitchedPtr) to, int value, SIMT_N(Extent) extent,
                         SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    for (size_t slice = 0; slice < extent.depth; ++slice)
        if (const int error = ::simt::api::fill_2d((char*)to.ptr + slice * to.ysize * to.pitch,
                                                   to.pitch, value, extent.width, extent.height,
                                                   (void*)stream, at))
            return (SIMT_N(Error_t))error;
    return SIMT_DO(success);
}
SIMT_CALL(Memset3D)(SIMT_N(PitchedPtr) to, int value, SIMT_N(Extent) extent, SIMT_AT) {
    return SIMT_N(Memset3DAsync)(to, value, extent, nullptr, at);
}

// ---- graphs

enum SIMT_N(GraphNodeType) {
    SIMT_N(GraphNodeTypeKernel) = 0,
    SIMT_N(GraphNodeTypeMemcpy) = 1,
    SIMT_N(GraphNodeTypeMemset) = 2,
    SIMT_N(GraphNodeTypeHost) = 3,
    SIMT_N(GraphNodeTypeGraph) = 4,
    SIMT_N(GraphNodeTypeEmpty) = 5,
};
struct SIMT_N(KernelNodeParams) {
#if defined(SIMT_HIP_PARAMS)
    dim3 blockDim;
    void** extra;
    ::simt::api::TypedKernel func;
    dim3 gridDim;
    void** kernelParams;
    unsigned sharedMemBytes;
#else
    ::simt::api::TypedKernel func;
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void** kernelParams;
    void** extra;
#endif
};
struct SIMT_N(MemsetParams) {
#if defined(SIMT_HIP_PARAMS)
    void* dst;
    unsigned elementSize;
    size_t height, pitch;
    unsigned value;
    size_t width;
#else
    void* dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
#endif
};
struct SIMT_N(HostNodeParams) {
    void (*fn)(void*);
    void* userData;
};

namespace simt::detail {
static inline api::Work SIMT_N(_kernel_work)(const SIMT_N(KernelNodeParams)* p, Site at) {
    const Shape shape(p->gridDim, p->blockDim, p->sharedMemBytes, nullptr);
    api::Work work = p->kernelParams || !p->extra ? p->func.work(shape, p->kernelParams, at)
                                                  : api::Work();
    if (!work)
        return [at] {
            return api::unsupported("a kernel node whose kernel came behind a void*, or whose "
                                    "arguments came as `extra`", at);
        };
    return work;
}
static inline api::Work SIMT_N(_memset_work)(const SIMT_N(MemsetParams)* p, Site at) {
    return [p = *p, at] {
        for (size_t row = 0; row < (p.height ? p.height : 1); ++row)
            if (const int error = api::fill((char*)p.dst + row * p.pitch, p.value, p.elementSize,
                                            p.width, nullptr, at))
                return error;
        return (int)api::success;
    };
}
}  // namespace simt::detail

SIMT_CALL(GraphCreate)(SIMT_N(Graph_t)* graph, unsigned = 0) { return SIMT_DO(graph_create(graph)); }
SIMT_CALL(GraphDestroy)(SIMT_N(Graph_t) graph) { return SIMT_DO(graph_destroy(graph)); }
SIMT_CALL(GraphClone)(SIMT_N(Graph_t)* clone, SIMT_N(Graph_t) graph) {
    return SIMT_DO(graph_clone(clone, graph));
}
SIMT_CALL(GraphAddKernelNode)(SIMT_NODE_AT, const SIMT_N(KernelNodeParams)* params, SIMT_AT) {
    return SIMT_ADDED(kernel, ::simt::detail::SIMT_N(_kernel_work)(params, at));
}
SIMT_CALL(GraphKernelNodeSetParams)(SIMT_N(GraphNode_t) node,
                                    const SIMT_N(KernelNodeParams)* params, SIMT_AT) {
    return SIMT_DO(node_set(node, ::simt::detail::SIMT_N(_kernel_work)(params, at)));
}
SIMT_CALL(GraphExecKernelNodeSetParams)(SIMT_N(GraphExec_t) exec, SIMT_N(GraphNode_t) node,
                                        const SIMT_N(KernelNodeParams)* params, SIMT_AT) {
    return SIMT_DO(exec_set(exec, node, ::simt::detail::SIMT_N(_kernel_work)(params, at)));
}
SIMT_CALL(GraphAddMemsetNode)(SIMT_NODE_AT, const SIMT_N(MemsetParams)* params, SIMT_AT) {
    return SIMT_ADDED(fill, ::simt::detail::SIMT_N(_memset_work)(params, at));
}
SIMT_CALL(GraphAddMemcpyNode)(SIMT_NODE_AT, const SIMT_N(Memcpy3DParms)* params, SIMT_AT) {
    return SIMT_ADDED(copy, ([p = *params, at] { return (int)SIMT_N(Memcpy3D)(&p, at); }));
}
SIMT_CALL(GraphAddMemcpyNode1D)(SIMT_NODE_AT, void* to, const void* from, size_t bytes,
                                SIMT_N(MemcpyKind) kind, SIMT_AT) {
    return SIMT_ADDED(copy, ([=] { return (int)SIMT_N(Memcpy)(to, from, bytes, kind, at); }));
}
SIMT_CALL(GraphExecMemcpyNodeSetParams1D)(SIMT_N(GraphExec_t) exec, SIMT_N(GraphNode_t) node,
                                          void* to, const void* from, size_t bytes,
                                          SIMT_N(MemcpyKind) kind, SIMT_AT) {
    return SIMT_DO(exec_set(exec, node,
                            [=] { return (int)SIMT_N(Memcpy)(to, from, bytes, kind, at); }));
}
SIMT_CALL(GraphAddHostNode)(SIMT_NODE_AT, const SIMT_N(HostNodeParams)* params) {
    return SIMT_ADDED(host, ([p = *params] {
                          p.fn(p.userData);
                          return (int)::simt::api::success;
                      }));
}
SIMT_CALL(GraphAddEmptyNode)(SIMT_NODE_AT) { return SIMT_ADDED(empty, {}); }
SIMT_CALL(GraphAddChildGraphNode)(SIMT_NODE_AT, SIMT_N(Graph_t) child) {
    return SIMT_DO(graph_add_graph(node, graph, (::simt::api::GraphNode* const*)after, count,
                                   child));
}
SIMT_CALL(GraphAddDependencies)(SIMT_N(Graph_t) graph, const SIMT_N(GraphNode_t)* from,
                                const SIMT_N(GraphNode_t)* to, size_t count) {
    return SIMT_DO(graph_order(graph, (::simt::api::GraphNode* const*)from,
                               (::simt::api::GraphNode* const*)to, count));
}
SIMT_CALL(GraphGetNodes)(SIMT_N(Graph_t) graph, SIMT_N(GraphNode_t)* nodes, size_t* count) {
    return SIMT_DO(graph_nodes(graph, nodes, count));
}
SIMT_CALL(GraphNodeGetType)(SIMT_N(GraphNode_t) node, SIMT_N(GraphNodeType)* type) {
    ::simt::api::Node kind = ::simt::api::Node::empty;
    const int error = ::simt::api::node_kind(node, &kind);
    *type = (SIMT_N(GraphNodeType))kind;
    return (SIMT_N(Error_t))error;
}
SIMT_CALL(GraphInstantiate)(SIMT_N(GraphExec_t)* exec, SIMT_N(Graph_t) graph,
                            unsigned long long = 0) {
    return SIMT_DO(graph_instantiate(exec, graph));
}
SIMT_CALL(GraphInstantiate)(SIMT_N(GraphExec_t)* exec, SIMT_N(Graph_t) graph,
                            SIMT_N(GraphNode_t)* bad, char* log, size_t room) {
    if (bad) *bad = nullptr;
    if (log && room) *log = 0;
    return SIMT_DO(graph_instantiate(exec, graph));
}
SIMT_CALL(GraphInstantiateWithFlags)(SIMT_N(GraphExec_t)* exec, SIMT_N(Graph_t) graph,
                                     unsigned long long = 0) {
    return SIMT_DO(graph_instantiate(exec, graph));
}
enum SIMT_N(GraphExecUpdateResult) {
    SIMT_N(GraphExecUpdateSuccess) = 0,
    SIMT_N(GraphExecUpdateError) = 1,
    SIMT_N(GraphExecUpdateErrorTopologyChanged) = 2,
};
struct SIMT_N(GraphExecUpdateResultInfo) {
    SIMT_N(GraphExecUpdateResult) result;
    SIMT_N(GraphNode_t) errorNode, errorFromNode;
};
// To a graph with the same nodes and edges, whose parameters it takes.
SIMT_CALL(GraphExecUpdate)(SIMT_N(GraphExec_t) exec, SIMT_N(Graph_t) graph,
                           SIMT_N(GraphExecUpdateResultInfo)* info) {
    const int error = ::simt::api::exec_update(exec, graph);
    *info = {error ? SIMT_N(GraphExecUpdateErrorTopologyChanged) : SIMT_N(GraphExecUpdateSuccess),
             nullptr, nullptr};
    return (SIMT_N(Error_t))error;
}
SIMT_CALL(GraphExecUpdate)(SIMT_N(GraphExec_t) exec, SIMT_N(Graph_t) graph,
                           SIMT_N(GraphNode_t)* node, SIMT_N(GraphExecUpdateResult)* result) {
    SIMT_N(GraphExecUpdateResultInfo) info;
    const SIMT_N(Error_t) error = SIMT_N(GraphExecUpdate)(exec, graph, &info);
    if (node) *node = nullptr;
    *result = info.result;
    return error;
}
SIMT_CALL(GraphUpload)(SIMT_N(GraphExec_t), SIMT_N(Stream_t)) { return SIMT_DO(success); }
SIMT_CALL(GraphLaunch)(SIMT_N(GraphExec_t) exec, SIMT_N(Stream_t) stream) {
    return SIMT_DO(exec_run(exec, (void*)stream));
}
SIMT_CALL(GraphExecDestroy)(SIMT_N(GraphExec_t) exec) { return SIMT_DO(exec_destroy(exec)); }

// What the stream, and those that wait for its events, are given becomes nodes of a graph.
SIMT_CALL(StreamBeginCapture)(SIMT_N(Stream_t) stream, SIMT_N(StreamCaptureMode)) {
    return SIMT_DO(capture_begin((void*)stream));
}
SIMT_CALL(StreamEndCapture)(SIMT_N(Stream_t) stream, SIMT_N(Graph_t)* graph) {
    return SIMT_DO(capture_end((void*)stream, graph));
}
SIMT_CALL(StreamIsCapturing)(SIMT_N(Stream_t) stream, SIMT_N(StreamCaptureStatus)* status) {
    const bool capturing = ::simt::api::capturing((const void*)stream);
    *status = capturing ? SIMT_N(StreamCaptureStatusActive) : SIMT_N(StreamCaptureStatusNone);
    return capturing ? SIMT_DO(success) : SIMT_DO(stream_synchronize((void*)stream));
}

#undef SIMT_CALL
#undef SIMT_DO
#undef SIMT_NODE_AT
#undef SIMT_ADDED
