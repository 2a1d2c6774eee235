/* sparsertc: compiles a sparse matrix into code for an NVIDIA GPU. Plain C (C99), usable from C++.
 *
 * libsparsertc.so turns a matrix in memory into a bundle in memory, as `sparsertc compile M -o
 * M.srtc` does with files: same matrix, same words, same assembler, same bytes. It needs no GPU and
 * no LLVM. The library that runs bundles is another one, libsparsertc_runtime.so (sparsertc.h);
 * neither needs the other, and sparsertc_plan_tune is how they meet:
 *
 *   sparsertc_compiler_create   once for each layer
 *   sparsertc_compiler_compile  a bundle, for sparsertc_plan_create
 *   sparsertc_plan_tune         with compile = sparsertc_compiler_candidate,
 *                               release = sparsertc_compiler_release, compile_user = the compiler
 *
 * Sparse LU is one call: sparsertc_compiler_lu makes a bundle for sparsertc_lu_create.
 *
 * Errors. Results are those of sparsertc.h; sparsertc_compiler_last_error() has the message of the
 * calling thread's last failure. A call that failed has changed nothing and made nothing.
 *
 * Threads. All calls may be made from any thread; a compiler is constant, and several threads may
 * compile with it at once. */
#ifndef SPARSERTC_COMPILER_H
#define SPARSERTC_COMPILER_H

#include "sparsertc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix and what is to be made of it. */
typedef struct sparsertc_compiler sparsertc_compiler;

typedef enum sparsertc_index_type {
  SPARSERTC_INDEX_I32 = 0, /* int32_t */
  SPARSERTC_INDEX_I64 = 1  /* int64_t */
} sparsertc_index_type;

/* The m x k matrix A in compressed rows. Row i has the entries row_offsets[i] to
 * row_offsets[i + 1] - 1; their columns ascend, each at most once. Explicit zeros are entries. */
typedef struct sparsertc_matrix {
  size_t struct_size;         /* sizeof(sparsertc_matrix), set by the caller */
  int64_t m, k;               /* below 2^31 */
  int64_t nnz;                /* entries */
  const void* row_offsets;    /* m + 1 numbers, from 0 to nnz */
  const void* column_indices; /* nnz numbers; may be null where nnz is 0 */
  const void* values;         /* nnz numbers; may be null where nnz is 0 */
  uint32_t index_type;        /* sparsertc_index_type of offsets and columns */
  uint32_t value_type;        /* sparsertc_value_type */
} sparsertc_matrix;

/* The library's version, "0.1.0". Never fails. */
SPARSERTC_API const char* sparsertc_compiler_version(void);

/* What went wrong in the last call of this thread that failed, and a way out where one is known;
 * "" before the first. Valid until the thread's next failing call. */
SPARSERTC_API const char* sparsertc_compiler_last_error(void);

/* Takes a copy of the matrix and reads the words, which are those of `sparsertc compile` without
 * their dashes, separated by spaces: "columns=256 dtype=f16 bias activation=relu target=sm_90a".
 * Null and "" leave everything at its default.
 *
 *   op=spmm|conv2d      the default is spmm; conv2d needs conv=WORDS, the geometry
 *   columns=N|dynamic   columns of B and C; dynamic (the default): given at each execution
 *   dtype=f32|f16|bf16|f64
 *   layout=row|column   of B, C and the residual; of conv2d nchw or nhwc
 *   ldb=N ldc=N         leading dimensions, elements; 0 (the default): tight
 *   bias residual       flags: add bias[row], add a matrix of C's shape
 *   activation=none|relu|gelu|silu
 *   half-terms=N        f16 and bf16: products summed in the half type; 0 (the default): none
 *   precision=full|tf32 f32: whether strategies may multiply with 10 bits of the fraction
 *   nonfinite=exact|dense  whether NaN and infinity in B may also reach rows without an entry there
 *   target=sm_90|...    the default is sm_90; `native` is not known here
 *   tile=WORDS          what is fixed of the tile: "rows=32,warps=4"; `registers=N` caps a thread's
 *   budget=N            most multiply-adds in unrolled code; 0: the target's default
 *   bindable            flag: find where the weights stand in the machine code, so that
 *                       sparsertc_plan_bind_values can write others there; assembles twice
 *   jobs=N              processors that assembling may keep busy; 0 (the default): all
 *   assembler=auto|ptxas|nvjitlink|driver|none
 *                       auto (the default): machine code by the first of ptxas, nvJitLink and the
 *                       GPU's driver that is there and knows the target; where there is none, and
 *                       for none, the bundle holds PTX, which the driver assembles when it is
 * loaded
 *
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null; offsets that do not ascend from 0 to nnz; columns that
 *                                     are out of range, do not ascend or come twice; a word that is
 *                                     not known, comes twice or has a wrong value
 *   SPARSERTC_ERROR_MACHINE           the assembler that was asked for is not there */
