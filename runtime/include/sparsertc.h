/* sparsertc: runs compiled sparse layers, and sparse LU, on an NVIDIA GPU. Plain C (C99), usable
 * from C++.
 *
 * `sparsertc compile weights.npy -o layer.srtc` makes a bundle; this library loads it and runs it.
 * It needs the NVIDIA driver for executing and nothing else: no CUDA toolkit, no compiler. The
 * driver is opened when the first context asks for a GPU (SPARSERTC_LIBCUDA names its library where
 * libcuda.so.1 is not found).
 *
 *   sparsertc_context_create        once for each device
 *   sparsertc_plan_load             once for each layer: slow (milliseconds; seconds where the
 *                                   driver must assemble PTX)
 *   sparsertc_workspace_initialize  once for each workspace
 *   sparsertc_plan_execute          as often as you like: microseconds, enqueues and returns
 *   sparsertc_plan_status           when you want to wait and know
 *   sparsertc_plan_tune             once for each layer, if seconds may be spent to make it faster
 *   sparsertc_plan_bind_values      when there are new weights for the pattern: nothing is compiled
 *
 * `sparsertc compile --network FILE.json -o net.srtc` puts several layers into one bundle, which
 * sparsertc_network_load and sparsertc_network_execute take: see "networks" below. Sparse systems
 * of equations, solved again and again with other values, are at "sparse LU".
 *
 * Errors. A call returns SPARSERTC_OK or says what kind of thing went wrong;
 * sparsertc_last_error() then has the message of the calling thread. A call that failed has
 * changed nothing and made nothing.
 *
 * Threads. All calls may be made from any thread. Different handles may be used at the same time
 * without any care, and one plan may be executed by several threads at once, each with a workspace
 * of its own. Destroying a handle while another thread uses it is an error that is not noticed.
 *
 * Contexts of CUDA. A sparsertc context stands on the device's primary context, the one that the
 * CUDA runtime API and PyTorch use, too. Every call except sparsertc_plan_execute makes it current
 * on the calling thread where it needs it, and leaves it current. sparsertc_plan_execute does not:
 * a thread that has not yet used the device calls sparsertc_context_make_current once before.
 *
 * Streams. A stream is a CUstream or cudaStream_t of the context's device, passed as a pointer;
 * NULL is the default stream.
 *
 * CUDA graphs. sparsertc_plan_execute may be captured, also as the plan's first execution. The
 * graph holds the addresses and sizes that it was given, and the plan's code: it stays valid until
 * the plan is destroyed or bound to other weights, or one of the operands or the workspace is
 * freed; new contents of the operands are seen by the next replay. Replays of graphs with the same
 * workspace must not overlap.
 *
 * Structs. Every struct starts with its size, which the caller sets before the call: a library that
 * knows a longer or shorter one can tell. In structs that are passed in, what the caller does not
 * use is 0.
 */
#ifndef SPARSERTC_H
#define SPARSERTC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPARSERTC_API __attribute__((visibility("default")))
#else
#define SPARSERTC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A device, or none. */
typedef struct sparsertc_context sparsertc_context;
/* A loaded bundle; executing it leaves it as it is. */
typedef struct sparsertc_plan sparsertc_plan;

typedef enum sparsertc_result {
  SPARSERTC_OK = 0,
  /* An argument is wrong: null, misaligned, out of range, a struct of a size that is not known. */
  SPARSERTC_ERROR_INVALID_ARGUMENT = 1,
  /* The bundle cannot be read, is damaged, or was made by another version. */
  SPARSERTC_ERROR_INVALID_BUNDLE = 2,
  /* A GPU is needed: there is no driver or no device, or the context was made without one. */
  SPARSERTC_ERROR_NO_GPU = 3,
  /* The bundle's code does not run on this device: compute capability, threads, registers, shared
   * memory. The message says which. */
  SPARSERTC_ERROR_UNSUPPORTED_DEVICE = 4,
  /* The driver, the memory or the disk refused. The message names the driver's call and its
   * result. After a kernel's fault every later call on the device fails, too. */
  SPARSERTC_ERROR_MACHINE = 5,
  /* A bug in this library. */
  SPARSERTC_ERROR_INTERNAL = 6,
  /* The plan's code cannot take other weights: compile them. The message says why. */
  SPARSERTC_ERROR_NOT_BINDABLE = 7
} sparsertc_result;

/* The library's version, "0.1.0". Never fails. */
SPARSERTC_API const char* sparsertc_version(void);

/* The name of a result, "SPARSERTC_ERROR_NO_GPU"; "SPARSERTC_ERROR_UNKNOWN" for other numbers. */
SPARSERTC_API const char* sparsertc_result_name(sparsertc_result result);

/* What went wrong in the last call of this thread that failed, and a way out where one is known;
 * "" before the first. Valid until the thread's next failing call. */
SPARSERTC_API const char* sparsertc_last_error(void);

/* ---- context ---- */

/* Opens the device with this number (0 is the first), or none for -1: plans can then be loaded,
 * queried and saved, and not executed. Contexts share nothing but the device's primary context.
 *   SPARSERTC_ERROR_NO_GPU            no driver, or no device
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  no device of this number; `context` is null
 *   SPARSERTC_ERROR_MACHINE           the driver refuses */
SPARSERTC_API sparsertc_result sparsertc_context_create(int32_t device,
                                                        sparsertc_context** context);

/* Makes the device's primary context current on the calling thread.
 *   SPARSERTC_ERROR_NO_GPU  the context was made with -1 */
SPARSERTC_API sparsertc_result sparsertc_context_make_current(const sparsertc_context* context);

/* The context's device: what a compiler must know of it. */
typedef struct sparsertc_context_info {
  size_t struct_size;          /* sizeof(sparsertc_context_info), set by the caller */
  const char* name;            /* "NVIDIA H200", "" without a device; belongs to the context */
  uint32_t compute_capability; /* 90 for 9.0, whose target is sm_90; 0 without a device */
  uint32_t multiprocessors;
} sparsertc_context_info;

/* Fills in `info`, whose struct_size is set. */
SPARSERTC_API sparsertc_result sparsertc_context_query(const sparsertc_context* context,
                                                       sparsertc_context_info* info);

