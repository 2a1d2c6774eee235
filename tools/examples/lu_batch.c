/* A parameter study in C: the temperatures along thousands of rods at once, each of another
 * material, cooled at both ends and heated all along.
 *
 *   lu_batch [POINTS] [RODS]
 *
 * All rods have the same pattern, so their matrices are factorized and solved as one batch, an
 * instance a rod. Half of them are checked against each other: rod 2i + 1 conducts twice as well as
 * rod 2i, and must be half as warm, bit by bit. One rod in the middle is broken (a row and column
 * of zeros): its status says so, and its neighbours do not notice. On a GPU if there is one, else
 * on the CPU by the same calls. Exit status 1: something failed. */
#include "sparsertc.h"
#include "sparsertc_compiler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* doing, const char* what) {
  fprintf(stderr, "lu_batch: %s: %s\n", doing, what);
  exit(1);
}
static void check(sparsertc_result result, const char* doing) {
  if (result != SPARSERTC_OK)
    fail(doing, sparsertc_last_error());
}
static void* allocate(size_t bytes) {
  /* A workspace in host memory is aligned to 64 bytes. */
  char* memory = (char*)malloc(bytes + 128);
  size_t padding;
  if (!memory)
    fail("allocating", "out of memory");
  padding = 64 - (size_t)memory % 64;
  memory[padding - 1] = (char)padding;
  return memory + padding;
}
static void release(void* memory) {
  if (memory)
    free((char*)memory - ((char*)memory)[-1]);
}

/* Memory where the context works: on its device, or here. */
static void* take(const sparsertc_context* context, int on_gpu, uint64_t bytes) {
  void* memory;
  if (!on_gpu)
    return allocate(bytes);
  check(sparsertc_memory_allocate(context, bytes, &memory), "allocating");
  return memory;
}
static void give_back(const sparsertc_context* context, int on_gpu, void* memory) {
  if (on_gpu)
    sparsertc_memory_free(context, memory);
  else
    release(memory);
}

/* The matrix of a rod that conducts by `g` between neighbours, in compressed rows. */
static int32_t assemble(int n, double g, int32_t* offsets, int32_t* columns, double* values) {
  int32_t entry = 0;
  for (int i = 0; i < n; ++i) {
    offsets[i] = entry;
    if (i > 0) {
      columns[entry] = i - 1;
      values[entry++] = -g;
    }
    columns[entry] = i;
    values[entry++] = 2 * g;
    if (i < n - 1) {
      columns[entry] = i + 1;
      values[entry++] = -g;
    }
  }
  offsets[n] = entry;
  return entry;
}

