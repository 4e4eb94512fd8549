"""The guard's rules as data, with the names that lead to each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["reject", "note"]


@dataclass(frozen=True)
class Rule:
    """``unless`` names the policy under which a rejected source is only noted, or, where that is
    portkern's own library, said nothing of: most kernels of the catalogue use it."""

    id: str
    title: str
    remedy: str
    severity: Severity = "reject"
    unless: Literal["", "torch_ops", "precision", "library"] = ""

    @property
    def cheat(self) -> bool:
        """Whether who breaks it has something else do the work, or reaches out of the kernel for
        the machine or the evaluator. The contract may be broken in good faith."""
        return self.id[1] in "123"


#: What tells a kernel of Triton how one of its values is held: by the compiler or an interpreter.
REFLECTION = frozenset(
    f"builtins.{name}" for name in ("hasattr", "getattr", "vars", "dir", "id", "repr", "hash")
)
INSIDES = frozenset(
    ("handle", "impl", "builder", "_builder", "data", "__class__", "__dict__", "__slots__")
)
#: These ask who does the work; the others hold for every line of the source.
ABOUT_THE_WORK = ("G301", "G302", "G504", "G507")
#: 1: the machine. 2: the evaluator. 3: who does the work. 4: the contract. 5: worth a reader's
#: look.
RULES: Mapping[str, Rule] = {rule.id: rule for rule in (
    Rule("G101", "uses the network", "A kernel needs no connection; remove it"),
    Rule("G102", "starts a process", "Compute in this process, or in threads joined before return"),
    Rule("G103", "reaches into a process's memory", "Use the buffers that are passed in"),
    Rule("G104", "changes a file outside of the temporary folder", "Use tempfile, or no file"),
    Rule("G105", "changes the environment", "Pass what you set there as an argument"),
    Rule("G106", "ends the process or hooks its end", "Return; raise an error to report failure"),
    Rule("G107", "starts threads", "Join them before returning", "note"),
    Rule("G108", "uses a file", "Keep constants in the source", "note"),
    Rule("G109", "may end the process", "Return an error code or raise", "note"),
    Rule("G201", "walks frames of its callers", "Use the arguments of the call"),
    Rule("G202", "looks for objects that are not its own", "Use the arguments of the call"),
    Rule("G203", "replaces part of another module", "Wrap it under a name of your own"),
    Rule("G204", "reaches for the evaluator's own code", "Use the arguments of the call"),
    Rule("G205", "defines a function of the runtime", "Give the function another name"),
    Rule("G206", "asks whether it is emulated", "Do the same work wherever the kernel runs"),
    Rule("G301", "lets a framework's operator do the work",
         "Compute it in a kernel; torch_ops=allow accepts it", unless="torch_ops"),
    Rule("G302", "lets a vendor's library do the work",
         "Compute it in a kernel; torch_ops=allow accepts it", unless="torch_ops"),
    Rule("G303", "asks for an interpreter", "The evaluator chooses the venue; pass `interpret` on"),
    Rule("G304", "has no kernel in its language",
         "Write one; torch_ops=allow accepts the file", unless="torch_ops"),
    Rule("G401", "relaxes floating point", "Remove it; the op's precision is strict",
         unless="precision"),
    Rule("G402", "runs code when it is loaded", "Do the work in the entry point"),
    Rule("G403", "reads a file of the machine at compile time", "Put the data into the source"),
    Rule("G404", "has inline assembly", "Say in a comment what it does", "note"),
    Rule("G405", "calls the operating system directly", "Use the language's own functions"),
    Rule("G406", "is nested too deeply to be read", "Split the expression"),
    Rule("G407", "has machine code that nobody can read", "Write functions, or instructions"),
    Rule("G408", "takes what portkern's own headers do, or includes what a macro names",
         "Write it out; library=allow accepts it", unless="library"),
    Rule("G501", "makes code or names at run time", "Write the variants out", "note"),
    Rule("G502", "reads a clock", "The evaluator measures", "note"),
    Rule("G503", "keeps state between calls", "It must not depend on the data", "note"),
    Rule("G504", "looks at the data on the host", "Shortcuts must hold for all inputs", "note"),
    Rule("G505", "loads a library at run time", "Write the computation out", "note"),
    Rule("G506", "uses a stream, a graph or a cache setting of its own",
         "Work must be on the given stream", "note"),
    Rule("G507", "uses array operators outside of a kernel", "Move them into the kernel", "note"),
    Rule("G508", "changes a global setting", "Set it on the operation", "note"),
    Rule("G509", "reads the environment", "Do not let it change the result", "note"),
)}  # fmt: skip


