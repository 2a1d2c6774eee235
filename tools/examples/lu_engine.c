/* A small simulator in C that solves one sparse system after another: the temperatures of a plate
 * whose material conducts the better the hotter it is, stepped implicitly in time.
 *
 *   lu_engine [WIDTH] [STEPS] [BUNDLE.srtc]
 *
 * A plate of WIDTH x WIDTH points (48), heated at one edge and cooled at the opposite one, is
 * stepped STEPS times (50). The pattern of the matrix is analysed once, by libsparsertc.so, or
 * comes from BUNDLE.srtc, which is written where it is not there, and never over another file. Each
 * step has other values: they are factorized and solved with, the solution is refined, and its
 * residual computed from the matrix itself. When the library says that the pivots are stale, they
 * are chosen anew with the values of that step. On a GPU if there is one, else on the CPU by the
 * same calls. Exit status 1: something failed, or a residual is too large. */
#include "sparsertc.h"
#include "sparsertc_compiler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* doing, const char* what) {
  fprintf(stderr, "lu_engine: %s: %s\n", doing, what);
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

/* ---- the plate ---- */

typedef struct plate {
  int width, n;
  int32_t *offsets, *columns; /* of the matrix, compressed rows */
  double *values, *b, *x;
} plate;

static plate make_plate(int width) {
  plate p;
  int32_t entry = 0;
  p.width = width;
  p.n = width * width;
  p.offsets = (int32_t*)allocate(sizeof(int32_t) * (size_t)(p.n + 1));
  p.columns = (int32_t*)allocate(sizeof(int32_t) * (size_t)p.n * 5);
  p.values = (double*)allocate(sizeof(double) * (size_t)p.n * 5);
  p.b = (double*)allocate(sizeof(double) * (size_t)p.n);
  p.x = (double*)allocate(sizeof(double) * (size_t)p.n);
  for (int i = 0; i < p.n; ++i) {
    p.offsets[i] = entry;
    if (i >= width)
      p.columns[entry++] = i - width;
    if (i % width > 0)
      p.columns[entry++] = i - 1;
    p.columns[entry++] = i;
    if (i % width < width - 1)
      p.columns[entry++] = i + 1;
    if (i < p.n - width)
      p.columns[entry++] = i + width;
    p.x[i] = 0;
  }
  p.offsets[p.n] = entry;
  return p;
}

static double conductance(double u, double v) {
  const double mean = (u + v) / 2;
  return 1 + mean * mean;
}

/* The matrix and the right-hand side of one step from the temperatures x:
 * (1 + sum of conductances) x_i' - sum of conductance * x_j' = x_i, with walls of 1 above and 0
 * below. */
static void assemble(plate* p) {
  const int width = p->width;
  for (int i = 0; i < p->n; ++i) {
    double sum = 1;
    int32_t diagonal = 0;
    p->b[i] = p->x[i];
    if (i < width) {
      const double g = conductance(p->x[i], 1);
      sum += g;
      p->b[i] += g;
    }
    if (i >= p->n - width)
      sum += conductance(p->x[i], 0);
    for (int32_t e = p->offsets[i]; e < p->offsets[i + 1]; ++e) {
      const int32_t j = p->columns[e];
      if (j == i) {
        diagonal = e;
        continue;
      }
      p->values[e] = -conductance(p->x[i], p->x[j]);
      sum -= p->values[e];
    }
    p->values[diagonal] = sum;
  }
}

/* norm(b - A x) / (norm(A) norm(x) + norm(b)), infinity norms. */
static double residual(const plate* p, const double* x) {
  double r = 0, a = 0, size_x = 0, size_b = 0;
  for (int i = 0; i < p->n; ++i) {
    double left = p->b[i], row = 0;
    for (int32_t e = p->offsets[i]; e < p->offsets[i + 1]; ++e) {
      left -= p->values[e] * x[p->columns[e]];
      row += fabs(p->values[e]);
    }
    if (!(fabs(left) <= r))
      r = fabs(left); /* also a NaN, which then stays */
    a = fmax(a, row);
    size_x = fmax(size_x, fabs(x[i]));
    size_b = fmax(size_b, fabs(p->b[i]));
  }
  return r / (a * size_x + size_b);
}