/* Gives the handle back; null is ignored. Plans made on it stay valid. */
SPARSERTC_API void sparsertc_context_destroy(sparsertc_context* context);

/* ---- device memory, for programs that have no allocator of their own ---- */

/* Allocates `bytes` of device memory, aligned to 256 bytes; 0 bytes are a null pointer. */
SPARSERTC_API sparsertc_result sparsertc_memory_allocate(const sparsertc_context* context,
                                                         uint64_t bytes, void** address);
/* Waits until the device does not use it any more, and frees it; null is ignored. */
SPARSERTC_API sparsertc_result sparsertc_memory_free(const sparsertc_context* context,
                                                     void* address);
/* Copies to (from) device memory in the order of the stream, and waits for it. */
SPARSERTC_API sparsertc_result sparsertc_memory_write(const sparsertc_context* context,
                                                      void* device_address, const void* host,
                                                      uint64_t bytes, void* stream);
SPARSERTC_API sparsertc_result sparsertc_memory_read(const sparsertc_context* context, void* host,
                                                     const void* device_address, uint64_t bytes,
                                                     void* stream);

/* ---- plan ---- */

/* Reads the bundle in the file and loads it: checks it against the device, then gives it to the
 * driver. Machine code is taken where it fits the device, else PTX, which the driver assembles.
 *   SPARSERTC_ERROR_INVALID_BUNDLE      no such file, no bundle, damaged
 *   SPARSERTC_ERROR_UNSUPPORTED_DEVICE  the device cannot run it
 *   SPARSERTC_ERROR_MACHINE             the driver refuses */
SPARSERTC_API sparsertc_result sparsertc_plan_load(const sparsertc_context* context,
                                                   const char* path, sparsertc_plan** plan);

/* The same from a bundle's bytes in memory, which may be freed afterwards. */
SPARSERTC_API sparsertc_result sparsertc_plan_create(const sparsertc_context* context,
                                                     const void* bundle, uint64_t bytes,
                                                     sparsertc_plan** plan);

/* Writes the plan's bundle into a file, whole or not at all.
 *   SPARSERTC_ERROR_MACHINE  the file cannot be written; what was there before is untouched */
SPARSERTC_API sparsertc_result sparsertc_plan_save(const sparsertc_plan* plan, const char* path);

/* Unloads the code and gives the handle back; null is ignored. No execution may be under way, and
 * graphs that captured one may not be launched any more. */
SPARSERTC_API void sparsertc_plan_destroy(sparsertc_plan* plan);

typedef enum sparsertc_layout {
  SPARSERTC_ROW_MAJOR = 0,   /* element (i, j) at i * ld + j */
  SPARSERTC_COLUMN_MAJOR = 1 /* element (i, j) at j * ld + i */
} sparsertc_layout;

typedef enum sparsertc_code {
  SPARSERTC_CODE_NONE = 0,  /* not loaded: no GPU, or nothing to compute (m is 0) */
  SPARSERTC_CODE_CUBIN = 1, /* machine code from the bundle */
  SPARSERTC_CODE_PTX = 2    /* assembled by the driver for this device */
} sparsertc_code;

/* What a plan computes, C = activation(A * B + bias + residual), and what it needs. Strings belong
 * to the plan.
 *
 * Of a convolution (`compile --op=conv2d`) B and C are images: n is their number, m the number of
 * output channels, k of input channels times taps. Row-major means NCHW, and ldb and ldc go from
 * one image to the next; column-major means NHWC, and they go from one pixel to the next. Both are
 * fixed when it is compiled. With ldc (ldb) larger than an image (a pixel) needs, C (B) may be a
 * slice of the channels of a larger tensor: c (b) then points to the slice's first element. Sizes
 * and geometry stand in the manifest under `convolution`. */
typedef struct sparsertc_plan_info {
  size_t struct_size; /* sizeof(sparsertc_plan_info), set by the caller */
  /* A is m x k and compiled in, B is k x n, C is m x n. n is -1 where each execution gives it. */
  int64_t m, k, n;
  int64_t nnz;            /* entries of A */
  const char* dtype;      /* elements of B, C, bias and residual: "f32", "f16", "bf16", "f64" */
  uint32_t layout;        /* sparsertc_layout of B, C and residual */
  uint32_t element_size;  /* bytes */
  int64_t ldb, ldc;       /* leading dimensions, elements; -1 where each execution gives them */
  uint32_t has_bias;      /* 1: executions need `bias` */
  uint32_t has_residual;  /* 1: executions need `residual` */
  const char* activation; /* "none", "relu", "gelu", "silu" */

  uint64_t workspace_size;      /* bytes of device memory that each execution under way needs */
  uint64_t workspace_alignment; /* bytes */
  uint64_t operand_alignment;   /* bytes, of b, c and residual; bias: element_size */

  const char* target;         /* what it was compiled for, "sm_90a" */
  const char* strategy;       /* "unrolled", "streamed" */
  const char* pattern_digest; /* SHA-256 of the pattern of A, hexadecimal */
  const char* manifest;       /* all that the bundle says, a JSON object */
  uint32_t code;              /* sparsertc_code */
  /* Of the kernel as loaded; 0 where no code is loaded. */
  uint32_t registers;     /* a thread */
  uint32_t local_size;    /* bytes a thread: spilled registers */
  uint32_t shared_size;   /* bytes a block, static and dynamic */
  uint32_t block_threads; /* threads a block */
  uint32_t reserved;
} sparsertc_plan_info;

/* Fills in `info`, whose struct_size is set. Needs no GPU. */
SPARSERTC_API sparsertc_result sparsertc_plan_query(const sparsertc_plan* plan,
                                                    sparsertc_plan_info* info);

/* ---- new weights for the same pattern ---- */

typedef enum sparsertc_value_type {
  SPARSERTC_VALUE_F32 = 0,
  SPARSERTC_VALUE_F64 = 1,
  /* Pairs of float or double, real and imaginary part: of sparse LU only. */
  SPARSERTC_VALUE_C64 = 2,
  SPARSERTC_VALUE_C128 = 3
} sparsertc_value_type;

/* Weights, in host memory. */
typedef struct sparsertc_values {
  size_t struct_size; /* sizeof(sparsertc_values), set by the caller */
  const void* values; /* one for each entry of A, row by row, in a row by ascending column */
  uint64_t count;     /* how many; must be the plan's nnz */
  /* SPARSERTC_VALUE_F32 or F64: what `values` points to, not the type of the plan. */
  uint32_t type;
  uint32_t reserved; /* 0 */
} sparsertc_values;