def _table(text: str) -> dict[str, str]:
    """``G101 socket ssl`` on each line: each name with its rule."""
    return {
        name: rule for line in text.strip().splitlines() for rule, *names in [line.split()]
        for name in names
    }  # fmt: skip


#: Dotted names of Python; one stands for all below it, and the longest that fits decides.
PYTHON = _table("""
G101 socket ssl socketserver http urllib urllib3 requests httpx aiohttp ftplib smtplib poplib
G101 imaplib telnetlib xmlrpc paramiko websocket websockets zmq asyncio.open_connection
G101 asyncio.start_server torch.hub torch.distributed
G102 subprocess pty os.system os.popen os.fork os.forkpty os.posix_spawn os.posix_spawnp os.execl
G102 os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl os.spawnle
G102 os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.startfile
G102 multiprocessing.Process multiprocessing.Pool multiprocessing.Manager multiprocessing.Queue
G102 multiprocessing.Pipe multiprocessing.get_context multiprocessing.shared_memory
G102 multiprocessing.managers multiprocessing.connection multiprocessing.pool.Pool
G102 concurrent.futures.ProcessPoolExecutor torch.multiprocessing asyncio.create_subprocess_exec
G102 asyncio.create_subprocess_shell posix.system posix.fork _posixsubprocess pdb
G103 psutil.Process psutil.process_iter psutil.pids ctypes.pythonapi os.pidfd_open
G105 os.putenv os.unsetenv os.environ.update os.environ.setdefault os.environ.pop
G105 os.environ.clear os.environ.popitem os.environb
G106 os._exit os.abort os.kill os.killpg os.setsid posix._exit atexit signal faulthandler
G107 threading _thread concurrent.futures.ThreadPoolExecutor multiprocessing.pool.ThreadPool
G107 multiprocessing.dummy asyncio.to_thread
G509 os.environ os.getenv
G109 sys.exit builtins.exit builtins.quit builtins.SystemExit
G201 sys._getframe sys._current_frames inspect.stack inspect.currentframe inspect.trace
G201 inspect.getouterframes inspect.getinnerframes inspect.getargvalues
G201 traceback.walk_stack traceback.extract_stack
G202 gc.get_objects gc.get_referrers gc.get_referents gc.callbacks _ctypes.PyObj_FromPtr
G203 sys.settrace sys.setprofile sys.addaudithook sys.monitoring
G203 threading.settrace threading.setprofile unittest.mock torch.overrides.TorchFunctionMode
G203 torch.utils._python_dispatch importlib.reload torch.library.impl
G204 portkern __main__
G206 triton.knobs.runtime.interpret
G303 triton.runtime.interpreter
G501 builtins.exec builtins.eval builtins.compile pickle.loads marshal.loads types.CodeType
G501 types.FunctionType sys.modules.values sys.modules.items
G502 time timeit datetime.datetime.now torch.cuda.Event triton.testing
G503 functools.lru_cache functools.cache
G504 torch.equal torch.allclose numpy.array_equal numpy.allclose
G505 ctypes.CDLL ctypes.PyDLL ctypes.cdll ctypes.pydll ctypes.util.find_library cffi
G302 numba.extending.get_cython_function_address numba.types.ExternalFunction
G302 numba.types.ExternalFunctionPointer numba.core.types.ExternalFunction
G302 numba.core.types.ExternalFunctionPointer llvmlite.binding
G505 torch.utils.cpp_extension torch.utils.dlpack ctypes.memmove ctypes.memset
G506 torch.cuda.Stream torch.cuda.stream torch.cuda.set_stream torch.cuda.CUDAGraph
G506 torch.cuda.graph torch.cuda.graphs torch.cuda.make_graphed_callables pyopencl.CommandQueue
G508 torch.backends torch.set_float32_matmul_precision torch.set_default_dtype jax.config
G508 torch.use_deterministic_algorithms torch.set_num_threads torch.set_flush_denormal
""")