static sparsertc_lu* analyse(const sparsertc_context* context, int n, const int32_t* offsets,
                             const int32_t* columns, const double* values) {
  sparsertc_context_info gpu;
  sparsertc_matrix matrix;
  sparsertc_lu_choices choices;
  sparsertc_compiled compiled;
  sparsertc_lu* lu;
  char words[256];
  /* SPARSERTC_EXAMPLE_LU_WORDS: others instead, "multiprocessors=1 assembler=none". */
  const char* more = getenv("SPARSERTC_EXAMPLE_LU_WORDS");
  gpu.struct_size = sizeof gpu;
  check(sparsertc_context_query(context, &gpu), "asking for the GPU");
  if (gpu.multiprocessors == 0)
    snprintf(words, sizeof words, "batch target=host");
  else if (more)
    snprintf(words, sizeof words, "batch target=sm_%u %s", gpu.compute_capability, more);
  else
    snprintf(words, sizeof words, "batch target=sm_%u multiprocessors=%u", gpu.compute_capability,
             gpu.multiprocessors);
  memset(&matrix, 0, sizeof matrix);
  matrix.struct_size = sizeof matrix;
  matrix.m = matrix.k = n;
  matrix.nnz = offsets[n];
  matrix.row_offsets = offsets;
  matrix.column_indices = columns;
  matrix.values = values;
  matrix.index_type = SPARSERTC_INDEX_I32;
  matrix.value_type = SPARSERTC_VALUE_F64;
  memset(&choices, 0, sizeof choices);
  choices.struct_size = sizeof choices;
  choices.words = words;
  compiled.struct_size = sizeof compiled;
  if (sparsertc_compiler_lu(&matrix, &choices, &compiled) != SPARSERTC_OK)
    fail("analysing the matrix", sparsertc_compiler_last_error());
  printf("analysed: a bundle of %llu bytes (%s)\n", (unsigned long long)compiled.bytes, words);
  check(sparsertc_lu_create(context, compiled.bundle, compiled.bytes, &lu), "loading");
  sparsertc_compiler_release(NULL, &compiled);
  return lu;
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 40, rods = argc > 2 ? atoi(argv[2]) : 4096;
  if (n < 2 || n > 10000 || rods < 4 || rods % 2 != 0)
    fail("usage", "lu_batch [POINTS from 2 to 10000] [RODS, an even number from 4]");
  const int broken = rods / 2;
  int32_t* const offsets = (int32_t*)allocate(sizeof(int32_t) * (size_t)(n + 1));
  int32_t* const columns = (int32_t*)allocate(sizeof(int32_t) * (size_t)n * 3);
  double* const one = (double*)allocate(sizeof(double) * (size_t)n * 3);
  const int32_t nnz = assemble(n, 1, offsets, columns, one);

  sparsertc_context* context;
  const sparsertc_result opened = sparsertc_context_create(0, &context);
  const int on_gpu = opened != SPARSERTC_ERROR_NO_GPU;
  check(on_gpu ? opened : sparsertc_context_create(-1, &context), "opening the GPU");
  sparsertc_lu* const lu = analyse(context, n, offsets, columns, one);

  /* Entry by entry, row by row, the rods beside one another. */
  const size_t value_bytes = sizeof(double) * (size_t)nnz * (size_t)rods;
  const size_t vector_bytes = sizeof(double) * (size_t)n * (size_t)rods;
  double* const values = (double*)allocate(value_bytes);
  double* const vectors = (double*)allocate(vector_bytes);
  for (int rod = 0; rod < rods; ++rod) {
    const int pair = rod / 2;
    const double g = (1 + 0.001 * pair) * (rod % 2 == 0 ? 1 : 2);
    assemble(n, g, offsets, columns, one);
    for (int32_t entry = 0; entry < nnz; ++entry)
      values[(size_t)entry * (size_t)rods + (size_t)rod] =
          rod == broken && (entry < offsets[1] || columns[entry] == 0) ? 0 : one[entry];
    for (int i = 0; i < n; ++i)
      vectors[(size_t)i * (size_t)rods + (size_t)rod] = 1;
  }

  sparsertc_lu_workspace workspace;
  workspace.struct_size = sizeof workspace;
  check(sparsertc_lu_batch_size(lu, rods, &workspace.bytes), "asking for the workspace");
  workspace.memory = take(context, on_gpu, workspace.bytes);
  void* const values_there = take(context, on_gpu, value_bytes);
  void* const b = take(context, on_gpu, vector_bytes);
  void* const x = take(context, on_gpu, vector_bytes);
  if (on_gpu) {
    check(sparsertc_memory_write(context, values_there, values, value_bytes, NULL), "copying");
    check(sparsertc_memory_write(context, b, vectors, vector_bytes, NULL), "copying");
  } else {
    memcpy(values_there, values, value_bytes);
    memcpy(b, vectors, vector_bytes);
  }
  sparsertc_lu_batch_matrices matrices;
  memset(&matrices, 0, sizeof matrices);
  matrices.struct_size = sizeof matrices;
  matrices.instances = rods;
  matrices.values = values_there;
  sparsertc_lu_batch_systems systems;
  memset(&systems, 0, sizeof systems);
  systems.struct_size = sizeof systems;
  systems.instances = rods;
  systems.b = b;
  systems.x = x;
  check(sparsertc_lu_batch_refactor(lu, &matrices, &workspace, NULL), "factorizing");
  check(sparsertc_lu_batch_solve(lu, &systems, &workspace, NULL), "solving");
  uint32_t* const outcomes = (uint32_t*)allocate(sizeof(uint32_t) * (size_t)rods);
  check(sparsertc_lu_batch_status(lu, &workspace, NULL, rods, outcomes, NULL), "waiting");
  if (on_gpu)
    check(sparsertc_memory_read(context, vectors, x, vector_bytes, NULL), "copying");
  else
    memcpy(vectors, x, vector_bytes);

  int failed = 0, wrong = 0;
  double warmest = 0;
  for (int rod = 0; rod < rods; ++rod) {
    const int neighbour = rod % 2 == 0 ? rod + 1 : rod - 1;
    if (outcomes[rod] != SPARSERTC_OUTCOME_OK) {
      ++failed;
      wrong += rod != broken || outcomes[rod] != SPARSERTC_OUTCOME_NOT_FINITE;
      continue;
    }
    for (int i = 0; i < n; ++i) {
      const double here = vectors[(size_t)i * (size_t)rods + (size_t)rod];
      const double there = vectors[(size_t)i * (size_t)rods + (size_t)neighbour];
      warmest = fmax(warmest, here);
      if (outcomes[neighbour] == SPARSERTC_OUTCOME_OK &&
          (rod % 2 == 0 ? here != 2 * there : there != 2 * here))
        ++wrong;
    }
  }
  printf("%d rods of %d points on the %s: the warmest point is at %.6f, %d failed, %d wrong\n",
         rods, n, on_gpu ? "GPU" : "CPU", warmest, failed, wrong);

  give_back(context, on_gpu, workspace.memory);
  give_back(context, on_gpu, values_there);
  give_back(context, on_gpu, b);
  give_back(context, on_gpu, x);
  sparsertc_lu_destroy(lu);
  sparsertc_context_destroy(context);
  release(outcomes);
  release(values);
  release(vectors);
  release(offsets);
  release(columns);
  release(one);
  return failed == 1 && wrong == 0 && warmest > 1 ? 0 : 1;
}