SPARSERTC_API sparsertc_result sparsertc_compiler_create(const sparsertc_matrix* matrix,
                                                         const char* words,
                                                         sparsertc_compiler** compiler);

/* Gives the handle back; null is ignored. What it made stays. */
SPARSERTC_API void sparsertc_compiler_destroy(sparsertc_compiler* compiler);

/* The assembler that will be used, "ptxas 13.0.88"; "" where bundles will hold PTX only. Belongs to
 * the compiler. */
SPARSERTC_API const char* sparsertc_compiler_assembler(const sparsertc_compiler* compiler);

/* Compiles into a bundle (sparsertc_plan_create takes it, written to a file it is an .srtc). `tile`
 * replaces that of the words; null keeps it. Fills in `compiled`, whose struct_size is set; to be
 * given back by sparsertc_compiler_release.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  words of the tile, or a combination, that cannot be; a weight
 *                                     that is not finite in the layer's type
 *   SPARSERTC_ERROR_MACHINE           the assembler or the memory refuses */
SPARSERTC_API sparsertc_result sparsertc_compiler_compile(const sparsertc_compiler* compiler,
                                                          const char* tile,
                                                          sparsertc_compiled* compiled);

/* Gives the bundle's memory back; null and an empty one are ignored. It does not matter which
 * compiler made it: `compiler` may be null. A sparsertc_release_function. */
SPARSERTC_API void sparsertc_compiler_release(void* compiler, const sparsertc_compiled* compiled);

/* The sparsertc_compile_function for sparsertc_plan_tune; `compiler` is a sparsertc_compiler. */
SPARSERTC_API sparsertc_result sparsertc_compiler_candidate(void* compiler,
                                                            const sparsertc_candidate* candidate,
                                                            sparsertc_compiled* compiled);

/* ---- sparse LU ---- */

/* How a matrix is to be factorized. */
typedef struct sparsertc_lu_choices {
  size_t struct_size; /* sizeof(sparsertc_lu_choices), set by the caller */
  /* Those of `sparsertc compile --op=lu` without their dashes, as for sparsertc_compiler_create; or
   * null:
   *   numbers=f64|f32|mixed    values, right-hand sides and solutions, and the factors;
   *                            mixed: f64 and f32. Complex where the matrix is
   *   matching=auto|on|off  order=auto|natural|amd|colamd|nd  blocks=auto|on|off
   *   pivot-threshold=X     smaller pivots are replaced when the matrix is tried
   *   target=sm_90|...|host the default is sm_90; host: for the CPU alone
   *   multiprocessors=N     that the work is dealt to; the GPU must not have fewer (of
   *                         sparsertc_context_info; 0, the default: of the target's common GPUs)
   *   no-transposed         flag: no tables for A^T X = B
   *   batch                 flag: also for sparsertc_lu_batch_refactor
   *   batch-budget=N        up to so many multiply-adds its code is unrolled; above by tables
   *   jobs=N  assembler=auto|ptxas|nvjitlink|driver|none */
  const char* words;
  /* The caller's own order, or null: row i of L U is row rows[i] of A, with `columns` likewise.
   * With `rows` nothing is matched or scaled; with `columns` alone the matching finds the rows. */
  const uint32_t* rows;
  const uint32_t* columns;
} sparsertc_lu_choices;

/* Analyses a square matrix and makes a bundle for sparsertc_lu_create: chooses pivots and an order,
 * finds the patterns of L and U, makes tables and kernels. The matrix itself is factorized and
 * solved with on the CPU, once, so that pivots which do not do are found out here. Values (of any
 * sparsertc_value_type) may be null: then the pattern alone decides, and nothing is tried. Call it
 * again with new values when sparsertc_lu_status says that pivots are stale. `choices` may be null.
 * Fills in `compiled`, whose struct_size is set; to be given back by sparsertc_compiler_release.
 *   SPARSERTC_ERROR_INVALID_ARGUMENT  null; arrays that are no square matrix; words or permutations
 *                                     that cannot be; a matrix that is singular, or cannot be
 *                                     solved with (the message says `singular`, `unconverged`);
 *                                     tables that are too large
 *   SPARSERTC_ERROR_MACHINE           the assembler or the memory refuses */
SPARSERTC_API sparsertc_result sparsertc_compiler_lu(const sparsertc_matrix* matrix,
                                                     const sparsertc_lu_choices* choices,
                                                     sparsertc_compiled* compiled);

#ifdef __cplusplus
}
#endif

#endif