#: The folder of portkern's own headers.
OWN_HEADERS = "portkern"
#: Objects that hold settings: to change one is seen by the measurement, and wrong only where it
#: asks for an interpreter.
SETTINGS = (
    "torch.backends", "torch._inductor.config", "torch._dynamo.config", "jax.config",
    "numba.config", "triton.knobs",
)  # fmt: skip

#: Modules that others import, so that they are reached through those too: ``pathlib.os``.
REEXPORTED = frozenset("builtins ctypes gc importlib inspect os socket subprocess sys".split())
#: What the import system takes a module's package from; relative imports start there.
PACKAGE_NAMES = frozenset({"__package__", "__spec__"})
#: A module's own names, to be read and set by text …
NAMESPACES = frozenset("builtins.globals builtins.locals builtins.vars sys.modules".split())
#: … and these besides look up modules, or names in them, by text. One stands for all below it.
LOOKUPS = NAMESPACES | frozenset(
    "_frozen_importlib _frozen_importlib_external _imp _interpreters _pickle _xxsubinterpreters "
    "annotationlib builtins.__import__ builtins.__loader__ builtins.__spec__ builtins.compile "
    "builtins.eval builtins.exec cProfile cloudpickle code codeop concurrent.interpreters dill "
    "doctest hydra imp importlib inspect.get_annotations inspect.getmodule inspect.signature "
    "logging.config marshal operator.attrgetter pickle pkg_resources pkgutil profile pydoc runpy "
    "sys.meta_path sys.path_hooks sys.path_importer_cache timeit trace types.FunctionType "
    "types.ModuleType typing.ForwardRef typing.get_type_hints zipimport".split()
)
LOOKUP_ATTRIBUTES = frozenset(
    "__getattribute__ __import__ __loader__ __spec__ import_module load_module modules".split()
)
#: A text that names portkern's modules or their files, the evaluator's, or a module's package.
EVALUATOR_TEXT = re.compile(
    r"(?:.*/)?portkern(?:[./:]\S*)?|.*\b(?:import|from)\s+portkern\b.*"
    r"|.*[(\[]\s*['\"]portkern\b.*|__main__|__package__|__spec__",
    re.DOTALL,
)

#: Attributes of frames, tracebacks and functions, on whatever object.
FRAME_ATTRIBUTES = frozenset(
    "f_back f_globals f_locals f_builtins tb_frame gi_frame cr_frame __globals__".split()
)
OBJECT_ATTRIBUTES = frozenset({"__subclasses__", "__builtins__"})

#: Calls that change the file named by their first argument; below, methods of ``pathlib.Path``.
FILE_WRITERS = frozenset(
    "os.remove os.unlink os.rmdir os.rename os.replace os.mkdir os.makedirs os.symlink os.link "
    "os.truncate os.chmod os.mkfifo shutil.rmtree shutil.move shutil.copy shutil.copyfile "
    "shutil.copytree numpy.save numpy.savez numpy.savetxt torch.save".split()
)
FILE_READERS = frozenset(
    "os.readlink os.listdir os.scandir os.stat numpy.load numpy.fromfile torch.load "
    "pathlib.Path".split()
)
FILE_OPENERS = frozenset("builtins.open io.open codecs.open os.open os.fdopen numpy.memmap".split())
PATH_WRITERS = frozenset("write_text write_bytes unlink rmdir mkdir rename touch".split())
#: Files that describe the machine and not a process are fine to read.
PROCESS_FILE = re.compile(
    r"/proc/(?!cpuinfo|meminfo|stat$|loadavg|version|sys/|self/status$|self/stat$)"
)
TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/", "/dev/null")