/* Replaces the weights without compiling: writes them into the machine code of a bundle that was
 * compiled with --bindable, and loads that. They are rounded to the plan's type as the compiler
 * does it, and the results are those of a compilation with these weights, bit by bit. Without a GPU
 * only the bundle changes, which sparsertc_plan_save then writes; its PTX, in which the old weights
 * stand, is dropped, so that the saved bundle runs only where its machine code runs.
 *
 * The plan may not be executing, and nobody else may use it during the call: wait for the streams
 * first. Every graph that captured an execution of this plan holds the old code and may not be
 * launched any more; capture again. Strings of earlier queries are no longer valid. Workspaces and
 * operands stay as they are.
 *   SPARSERTC_ERROR_NOT_BINDABLE      the bundle was compiled without --bindable, or the assembler
 *                                     left no way to know where the weights stand, or the plan runs
 *                                     from PTX (SPARSERTC_CODE_PTX)
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  a pointer is null, `count` is not the plan's nnz, `type` is
 *                                     not known, a weight is not finite or too large for the type
 *   SPARSERTC_ERROR_INVALID_BUNDLE    the bundle's table of places is damaged
 *   SPARSERTC_ERROR_MACHINE           the driver refuses; the plan keeps its old weights */
SPARSERTC_API sparsertc_result sparsertc_plan_bind_values(sparsertc_plan* plan,
                                                          const sparsertc_values* values);

/* ---- execution ---- */

/* Enqueues what a workspace must hold before its first execution. `workspace` is device memory of
 * the size and alignment that the query says. To be done once; a workspace may then serve one
 * execution after the other, also of other plans of no greater needs. */
SPARSERTC_API sparsertc_result sparsertc_workspace_initialize(const sparsertc_plan* plan,
                                                              void* workspace, void* stream);

/* Pointers are device memory. */
typedef struct sparsertc_arguments {
  size_t struct_size;   /* sizeof(sparsertc_arguments), set by the caller */
  const void* b;        /* k x n, or n images; may be null where k is 0 */
  void* c;              /* m x n, or n images, overwritten; may not overlap b or bias */
  const void* bias;     /* m elements; ignored where the plan has none */
  const void* residual; /* m x n, laid out as c, and may be c itself; ignored where there is none */
  int64_t n;            /* columns of B and C, or images; where the plan has a fixed n, that one */
  /* Elements from one row to the next (row-major) or from one column to the next (column-major).
   * 0: the plan's, or, where the plan leaves them open, n. At least n; a row at most 2 GiB. */
  int64_t ldb, ldc;
} sparsertc_arguments;

/* Enqueues one execution on the stream and returns: one cuLaunchKernel, no other call of the
 * driver. Allocates, loads, locks and waits for nothing, and leaves the plan as it is. n = 0 is a
 * success that enqueues nothing. The operands must stay until the stream has passed the execution.
 * The same operands give the same bits.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  a pointer that is needed is null or misaligned; n, ldb or ldc
 *                                     is out of range, or not what the plan was compiled for
 *   SPARSERTC_ERROR_NO_GPU            the context was made without a device
 *   SPARSERTC_ERROR_MACHINE           the driver refuses the launch. Faults of the kernel itself
 *                                     are reported where somebody waits: sparsertc_plan_status */
SPARSERTC_API sparsertc_result sparsertc_plan_execute(const sparsertc_plan* plan,
                                                      const sparsertc_arguments* arguments,
                                                      void* workspace, void* stream);

typedef enum sparsertc_outcome {
  SPARSERTC_OUTCOME_OK = 0, /* the result is what was asked for; the only one of matrix products */
  /* Of factorizations, sparsertc_lu_status: */
  SPARSERTC_OUTCOME_SINGULAR = 1,   /* a column of zeros */
  SPARSERTC_OUTCOME_NOT_FINITE = 2, /* NaN or infinite values came in, or numbers overflowed */
  SPARSERTC_OUTCOME_STALE = 3       /* done, but the pivots do not fit the values any more */
} sparsertc_outcome;

/* What the last execution with a workspace had to say. */
typedef struct sparsertc_execution_status {
  size_t struct_size; /* sizeof(sparsertc_execution_status), set by the caller */
  uint32_t outcome;   /* sparsertc_outcome */
  uint32_t reserved;
  int64_t index; /* where it arose, -1: nowhere */
} sparsertc_execution_status;

/* Waits for the stream, then reads the status record in the workspace. May not be captured.
 *   SPARSERTC_ERROR_MACHINE           a kernel on the stream failed
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  the workspace was never initialised */
SPARSERTC_API sparsertc_result sparsertc_plan_status(const sparsertc_plan* plan,
                                                     const void* workspace, void* stream,
                                                     sparsertc_execution_status* status);

/* ---- networks ----
 *
 * A network is a bundle of several layers, each of which reads the network's input or the output of
 * an earlier layer. The last one writes the network's output; what the others write lies in the
 * workspace, where later layers take the places of what is not needed any more:
 *
 *   status record        one for all layers, at the beginning
 *   biases               from byte 256 on; put there by sparsertc_network_initialize
 *   outputs of layers    of all but the last; each from a multiple of 256 bytes on
 *
 * So an engine allocates once: workspace_size bytes. Workspaces, threads, streams and CUDA graphs
 * are as with plans; a graph that captured sparsertc_network_execute replays the whole network.
 */

/* A loaded bundle of several layers; executing it leaves it as it is. */
typedef struct sparsertc_network sparsertc_network;

/* In place of a layer's number. */
#define SPARSERTC_NETWORK_INPUT UINT32_MAX           /* what the caller gives to the network */
#define SPARSERTC_NOTHING (UINT32_MAX - UINT32_C(1)) /* there is none */

/* Reads the bundle in the file (or in memory: `bundle` may be freed afterwards) and loads all its
 * layers, as sparsertc_plan_load does one.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT    a pointer is null
 *   SPARSERTC_ERROR_INVALID_BUNDLE      cannot be read, is damaged, holds a single layer, or its
 *                                       layers do not fit together
 *   SPARSERTC_ERROR_UNSUPPORTED_DEVICE  a layer's code does not run on the context's device
 *   SPARSERTC_ERROR_MACHINE             the driver refuses a layer's code */
