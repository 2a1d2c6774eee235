/* sparsertc: runs compiled sparse layers on an NVIDIA GPU. Plain C (C99), usable from C++.
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
 * the plan is destroyed or one of the operands or the workspace is freed; new contents of the
 * operands are seen by the next replay. Replays of graphs with the same workspace must not overlap.
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
/* A loaded bundle; constant. */
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
  SPARSERTC_ERROR_INTERNAL = 6
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
 * to the plan. */
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

/* ---- execution ---- */

/* Enqueues what a workspace must hold before its first execution. `workspace` is device memory of
 * the size and alignment that the query says. To be done once; a workspace may then serve one
 * execution after the other, also of other plans of no greater needs. */
SPARSERTC_API sparsertc_result sparsertc_workspace_initialize(const sparsertc_plan* plan,
                                                              void* workspace, void* stream);

/* Pointers are device memory. */
typedef struct sparsertc_arguments {
  size_t struct_size;   /* sizeof(sparsertc_arguments), set by the caller */
  const void* b;        /* k x n; may be null where k is 0 */
  void* c;              /* m x n, overwritten; may not overlap b or bias */
  const void* bias;     /* m elements; ignored where the plan has none */
  const void* residual; /* m x n, laid out as c, and may be c itself; ignored where there is none */
  int64_t n;            /* columns of B and C; where the plan has a fixed n, that one */
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
  SPARSERTC_OUTCOME_OK = 0 /* the result is what was asked for; the only one of matrix products */
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

#ifdef __cplusplus
}
#endif

#endif