#: Names of torch that make, describe or view tensors, and what is not an operator.
TORCH_GLUE = frozenset(
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor "
    "as_tensor from_numpy from_blob from_dlpack as_strided arange reshape view_as_real "
    "view_as_complex transpose permute "
    "movedim squeeze unsqueeze flatten unflatten broadcast_to broadcast_tensors broadcast_shapes "
    "atleast_1d atleast_2d cat concat stack split chunk unbind narrow clone t swapaxes "
    "Tensor Size Generator device dtype layout memory_format Module nn.Module nn.Parameter "
    "nn.functional.pad is_tensor is_floating_point is_complex finfo iinfo numel typename "
    "get_default_dtype result_type promote_types can_cast cuda cpu xpu mps hip accelerator version "
    "library autograd utils compiler _dynamo no_grad inference_mode enable_grad "
    "is_grad_enabled set_grad_enabled profiler get_device_module contiguous_format channels_last "
    "preserve_format strided float16 float32 float64 float half double bfloat16 int8 int16 int32 "
    "int64 int long short uint8 uint16 uint32 uint64 bool complex64 complex128 float8_e4m3fn "
    "float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz inf nan pi e "
    "__version__ SymInt get_num_threads _C._cuda_getCurrentRawStream types".split()
)
#: What holds parameters in a class of torch.nn, and what else its constructor may do.
LAYER = re.compile(r"torch\.nn\.(modules\.(\w+\.)?)?(?!Parameter|Module\b)[A-Z]\w*")
OF_MODULES = re.compile(
    rf"{LAYER.pattern}|torch\.nn\.(init|modules|parameter)(\.\w+)*|torch\.nn\.Parameter\w*"
    r"|torch\.(randn|rand|randint|normal|eye|linspace|manual_seed|randn_like|rand_like)"
    r"|torch\.nn\.Module(\.\w+)*"
)
#: Settings of the compilers that build an extension.
BUILD_VARIABLES = frozenset("CC CXX MAX_JOBS PYTORCH_ROCM_ARCH TORCH_CUDA_ARCH_LIST".split())
#: A compiler's flag for it: nvcc's, and those of FAST_MATH.
FAST_FLAG = re.compile(
    r"--?(use_fast_math|f?fast-math|ffast-math|Ofast|ftz=true|prec-(div|sqrt)=false)$"
    r"|-f?(unsafe-math|finite-math-only|associative-math|reciprocal-math)"
)
#: Modules of torch that are not operators themselves; what is in them may be.
TORCH_MODULES = frozenset("nn nn.functional ops ops.aten _C linalg fft special sparse".split())
#: Operators that are the work, as functions (``jnp.dot``, ``operator.matmul``) or as methods …
HEAVY = frozenset(
    "matmul mm bmm mv dot vdot inner tensordot einsum addmm baddbmm dot_general "
    "dot_product_attention conv conv_general_dilated convolve correlate softmax log_softmax "
    "logsumexp relu gelu silu "
    "sigmoid layer_norm rms_norm group_norm standardize cumsum cumprod cumulative_sum sort argsort "
    "top_k topk scaled_dot_product_attention".split()
)
HEAVY_METHODS = HEAVY - {"sort", "inner", "convolve"}  # lists sort, and other things have an inner
#: … of which Numba hands these to a BLAS even in a compiled function.
BLAS_IN_NUMBA = frozenset("matmul dot vdot".split())
#: Operators that may be glue between kernels or may be the work.
LIGHT = frozenset(
    "sum mean var std prod amax amin max min norm exp exp2 expm1 log1p sqrt rsqrt tanh erf maximum "
    "minimum add subtract multiply divide true_divide power square where clip clamp".split()
)
LIGHT_METHODS = frozenset(
    "sum mean var std prod amax amin max min norm exp exp_ rsqrt sqrt tanh sigmoid square clamp "
    "clamp_ clip relu_ add_ sub_ mul_ div_ pow_ masked_fill index_select scatter_ gather".split()
)
LOOKS_AT_DATA = frozenset("item tolist any all".split())
#: The same as the dispatcher calls them, without namespace and outer underscores: what makes,
#: moves, views or asks for tensors …
ATEN_GLUE = TORCH_GLUE | frozenset(
    "to to_copy copy contiguous detach alias view view_as expand expand_as select slice "
    "unsafe_view reshape_alias t numpy_T lift_fresh lift resolve_conj resolve_neg conj real imag "
    "fill zero set resize resize_as item local_scalar_dense is_nonzero new_empty new_zeros "
    "new_ones new_full new_empty_strided scalar_tensor diagonal unfold split_with_sizes "
    "tensor_split hsplit vsplit repeat tile flip roll index index_put pin_memory is_pinned "
    "record_stream data stride size sym_size sym_stride sym_numel storage_offset type_as "
    "is_same_size empty_quantized constant_pad_nd pad has_compatible_shallow_copy_type".split()
)
#: … and those that are the work.
ATEN_HEAVY = re.compile(
    "|".join(sorted(HEAVY))
    + r"|linear|hardtanh|leaky_relu|elu|batch_norm|cdist|fused_\w+|conv\w*|scaled_\w+|linalg_\w+"
    r"|fft_\w+|native_\w*norm|cummax|cummin|cumsum\w*|\w+_backward|Torch-Compiled.*"
)
#: What builds an extension, and returns it.
EXTENSION_LOADERS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
#: What makes a function a kernel: as decorator, or called with the function.
KERNEL_MAKERS = {
    "triton": ("triton.jit", "triton.experimental.gluon.jit"),
    **dict.fromkeys(
        ("pallas", "pallas-tpu", "pallas-mosaic-gpu"),
        (
            "jax.experimental.pallas.pallas_call",
            "jax.experimental.pallas.kernel",
            "jax.experimental.pallas.mosaic_gpu.kernel",
        ),
    ),
    "numba": (
        "numba.njit", "numba.jit", "numba.vectorize", "numba.guvectorize", "numba.stencil",
        "numba.cuda.jit", "numba.cfunc", "numba.generated_jit",
    ),
    **dict.fromkeys(("torch-cuda", "torch-hip", "torch-c++"), EXTENSION_LOADERS),
}  # fmt: skip