SPARSERTC_API sparsertc_result sparsertc_network_load(const sparsertc_context* context,
                                                      const char* path,
                                                      sparsertc_network** network);
SPARSERTC_API sparsertc_result sparsertc_network_create(const sparsertc_context* context,
                                                        const void* bundle, uint64_t bytes,
                                                        sparsertc_network** network);

/* Gives the handle back; null is ignored. Nothing of the network may be executing; plans that
 * sparsertc_network_plan has given stay valid. */
SPARSERTC_API void sparsertc_network_destroy(sparsertc_network* network);

/* What a network is and what an execution needs. Strings belong to the network. */
typedef struct sparsertc_network_info {
  size_t struct_size; /* sizeof(sparsertc_network_info), set by the caller */
  const char* name;
  uint32_t layer_count; /* at least 1 */
  uint32_t reserved;
  int64_t n;            /* columns, or images, of the first layer's B; -1 where each execution gives
                         * them */
  uint64_t input_size;  /* bytes of the network's input: B of the layers that read it */
  uint64_t output_size; /* bytes of its output: C of the last layer */
  uint64_t workspace_size;      /* bytes of device memory that each execution under way needs */
  uint64_t workspace_alignment; /* bytes: 256 */
  uint64_t operand_alignment;   /* bytes, of input and output */
  uint64_t constant_size;       /* of the workspace: status record and biases, for every n */
  const char* manifest;         /* all that the bundle says of the network, a JSON object */
} sparsertc_network_info;

/* Fills in `info`, whose struct_size is set. `n`: columns or images, where each execution gives
 * them; else 0, or the network's n. Needs no GPU.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, or an n that the network cannot take */
SPARSERTC_API sparsertc_result sparsertc_network_query(const sparsertc_network* network, int64_t n,
                                                       sparsertc_network_info* info);

/* One layer of a network. Layers are numbered from 0 in the order of their execution. */
typedef struct sparsertc_layer_info {
  size_t struct_size;     /* sizeof(sparsertc_layer_info), set by the caller */
  const char* name;       /* belongs to the network */
  uint32_t input;         /* the layer whose output is its B, or SPARSERTC_NETWORK_INPUT */
  uint32_t residual;      /* the same of what it adds, or SPARSERTC_NOTHING */
  uint64_t bias_offset;   /* where its bias lies in the workspace, bytes; 0 where it has none */
  uint64_t output_offset; /* where its output lies in the workspace, bytes; 0 for the last layer,
                           * whose output is the network's */
  uint64_t output_size;   /* bytes */
} sparsertc_layer_info;

/* Fills in `info` about the layer with this number; `n` as for sparsertc_network_query.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, no such layer, or an n that the network cannot take */
SPARSERTC_API sparsertc_result sparsertc_network_layer(const sparsertc_network* network,
                                                       uint32_t layer, int64_t n,
                                                       sparsertc_layer_info* info);

/* The number of the layer of this name.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, or there is none */
SPARSERTC_API sparsertc_result sparsertc_network_find(const sparsertc_network* network,
                                                      const char* name, uint32_t* layer);

/* A layer's plan, to be queried, executed by itself, saved as a bundle of its own, or bound to
 * other weights, which the network then has, too. The handle is the caller's, who destroys it; the
 * plan itself is shared with the network, and outlives it.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, or no such layer */
SPARSERTC_API sparsertc_result sparsertc_network_plan(const sparsertc_network* network,
                                                      uint32_t layer, sparsertc_plan** plan);

/* Enqueues what a workspace must hold before its first execution: status record and biases. To be
 * done once; the network must stay until the stream has passed it. The outputs of layers need no
 * initialisation. */
SPARSERTC_API sparsertc_result sparsertc_network_initialize(const sparsertc_network* network,
                                                            void* workspace, void* stream);

/* Pointers are device memory. Rows (images, pixels) lie one behind the other, without gaps. */
typedef struct sparsertc_network_arguments {
  size_t struct_size; /* sizeof(sparsertc_network_arguments), set by the caller */
  const void* input;  /* B of the layers that read the network's input; stays as it is */
  void* output;       /* C of the last layer, overwritten; may not overlap input or workspace */
  int64_t n;          /* as for sparsertc_network_query */
} sparsertc_network_arguments;

/* Enqueues one execution of all layers on the stream and returns: one cuLaunchKernel for each
 * layer, no other call of the driver. As sparsertc_plan_execute in everything else. Where a launch
 * is refused, the layers before it have been enqueued.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  a pointer that is needed is null or misaligned; an n that the
 *                                     network cannot take
 *   SPARSERTC_ERROR_NO_GPU            the context was made without a device
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result sparsertc_network_execute(
    const sparsertc_network* network, const sparsertc_network_arguments* arguments, void* workspace,
    void* stream);

/* Waits for the stream, then reads the status record in the workspace, as sparsertc_plan_status
 * does. */
SPARSERTC_API sparsertc_result sparsertc_network_status(const sparsertc_network* network,
                                                        const void* workspace, void* stream,
                                                        sparsertc_execution_status* status);

/* ---- sparse LU ----
 *
 * `sparsertc compile A.mtx --op=lu -o a.srtc` analyses a matrix: which entries are the pivots, in
 * which order, scaled how, and where L and U have entries. From then on matrices of the same
 * pattern are factorized, and systems with them solved, on numbers in device memory:
 *
 *   sparsertc_lu_load                  once for each pattern: slow
 *   sparsertc_lu_workspace_initialize  once for each workspace
 *   sparsertc_lu_refactor              for new values: enqueues and returns
 *   sparsertc_lu_solve                 A X = B or A^T X = B: enqueues and returns
 *   sparsertc_lu_solve_refined         the same, refined to the accuracy of the data
 *   sparsertc_lu_status                when you want to wait and know
 *
 * Values stand in the order of A's rows, in a row by ascending column, with all entries of the
 * pattern, also those that are 0. Real numbers are float or double, complex ones pairs of them.
 *
 * Numbers of a matrix lie in a workspace, so that one pattern serves any number of matrices,
 * streams and threads, each with a workspace of its own. sparsertc_lu_refactor and
 * sparsertc_lu_solve launch kernels and do nothing else: they may be captured into CUDA graphs
 * (also as the first executions), which stay valid as those of plans do. Like
 * sparsertc_plan_execute they do not make the context current.
 *
 * Pivots are those of the matrix that was compiled. One that is too small is replaced and counted.
 * When other values make them stale, the status says so, and no more: whoever has the compiler
 * (libsparsertc.so) analyses the matrix with its new values, loads what comes of it, and goes on
 * with that.
 *
 * Without a GPU (a context made with -1) the same calls work on host memory, at once, in the
 * calling thread; streams are ignored. The bundle may then be of any target, also --target=host.
 */