/* ---- the library ---- */

static sparsertc_lu* analyse(const sparsertc_context* context, const plate* p, const char* path) {
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
    snprintf(words, sizeof words, "target=host");
  else if (more)
    snprintf(words, sizeof words, "target=sm_%u %s", gpu.compute_capability, more);
  else
    snprintf(words, sizeof words, "target=sm_%u multiprocessors=%u", gpu.compute_capability,
             gpu.multiprocessors);
  memset(&matrix, 0, sizeof matrix);
  matrix.struct_size = sizeof matrix;
  matrix.m = matrix.k = p->n;
  matrix.nnz = p->offsets[p->n];
  matrix.row_offsets = p->offsets;
  matrix.column_indices = p->columns;
  matrix.values = p->values;
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
  if (path) {
    FILE* file = fopen(path, "wb");
    if (!file || fwrite(compiled.bundle, 1, compiled.bytes, file) != compiled.bytes ||
        fclose(file) != 0)
      fail("writing", path);
  }
  sparsertc_compiler_release(NULL, &compiled);
  return lu;
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
static void put(const sparsertc_context* context, int on_gpu, void* there, const void* here,
                uint64_t bytes) {
  if (on_gpu)
    check(sparsertc_memory_write(context, there, here, bytes, NULL), "copying");
  else
    memcpy(there, here, bytes);
}
static void get(const sparsertc_context* context, int on_gpu, void* here, const void* there,
                uint64_t bytes) {
  if (on_gpu)
    check(sparsertc_memory_read(context, here, there, bytes, NULL), "copying");
  else
    memcpy(here, there, bytes);
}

int main(int argc, char** argv) {
  const int width = argc > 1 ? atoi(argv[1]) : 48, steps = argc > 2 ? atoi(argv[2]) : 50;
  const char* path = argc > 3 ? argv[3] : NULL;
  if (width < 2 || width > 4096 || steps < 1)
    fail("usage", "lu_engine [WIDTH from 2 to 4096] [STEPS from 1] [BUNDLE.srtc]");
  plate p = make_plate(width);
  assemble(&p);

  sparsertc_context* context;
  const sparsertc_result opened = sparsertc_context_create(0, &context);
  const int on_gpu = opened != SPARSERTC_ERROR_NO_GPU;
  check(on_gpu ? opened : sparsertc_context_create(-1, &context), "opening the GPU");
  sparsertc_lu* lu = NULL;
  FILE* there = path ? fopen(path, "rb") : NULL;
  if (there) {
    fclose(there);
    check(sparsertc_lu_load(context, path, &lu), "loading");
  } else {
    lu = analyse(context, &p, path);
  }
  sparsertc_lu_info info;
  info.struct_size = sizeof info;
  check(sparsertc_lu_query(lu, &info), "asking about the factors");
  if (info.n != p.n || info.nnz != p.offsets[p.n] || strcmp(info.dtype, "f64") != 0)
    fail("loading", "the bundle is of another plate");
  printf(
      "%lld unknowns, L has %lld entries, U %lld, %.3g flops in %lld levels, order %s, on the %s\n",
      (long long)info.n, (long long)info.nnz_l, (long long)info.nnz_u, info.flops,
      (long long)info.levels, info.order, on_gpu ? "GPU" : "CPU");

  const uint64_t value_bytes = sizeof(double) * (uint64_t)info.nnz;
  const uint64_t vector_bytes = sizeof(double) * (uint64_t)info.n;
  sparsertc_lu_workspace workspace;
  workspace.struct_size = sizeof workspace;
  check(sparsertc_lu_workspace_size(lu, 1, &workspace.bytes), "asking for the workspace");
  workspace.memory = take(context, on_gpu, workspace.bytes);
  check(sparsertc_lu_workspace_initialize(lu, &workspace, NULL), "initialising the workspace");
  sparsertc_lu_matrix matrix;
  memset(&matrix, 0, sizeof matrix);
  matrix.struct_size = sizeof matrix;
  void* values = take(context, on_gpu, value_bytes);
  matrix.values = values;
  sparsertc_lu_system system;
  memset(&system, 0, sizeof system);
  system.struct_size = sizeof system;
  system.x = take(context, on_gpu, vector_bytes);
  system.b = system.x; /* solved in place */
  system.right_sides = 1;
  sparsertc_lu_refinement refinement;
  memset(&refinement, 0, sizeof refinement);
  refinement.struct_size = sizeof refinement;
  check(sparsertc_lu_refinement_size(lu, 1, &refinement.bytes), "asking for the refinement");
  refinement.memory = take(context, on_gpu, refinement.bytes);
  refinement.maximum_steps = 3;

  double worst = 0, growth = 0, worst_backward_error = 0;
  int64_t corrections = 0;
  int repivoted = 0;
  for (int step = 0; step < steps; ++step) {
    assemble(&p);
    put(context, on_gpu, values, p.values, value_bytes);
    put(context, on_gpu, system.x, p.b, vector_bytes);
    /* A simulator enqueues these two on its own stream, or captures them into a graph. */
    check(sparsertc_lu_refactor(lu, &matrix, &workspace, NULL), "factorizing");
    check(sparsertc_lu_solve_refined(lu, &matrix, &system, &refinement, &workspace, NULL),
          "solving");
    sparsertc_lu_factor_status status;
    status.struct_size = sizeof status;
    check(sparsertc_lu_status(lu, &workspace, NULL, &status), "waiting");
    if (status.outcome == SPARSERTC_OUTCOME_STALE && !repivoted) {
      printf("step %d: stale: %s\n", step, status.reason);
      sparsertc_lu_destroy(lu);
      lu = analyse(context, &p, NULL);
      give_back(context, on_gpu, workspace.memory);
      check(sparsertc_lu_workspace_size(lu, 1, &workspace.bytes), "asking for the workspace");
      workspace.memory = take(context, on_gpu, workspace.bytes);
      check(sparsertc_lu_workspace_initialize(lu, &workspace, NULL), "initialising");
      repivoted = 1;
      --step; /* once more */
      continue;
    }
    repivoted = 0;
    if (status.outcome == SPARSERTC_OUTCOME_SINGULAR ||
        status.outcome == SPARSERTC_OUTCOME_NOT_FINITE)
      fail("factorizing", "singular, or numbers overflowed");
    double backward_error;
    int64_t kept;
    check(sparsertc_lu_refinement_results(lu, &refinement, NULL, 1, &backward_error, NULL, &kept),
          "asking what was achieved");
    if (!(backward_error <= worst_backward_error))
      worst_backward_error = backward_error;
    corrections += kept;
    get(context, on_gpu, p.x, system.x, vector_bytes);
    const double found = residual(&p, p.x);
    if (!(found <= worst))
      worst = found;
    growth = fmax(growth, status.growth);
  }
  printf("%d steps: the middle of the plate is at %.6f, largest residual %.2g, growth %.2g\n",
         steps, p.x[p.n / 2], worst, growth);
  printf("largest componentwise backward error %.2g after %lld corrections in all\n",
         worst_backward_error, (long long)corrections);

  give_back(context, on_gpu, workspace.memory);
  give_back(context, on_gpu, refinement.memory);
  give_back(context, on_gpu, values);
  give_back(context, on_gpu, system.x);
  sparsertc_lu_destroy(lu);
  sparsertc_context_destroy(context);
  release(p.offsets);
  release(p.columns);
  release(p.values);
  release(p.b);
  release(p.x);
  /* Rows have at most 5 entries and their diagonals are dominant: nothing grows. */
  return worst <= 1e-14 && worst_backward_error <= 1e-14 ? 0 : 1;
}