#: Functions of C and C++, wherever they are named …
NATIVE = _table("""
G101 getaddrinfo gethostbyname socketpair recvfrom sendto curl_easy_init curl_easy_perform
G102 fork vfork popen execv execve execvp execl execlp execle execvpe posix_spawn posix_spawnp
G103 ptrace process_vm_readv process_vm_writev mprotect pkey_mprotect mincore mremap userfaultfd
G103 dl_iterate_phdr memfd_create pidfd_open
G204 PyImport_AddModule PyImport_AddModuleObject PyImport_AddModuleRef PyImport_GetModule
G204 PyImport_GetModuleDict PyImport_Import PyImport_ImportModule PyImport_ImportModuleLevel
G204 PyImport_ImportModuleLevelObject PyImport_ImportModuleNoBlock PyRun_File PyRun_SimpleFile
G204 PyRun_SimpleString PyRun_SimpleStringFlags PyRun_String PyRun_StringFlags
G206 dladdr dladdr1 dlinfo backtrace backtrace_symbols __SANITIZE_THREAD__ __SANITIZE_ADDRESS__
G105 setenv putenv unsetenv clearenv
G106 _exit _Exit quick_exit atexit on_exit at_quick_exit sigaction setsid set_terminate
G106 sigset sigvec sigaltstack bsd_signal sysv_signal __sysv_signal ssignal
G107 pthread_create thrd_create timer_create aio_read aio_write lio_listio mq_notify
G405 syscall prctl seccomp
G502 clock_gettime gettimeofday clock64 wall_clock64 __rdtsc
G505 dlopen dlsym dlmopen
G506 cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cudaGraphLaunch
G506 hipStreamCreate hipStreamCreateWithFlags hipStreamCreateWithPriority hipGraphLaunch
G506 cudaLimitPersistingL2CacheSize cudaStreamSetAttribute cudaStreamBeginCapture
""")
#: … and those whose names are common words: only as a plain call.
NATIVE_CALLS = _table("""
G101 socket connect bind listen accept send recv
G102 system clone
G106 signal kill raise
G107 async
G108 fopen freopen open openat creat unlink remove rename mkdir
G509 getenv
G109 exit abort
""")
NATIVE_TYPES = _table("""
G107 std::thread std::jthread std::async
G108 std::ofstream std::ifstream std::fstream std::filesystem
G502 std::chrono
""")
NATIVE_FILES = frozenset("fopen freopen open openat creat unlink remove rename mkdir".split())
#: Headers by what their names begin with.
HEADERS = {
    "G101": re.compile(r"(sys/socket|netdb|netinet/|arpa/inet|curl/|sys/un)"),
    "G103": re.compile(r"sys/(ptrace|uio)|linux/ptrace"),
}
#: Names of BLAS and LAPACK as Fortran has them.
_BLAS = (
    r"(?P<fortran>(?i:[sdcz](gemm\w*|gemv|gbmv|ger[cu]?|(sy|he)(mm|mv|rk|r2k)|tr(mm|mv|sm|sv|tri)"
    r"|dot[cu]?|axpb?y|scal|nrm2|asum|omatcopy|imatcopy|(or|un)(g|m)(qr|lq)"
    r"|(ge|po|sy|he|gt)(trf|trs|tri|sv|svd|sdd|ev|evd|qrf|ls))_*))"
)
#: Vendors' libraries: what their headers begin with, and the names that use one, but for its types
#: and constants. To include a header is not to use it.
LIBRARIES = tuple((re.compile(headers), re.compile(names)) for headers, names in (
    (r"cublas|cudnn|cufft|cusparse|cusolver|cutensor|hipblas|hipfft|hipsparse|miopen/|MIOpen|"
     r"rocblas|rocfft",
     r"(cublas|cudnn|cufft|cusparse|cusolver|cutensor|hipblas|hipfft|hipsparse|miopen)(?!\w*_t$|"
     r"(Handle|Real|Complex|Double\w+|Result|Type)$)\w+|"
     r"roc(blas|fft)_(?!(handle|status|plan|operation|int|half|bfloat16|datatype)(_\w+)?$)\w+"),
    (r"mkl|cblas|lapack|openblas|armpl|nvpl",
     rf"(cblas|LAPACKE|mkl|openblas|armpl|nvpl|Dfti|vsl)\w+(?<!_t)|vm?[sdcz][A-Z]\w+|{_BLAS}"
     r"|pardiso\w*|MKL_(?!Complex)[SDCZ][a-z]\w+|LAPACK_[sdcz][a-z]\w+"),
    (r"oneapi/|dnnl|onednn", r"oneapi|dnnl(_\w+(?<!_t))?"),
    (r"Eigen/", r"Eigen"),
    (r"tensorflow/", r"tensorflow|TF_\w+"),
    (r"arm_compute/", r"arm_compute"),
))  # fmt: skip
VENDOR_CALL = re.compile(
    r"(cublas(Lt|Xt)?|cudnn|cufft|cusparse|cusolver\w\w|cutensor|hipblas(Lt)?|hipfft|miopen|"
    r"hipsparse)[A-Z]\w*|(rocblas|cblas|LAPACKE|dnnl|mkl|rocfft)_\w+|[sdcz](gemm|gemv|symm|dot|axpy)_"
)
#: Kernels on a GPU that are not a candidate's own, whatever words its source has.
VENDOR_KERNEL = re.compile(
    r"\bat::|\bc10::|cublas|cudnn|cutlass_\d|nvjet|xmma|(ampere|volta|turing|maxwell|hopper)_\w*gemm"
    r"|Cijk_|rocblas|hipblas|miopen|MIOpen|triton_(poi|red|per|tem)_fused"
)
VENDOR_NAMESPACES = ("dnnl", "Eigen", "oneapi")
TORCH_NAMESPACES = ("at", "torch")
VENDOR_LIBRARY = re.compile(
    r"(cublas|cudnn|cufft|cusparse|cutensor|rocblas|hipblas|MIOpen|miopen|mkl|openblas|cblas|"
    r"lapack|dnnl|blis|armpl|nvpl|libtorch|libblas)|^(lib)?blas\b"
)
VENDOR_MODULES = frozenset(
    "cupy nvmath cublas mkl scipy tensorflow cudnn onnxruntime tinygrad mxnet flash_attn xformers "
    "flag_gems liger_kernel".split()
)
#: The SIMT executor's macros, its namespace and what its runtime exports: no other compiler has
#: them. A macro that the source defines for itself, and never tests, is its own.
EXECUTOR_MACRO = re.compile(r"(C10_)?SIMT_[A-Z]\w*|PORTKERN_SIMT\w*")
EXECUTOR_NAMESPACE = "simt"
EXECUTOR_FUNCTION = re.compile(
    r"simt_(configure|findings|forget|forgive|reset|allocate|release|mark_written|take_\w+|read"
    r"|read_back|write|device_wrote|copied_from_host|begin_account|torch_\w+|ring_\w+)"
)
#: The same in a text, which may be looked up; and what asks for a kernel's venue in Python.
EXECUTOR_TEXT = re.compile(rf"\b_?({EXECUTOR_FUNCTION.pattern})\b|libportkern|PORTKERN_|_ZN4simt")
INTERPRETER_TEXT = re.compile(r"TRITON_INTERPRET|triton\.runtime\.interpreter")
#: Defined for device code alone; the executor compiles both at once.
DEVICE_PASS = re.compile(r"\b__(CUDA_ARCH|HIP_DEVICE_COMPILE|AMDGCN)__\b")