/* A loaded bundle of sparse LU; executing it leaves it as it is. */
typedef struct sparsertc_lu sparsertc_lu;

/* Reads the bundle in the file (or in memory: `bundle` may be freed afterwards), checks all of its
 * tables and copies them to the device.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT    a pointer is null
 *   SPARSERTC_ERROR_INVALID_BUNDLE      cannot be read, is damaged, or holds something else
 *   SPARSERTC_ERROR_UNSUPPORTED_DEVICE  the context's device cannot run it: other code, or fewer
 *                                       multiprocessors than the tables are made for
 *   SPARSERTC_ERROR_MACHINE             the driver refuses, for want of memory, say */
SPARSERTC_API sparsertc_result sparsertc_lu_load(const sparsertc_context* context, const char* path,
                                                 sparsertc_lu** lu);
SPARSERTC_API sparsertc_result sparsertc_lu_create(const sparsertc_context* context,
                                                   const void* bundle, uint64_t bytes,
                                                   sparsertc_lu** lu);

/* Gives the handle back; null is ignored. Nothing of it may be executing, and graphs that captured
 * it may not be launched any more. */
SPARSERTC_API void sparsertc_lu_destroy(sparsertc_lu* lu);

/* What a pattern's factorization is. Strings belong to the lu. */
typedef struct sparsertc_lu_info {
  size_t struct_size; /* sizeof(sparsertc_lu_info), set by the caller */
  int64_t n, nnz;     /* A is n x n with nnz entries */
  /* Of the caller's values, right-hand sides and solutions, "f32", "f64", "c64" or "c128", and of
   * the numbers inside, the same or of half the size. */
  const char* dtype;
  const char* factor_dtype;
  uint32_t element_size;        /* bytes of a number of dtype; pointers are aligned to them */
  uint32_t has_transposed;      /* 1: A^T X = B can be solved */
  int64_t nnz_l, nnz_u;         /* entries of L with its diagonal of ones, and of U */
  double flops;                 /* multiplications, additions and divisions of a factorization */
  int64_t levels;               /* of columns that wait for one another */
  int64_t levels_forward;       /* of rows, in a solve with L */
  int64_t levels_backward;      /* in a solve with U */
  uint32_t has_chosen;          /* 1: the two below are known */
  uint32_t matched;             /* 1: a matching moved or scaled rows */
  double chosen_growth;         /* of the matrix for which the pivots were chosen */
  int64_t chosen_perturbations; /* the pivots that were replaced in it */
  uint64_t workspace_alignment; /* bytes */
  uint64_t table_size;          /* bytes of device memory that the lu itself takes */
  const char* order;            /* the fill-reducing order: "amd", "nd", ..., "user" */
  const char* target;           /* what it was compiled for, "sm_90a", "host" */
  const char* pattern_digest;   /* SHA-256 of the pattern of A, hexadecimal */
  const char* manifest;         /* all that the bundle says, a JSON object */
  uint32_t code;                /* sparsertc_code */
  uint32_t has_refinement;      /* 1: sparsertc_lu_solve_refined works */
  uint32_t has_batch;           /* 1: so does sparsertc_lu_batch_refactor */
  uint32_t reserved;
} sparsertc_lu_info;

/* Fills in `info`, whose struct_size is set. */
SPARSERTC_API sparsertc_result sparsertc_lu_query(const sparsertc_lu* lu, sparsertc_lu_info* info);

/* Where the entries of A have gone: row i and column j of P R A C Q = L U are row rows[i] and
 * column columns[j] of A, multiplied by row_scale[rows[i]] and column_scale[columns[j]]. L and U
 * stand together in compressed columns: column j has the entries column_offsets[j] to
 * column_offsets[j + 1] - 1, their rows ascend, diagonal[j] is the place of (j, j). Host memory
 * that belongs to the lu. */
typedef struct sparsertc_lu_structure {
  size_t struct_size; /* sizeof(sparsertc_lu_structure), set by the caller */
  const uint32_t* rows;
  const uint32_t* columns;
  const double* row_scale; /* by the rows of A; null: all ones */
  const double* column_scale;
  const uint64_t* column_offsets; /* n + 1 */
  const uint32_t* row_indices;
  const uint64_t* diagonal; /* n */
} sparsertc_lu_structure;
SPARSERTC_API sparsertc_result sparsertc_lu_get_structure(const sparsertc_lu* lu,
                                                          sparsertc_lu_structure* structure);

/* Bytes of a workspace for solving with so many right-hand sides at once (a workspace for fewer,
 * but at least one, solves with more in turns).
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, or a negative number */
SPARSERTC_API sparsertc_result sparsertc_lu_workspace_size(const sparsertc_lu* lu,
                                                           int64_t right_sides, uint64_t* bytes);

/* A piece of device memory, in a context without a GPU of host memory, for the numbers of one
 * matrix. */
typedef struct sparsertc_lu_workspace {
  size_t struct_size; /* sizeof(sparsertc_lu_workspace), set by the caller */
  void* memory;       /* aligned to workspace_alignment */
  uint64_t bytes;     /* as sparsertc_lu_workspace_size says, or more */
} sparsertc_lu_workspace;

/* Enqueues what a workspace must hold before its first factorization. To be done once, by the lu
 * that will use it.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, misaligned or too small */
SPARSERTC_API sparsertc_result sparsertc_lu_workspace_initialize(
    const sparsertc_lu* lu, const sparsertc_lu_workspace* workspace, void* stream);