#: Defined by the source, these would stand in for the runtime's.
RUNTIME_FUNCTION = re.compile(
    r"(cuda|hip)(Event|Device|Stream|Launch|Memcpy|Malloc|Graph)[A-Z]\w*|clock_gettime|gettimeofday|"
    r"(posix_)?memalign|malloc|free|calloc|dlopen|dlsym|write|read|omp_get_wtime|__cxa_\w+"
)
FAST_MATH = re.compile(
    r"fast-math|\bOfast\b|unsafe-math|finite-math-only|associative-math|reciprocal-math|"
    r"fp\s+(reassociate|reciprocal)\s*\(\s*on|float_control\s*\(\s*precise\s*,\s*off|"
    r"cl-(fast-relaxed|unsafe|finite)-math"
)
AT_LOAD = re.compile(
    r"\b_*(constructor|destructor|ifunc)_*\b|\"\.(init_array|fini_array|preinit_array|ctors|dtors|init)"
)
#: The same in assembly, whose sections have no quotation marks.
ASM_AT_LOAD = re.compile(
    r"\.(init_array|fini_array|preinit_array|ctors|dtors)\b|section\W+\.(init|fini)\b"
)
#: Bytes among instructions; a section that a variable is put into, which may be one of code.
ASM_BYTES = re.compile(
    r"(?:^|[\s;:\"])\.(byte|[248]byte|short|hword|value|word|int|long|quad|octa|ascii|asciz|string|inst"
    r"|insn|fill|space|zero)\b"
)
SECTION = re.compile(r"\b_*section_*\b")
#: What memory may be mapped for.
PLAIN_MAPPING = re.compile(r"PROT_(READ|WRITE|NONE)(\|PROT_(READ|WRITE|NONE))*")
ASM_READS = re.compile(r"\.incbin|\.include\b")
ASM_CALLS = re.compile(r"\bsyscall\b|\bsysenter\b|\bint\s+\$?0x80|\bsvc\b")