typedef struct sparsertc_lu_matrix {
  size_t struct_size; /* sizeof(sparsertc_lu_matrix), set by the caller */
  const void* values; /* nnz numbers of dtype */
  /* A pivot below this times the largest entry of its (scaled) column is replaced by one of that
   * size, with its sign or phase kept; 0: the root of the unit roundoff. Less than 1. */
  double pivot_threshold;
} sparsertc_lu_matrix;

/* Enqueues the factorization of a matrix. The values must stay until the stream has passed it. The
 * same values give the same bits.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, misaligned, too small, or out of range
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result sparsertc_lu_refactor(const sparsertc_lu* lu,
                                                     const sparsertc_lu_matrix* matrix,
                                                     const sparsertc_lu_workspace* workspace,
                                                     void* stream);

/* A X = B: columns of n numbers of dtype, one behind the other. */
typedef struct sparsertc_lu_system {
  size_t struct_size;  /* sizeof(sparsertc_lu_system), set by the caller */
  const void* b;       /* right-hand sides */
  void* x;             /* solutions; may be b itself, else apart from it */
  int64_t right_sides; /* columns; 0 enqueues nothing */
  uint32_t transposed; /* 1: A^T X = B, not conjugated */
  uint32_t reserved;   /* 0 */
} sparsertc_lu_system;

/* Enqueues a solve with the factors that the workspace has. Without a successful factorization
 * there X is meaningless.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, misaligned, out of range; b and x overlap; a workspace
 *                                     without room for a right-hand side; A^T, where has_transposed
 *                                     is 0
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result sparsertc_lu_solve(const sparsertc_lu* lu,
                                                  const sparsertc_lu_system* system,
                                                  const sparsertc_lu_workspace* workspace,
                                                  void* stream);

/* Bytes of memory for refining the solutions of so many right-hand sides at once.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, or a negative number; has_refinement is 0 */
SPARSERTC_API sparsertc_result sparsertc_lu_refinement_size(const sparsertc_lu* lu,
                                                            int64_t right_sides, uint64_t* bytes);

/* How solutions are to be refined, and memory for that: of the device, in a context without a GPU
 * of the host. What it holds beforehand does not matter. */
typedef struct sparsertc_lu_refinement {
  size_t struct_size;     /* sizeof(sparsertc_lu_refinement), set by the caller */
  void* memory;           /* aligned to workspace_alignment */
  uint64_t bytes;         /* as sparsertc_lu_refinement_size says, or more */
  uint32_t maximum_steps; /* corrections of the first solution, at most 1000; with 0 its errors are
                           * found, and nothing is corrected */
  uint32_t reserved;      /* 0 */
  double target;          /* componentwise backward error that is enough, less than 1; 0: the unit
                           * roundoff of dtype, 2^-53, or 2^-24 of f32 and c64 */
} sparsertc_lu_refinement;

/* Enqueues a solve as sparsertc_lu_solve does, and corrections of each solution by its residual,
 * computed in double precision from `matrix` itself, until its backward error is at most the target
 * or a step no longer halves it; the best solution is the result. That is decided on the device:
 * nothing is copied to the host or waited for, and the launches depend on nothing but
 * maximum_steps, so that it may be captured. The factors in the workspace are those of `matrix`,
 * whose pivot_threshold is not used, or of a matrix near it.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  as sparsertc_lu_solve; has_refinement is 0; memory for fewer
 *                                     right-hand sides than there are
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result sparsertc_lu_solve_refined(const sparsertc_lu* lu,
                                                          const sparsertc_lu_matrix* matrix,
                                                          const sparsertc_lu_system* system,
                                                          const sparsertc_lu_refinement* refinement,
                                                          const sparsertc_lu_workspace* workspace,
                                                          void* stream);

/* Waits for the stream and says what has come of the first `right_sides` right-hand sides of the
 * last refined solve with this memory (of one that there never was, nothing meaningful). Each array
 * has that many numbers, or is null: the componentwise backward error (the least e such that
 * (A + E) x = b + f, |E| <= e |A| and |f| <= e |b|, entry by entry), the residual as in
 * sparsertc_lu_assessment, and the corrections that were kept. Infinite and NaN where x is not
 * finite, after a factorization that failed, say.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  as sparsertc_lu_solve_refined
 *   SPARSERTC_ERROR_MACHINE           a kernel on the stream failed */
SPARSERTC_API sparsertc_result sparsertc_lu_refinement_results(
    const sparsertc_lu* lu, const sparsertc_lu_refinement* refinement, void* stream,
    int64_t right_sides, double* backward_errors, double* residuals, int64_t* steps);

/* How the last factorization in a workspace went. Rows and columns are those of A, -1: none. */
typedef struct sparsertc_lu_factor_status {
  size_t struct_size; /* sizeof(sparsertc_lu_factor_status), set by the caller */
  uint32_t outcome;   /* sparsertc_outcome */
  uint32_t reserved;
  int64_t row, column;   /* where SINGULAR or NOT_FINITE arose */
  int64_t perturbations; /* pivots that were replaced, and the first of them */
  int64_t perturbed_row, perturbed_column;
  double growth;        /* the largest number in L and U over the largest of the scaled matrix */
  double weakest_pivot; /* the least quotient of a pivot and the largest entry of its column */
  int64_t weakest_row, weakest_column;
  /* Why the pivots do not fit: more were replaced, or numbers grew 10^4 times as much, as when they
   * were chosen. "" where they do. Valid until the thread's next call of this function. */
  const char* reason;
} sparsertc_lu_factor_status;

/* Waits for the stream and fills in `status`. May not be captured.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  nothing was factorized in the workspace, or it was never
 *                                     initialised
 *   SPARSERTC_ERROR_MACHINE           a kernel on the stream failed */
SPARSERTC_API sparsertc_result sparsertc_lu_status(const sparsertc_lu* lu,
                                                   const sparsertc_lu_workspace* workspace,
                                                   void* stream,
                                                   sparsertc_lu_factor_status* status);

/* What factors and solutions are worth. */
typedef struct sparsertc_lu_assessment {
  size_t struct_size; /* sizeof(sparsertc_lu_assessment), set by the caller */
  /* An estimate of the 1-norm condition of the scaled matrix: a lower bound, mostly within a factor
   * of three. Infinite where there are no factors. */
  double condition;
  /* norm(b - A x) / (norm(A) norm(x) + norm(b)) in the infinity norm, computed in double precision,
   * the largest of all right-hand sides; 0 where no system was given. */
  double residual;
  uint32_t singular; /* 1: A is singular as far as these factors can tell */
  uint32_t reserved;
} sparsertc_lu_assessment;

/* Waits, copies the matrix and the system to the host and looks at them there; solves some systems
 * of its own with the factors. `matrix` must be the one that was factorized last in the workspace;
 * `system` may be null. For tests, and from time to time.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  as sparsertc_lu_solve and sparsertc_lu_status
 *   SPARSERTC_ERROR_MACHINE           a kernel on the stream failed, or there is no memory */
SPARSERTC_API sparsertc_result sparsertc_lu_assess(
    const sparsertc_lu* lu, const sparsertc_lu_matrix* matrix, const sparsertc_lu_system* system,
    const sparsertc_lu_workspace* workspace, void* stream, sparsertc_lu_assessment* assessment);

/* Waits and copies the factors out: to host memory, in the order of sparsertc_lu_structure, below
 * the diagonal those of L, whose diagonal is 1, else those of U. In double precision, complex
 * numbers as pairs.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  as sparsertc_lu_status; `count` is not the number of entries
 */
SPARSERTC_API sparsertc_result sparsertc_lu_get_factors(const sparsertc_lu* lu,
                                                        const sparsertc_lu_workspace* workspace,
                                                        void* stream, double* factors,
                                                        uint64_t count);

/* ---- batches of sparse LU ----
 *
 * Thousands of matrices of one pattern, each with its own values and right-hand side, factorized
 * and solved at once: an instance is a lane of the GPU, or of the CPU's vector unit. For bundles
 * made with `compile --op=lu --batch`, whose dtype and factor_dtype are the same; not transposed,
 * not refined. Numbers of all instances stand beside one another, entry by entry and row by row:
 *
 *   values[entry * instances + instance]   entries in the order of sparsertc_lu_matrix
 *   b[row * instances + instance]          and x likewise
 *
 * What goes wrong in one instance reaches no other. The same numbers give the same bits, whatever
 * the number of instances and on whatever device. */

/* Bytes of a workspace for so many instances. It needs no initialisation, and may have more bytes.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, a number below 0 or from 2^31 on; has_batch is 0 */
SPARSERTC_API sparsertc_result sparsertc_lu_batch_size(const sparsertc_lu* lu, int64_t instances,
                                                       uint64_t* bytes);

typedef struct sparsertc_lu_batch_matrices {
  size_t struct_size;     /* sizeof(sparsertc_lu_batch_matrices), set by the caller */
  int64_t instances;      /* 0 enqueues nothing */
  const void* values;     /* nnz * instances numbers of dtype */
  double pivot_threshold; /* as in sparsertc_lu_matrix */
} sparsertc_lu_batch_matrices;

/* Enqueues the factorization of all instances: one launch, which may be captured. The values must
 * stay until the stream has passed it.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, misaligned, too small, or out of range; has_batch is 0
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result
sparsertc_lu_batch_refactor(const sparsertc_lu* lu, const sparsertc_lu_batch_matrices* matrices,
                            const sparsertc_lu_workspace* workspace, void* stream);

typedef struct sparsertc_lu_batch_systems {
  size_t struct_size; /* sizeof(sparsertc_lu_batch_systems), set by the caller */
  int64_t instances;  /* as many as were factorized in the workspace; 0 enqueues nothing */
  const void* b;      /* n * instances numbers of dtype */
  void* x;            /* the same; apart from b */
} sparsertc_lu_batch_systems;

/* Enqueues A x = b for all instances with the factors that the workspace has: one launch, which may
 * be captured. Where a factorization failed, x is meaningless.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null, misaligned, too small, or out of range; b and x
 *                                     overlap; has_batch is 0
 *   SPARSERTC_ERROR_MACHINE           the driver refuses a launch */
SPARSERTC_API sparsertc_result sparsertc_lu_batch_solve(const sparsertc_lu* lu,
                                                        const sparsertc_lu_batch_systems* systems,
                                                        const sparsertc_lu_workspace* workspace,
                                                        void* stream);

/* Waits for the stream and says how each instance's last factorization in the workspace went (where
 * there was none, nothing meaningful). Each array has a number for each instance, or is null:
 *   outcomes       a sparsertc_outcome: NOT_FINITE where NaN or infinite values came in, numbers
 *                  overflowed, or a column is zero; STALE where more pivots were replaced than in
 *                  the matrix for which they were chosen; OK
 *   perturbations  pivots that were replaced
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  as sparsertc_lu_batch_refactor
 *   SPARSERTC_ERROR_MACHINE           a kernel on the stream failed */
SPARSERTC_API sparsertc_result sparsertc_lu_batch_status(const sparsertc_lu* lu,
                                                         const sparsertc_lu_workspace* workspace,
                                                         void* stream, int64_t instances,
                                                         uint32_t* outcomes,
                                                         int64_t* perturbations);

/* ---- tuning ----
 *
 * Which tile is the fastest depends on the pattern, the shape and the GPU; sparsertc_plan_tune
 * measures. It asks a function of the caller's to compile the candidates, so that this library
 * needs no compiler: libsparsertc.so has one (sparsertc_compiler.h), another program may be asked
 * as well.
 */

/* What the tuner wants compiled: the plan's layer, with these decisions. */
typedef struct sparsertc_candidate {
  size_t struct_size;
  /* Words of `sparsertc compile --tile`, and `registers=N`, the most registers of a thread, where
   * they are capped: "strategy=unrolled,rows=32,vec=1,...,registers=128". */
  const char* tile;
  uint32_t jobs; /* processors that this compilation may keep busy, at least 1 */
  uint32_t reserved;
  /* Answers 1 when the search has ended: whatever comes of this compilation is thrown away then,
   * and it should end soon. May be called from any thread until the compile function returns. */
  int32_t (*stopped)(const struct sparsertc_candidate* candidate);
  const void* search; /* the library's */
} sparsertc_candidate;

/* What came of it, filled in by the compile function. */
typedef struct sparsertc_compiled {
  size_t struct_size;
  const void* bundle; /* the bytes of an .srtc file */
  uint64_t bytes;
  /* Where it failed: why, or null. Must last until the calling thread compiles again. */
  const char* message;
} sparsertc_compiled;

/* Compiles one candidate. Called from several threads at once. Anything but SPARSERTC_OK refuses
 * the candidate, and the search goes on. */
typedef sparsertc_result (*sparsertc_compile_function)(void* user,
                                                       const sparsertc_candidate* candidate,
                                                       sparsertc_compiled* compiled);
/* Gives back what the compile function made: once after each of its successes, by the thread that
 * compiled. */
typedef void (*sparsertc_release_function)(void* user, const sparsertc_compiled* compiled);

/* How far the search has come. */
typedef struct sparsertc_tune_progress {
  size_t struct_size;
  double seconds, budget_seconds;
  double untuned_us; /* a launch of the untuned plan */
  double best_us;    /* of the best candidate so far; 0: none yet */
  uint64_t tried, candidates;
} sparsertc_tune_progress;
/* Called some times a second by the thread that tunes. Anything but 0 ends the search; the best so
 * far is kept. */
typedef int32_t (*sparsertc_progress_function)(void* user, const sparsertc_tune_progress* progress);

typedef struct sparsertc_tune_options {
  size_t struct_size; /* sizeof(sparsertc_tune_options), set by the caller */
  sparsertc_compile_function compile;
  sparsertc_release_function release; /* may be null */
  void* compile_user;
  /* Seconds of searching; a candidate that is being compiled when they are over is stopped. 0: only
   * the record's candidate, if any, takes part. */
  double budget_seconds;
  /* Columns of B and C, or images, to measure with, where the plan takes them at each execution;
   * else 0. */
  int64_t n;
  uint32_t jobs; /* processors that compiling may keep busy; 0: all */
  /* 1: a record of a layer of the same shape is taken, too, where everything but the pattern is the
   * same and the larger number of entries is at most 1.1 times the smaller. */
  uint32_t similar;
  uint64_t seed;                        /* of the operands that are measured and checked with */
  sparsertc_progress_function progress; /* may be null */
  void* progress_user;
  /* An earlier record (JSON text), or null. Where it holds for this plan and GPU, its candidate is
   * compiled, checked and taken without a search. Where it does not, its candidate takes part in
   * the search like any other, and the report says what differs. */
  const char* record;
} sparsertc_tune_options;

typedef enum sparsertc_record_use {
  SPARSERTC_RECORD_NONE = 0,    /* there was none */
  SPARSERTC_RECORD_HOLDS = 1,   /* its candidate was taken */
  SPARSERTC_RECORD_SIMILAR = 2, /* the same, and it is of a similar layer */
  SPARSERTC_RECORD_REFUSED = 3  /* it is of something else, or its candidate failed: see `remark` */
} sparsertc_record_use;

/* Strings belong to the tuned plan. */
typedef struct sparsertc_tune_report {
  size_t struct_size; /* sizeof(sparsertc_tune_report), set by the caller */
  /* Medians of one launch in a CUDA graph, warm caches, both plans taking turns. */
  double untuned_us, tuned_us;
  double seconds;             /* of searching */
  uint64_t tried, candidates; /* candidates that were compiled, and all there are */
  uint64_t refused;           /* of those tried: could not be compiled, loaded or run */
  uint64_t wrong;             /* of those tried: computed something else */
  uint32_t improved;          /* 1: faster than the untuned plan; 0, unless a record was taken: no
                               * candidate was, and the tuned plan is as the untuned one */
  uint32_t stopped;           /* 1: the progress function ended the search */
  uint32_t record_use;        /* sparsertc_record_use */
  uint32_t reserved;
  const char* tile;   /* the tuned plan's, with `registers=` where they are capped */
  const char* record; /* JSON text: keep it, and give it to the next tuning of this layer, or to
                       * `sparsertc compile --tuning` */
  const char* remark; /* why the record was refused, why the first candidate was; "" if neither */
  const char* strategies; /* of a search: the best time of each strategy, and from which fraction of
                           * zeros on each would be the fastest, in lines; else "" */
} sparsertc_tune_report;

/* Measures candidates for the layer of `plan` on its GPU and makes a plan of the fastest; `plan`
 * stays as it is, and nothing else may run on the GPU if the times are to mean something. Waits,
 * allocates device memory for operands of its own, and uses a stream of its own.
 *
 * A candidate must have the plan's shape, type, layout, epilogue and pattern. Before it may win,
 * its results are compared with those of `plan`:
 *   unit vectors  B with one 1 in each column (with an activation also one -1), no bias and no
 *                 residual, until each column of A has been met: each weight stands alone, and
 *                 every order of summation gives the same bits. All of C must be the same, and
 *                 nothing beside it may be written. Of a convolution B is images with ones so far
 *                 from each other that no output pixel sees two. (Of a layer with over 2^25
 *                 positions, or with 4096 times more columns than B: evenly spread columns of A.)
 *                 Products of f32 on tensor cores (nonfinite=dense) lose digits of their factors:
 *                 of the weight alone 2^-8.9 at most in tf32, 2^-18.9 in three parts.
 *   random        B, bias and residual in [-1, 1): C may differ by twice the error bound of a sum
 *                 in another order, g(t) S for each element, S being the row's sum of magnitudes
 *                 found in the first step; activations and rounding to half types add theirs.
 *                 (Rows of B that meet no column of the first step are 0.)
 * Whether `plan` itself is right is not checked.
 *
 * Where the plan was compiled with nonfinite=dense and a fixed number of columns, dense products by
 * cuBLAS are a candidate that is measured in any search, so that the tuned plan is not slower than
 * they are by more than the measurements vary.
 *
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null; a budget that is negative or no number; `n` that the
 *                                     plan cannot take; a layer without rows, columns or n; a
 *                                     record that is damaged
 *   SPARSERTC_ERROR_NO_GPU            the context was made without a device
 *   SPARSERTC_ERROR_MACHINE           the driver refuses, or a candidate's kernel has faulted,
 *                                     after which every call on the device fails */
SPARSERTC_API sparsertc_result sparsertc_plan_tune(const sparsertc_plan* plan,
                                                   const sparsertc_tune_options* options,
                                                   sparsertc_tune_report* report,
                                                   sparsertc_plan** tuned);

#ifdef __cplusplus
}
#endif

#endif
