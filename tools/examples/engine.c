/* A small inference engine in C: loads a compiled layer, runs it on the GPU, checks some elements.
 *
 *   engine LAYER.srtc [WEIGHTS.npy] [N]
 *
 * LAYER.srtc is made by `sparsertc compile WEIGHTS.npy -o LAYER.srtc`: f32, row-major, no bias, no
 * residual, no activation. WEIGHTS.npy (f4, C order) is needed for checking only. N: columns of B,
 * 256 where the layer does not fix it. Exit status 0: right, 1: something failed, 3: no GPU. */
#include "sparsertc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(sparsertc_result result, const char* doing) {
  if (result == SPARSERTC_OK)
    return;
  fprintf(stderr, "engine: %s: %s\n%s\n", doing, sparsertc_result_name(result),
          sparsertc_last_error());
  exit(result == SPARSERTC_ERROR_NO_GPU ? 3 : 1);
}

static void fail(const char* what) {
  fprintf(stderr, "engine: %s\n", what);
  exit(1);
}

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes ? bytes : 1);
  if (!memory)
    fail("out of memory");
  return memory;
}

/* The values of an .npy file of `count` little-endian floats (format version 1). */
static float* read_npy(const char* path, size_t count) {
  unsigned char head[10];
  float* values = (float*)allocate(count * sizeof(float));
  FILE* file = fopen(path, "rb");
  if (!file || fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY\x01", 7) != 0 ||
      fseek(file, 10 + head[8] + 256 * head[9], SEEK_SET) != 0 ||
      fread(values, sizeof(float), count, file) != count)
    fail("cannot read the weights");
  fclose(file);
  return values;
}

/* Compares some elements of C with A * B in double precision; returns how many are wrong. */
static int compare(const float* a, const float* b, const float* c, const sparsertc_plan_info* info,
                   int64_t n) {
  int wrong = 0;
  for (int64_t sample = 0; sample < 64; ++sample) {
    const int64_t i = sample * 7919 % info->m, j = sample * 104729 % n;
    double sum = 0, magnitudes = 0;
    for (int64_t k = 0; k < info->k; ++k) {
      const double product = (double)a[i * info->k + k] * b[k * n + j];
      sum += product;
      magnitudes += fabs(product);
    }
    /* k roundings of at most 2^-24 each, relative to the sum of magnitudes. */
    if (!(fabs(c[i * n + j] - sum) <= (double)info->k * ldexp(1, -24) * magnitudes))
      ++wrong;
  }
  return wrong;
}

int main(int argc, char** argv) {
  if (argc < 2)
    fail("usage: engine LAYER.srtc [WEIGHTS.npy] [N]");

  sparsertc_context* context;
  sparsertc_plan* plan;
  check(sparsertc_context_create(0, &context), "opening the GPU");
  check(sparsertc_plan_load(context, argv[1], &plan), "loading the layer");

  sparsertc_plan_info info;
  info.struct_size = sizeof info;
  check(sparsertc_plan_query(plan, &info), "asking about the layer");
  if (strcmp(info.dtype, "f32") != 0 || info.layout != SPARSERTC_ROW_MAJOR || info.has_bias ||
      info.has_residual || strcmp(info.activation, "none") != 0)
    fail("this example runs f32, row-major layers without bias, residual and activation");
  const int64_t n = info.n >= 0 ? info.n : argc > 3 ? atoll(argv[3]) : 256;
  if (n < 1 || info.m < 1 || (info.n >= 0 && (info.ldb != n || info.ldc != n)))
    fail("this example needs rows, columns, and rows without gaps");

  const size_t b_count = (size_t)(info.k * n), c_count = (size_t)(info.m * n);
  float* b = (float*)allocate(b_count * sizeof *b);
  float* c = (float*)allocate(c_count * sizeof *c);
  for (size_t i = 0; i < b_count; ++i)
    b[i] = (float)(i * 2654435761u % 2001) / 1000 - 1; /* in [-1, 1] */

  void *device_b, *device_c, *workspace;
  check(sparsertc_memory_allocate(context, b_count * sizeof *b, &device_b), "allocating B");
  check(sparsertc_memory_allocate(context, c_count * sizeof *c, &device_c), "allocating C");
  check(sparsertc_memory_allocate(context, info.workspace_size, &workspace), "allocating");
  void* stream = NULL; /* the default stream; an engine gives its own CUstream */
  check(sparsertc_memory_write(context, device_b, b, b_count * sizeof *b, stream), "copying B");
  check(sparsertc_workspace_initialize(plan, workspace, stream), "initialising the workspace");

  sparsertc_arguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  arguments.b = device_b;
  arguments.c = device_c;
  arguments.n = n;
  check(sparsertc_plan_execute(plan, &arguments, workspace, stream), "running the layer");

  sparsertc_execution_status status;
  status.struct_size = sizeof status;
  check(sparsertc_plan_status(plan, workspace, stream, &status), "waiting for the layer");
  check(sparsertc_memory_read(context, c, device_c, c_count * sizeof *c, stream), "copying C");
  printf("%lld x %lld, %lld non-zeros, N = %lld, %s for %s, %u registers: C[0][0] = %g\n",
         (long long)info.m, (long long)info.k, (long long)info.nnz, (long long)n, info.strategy,
         info.target, (unsigned)info.registers, c[0]);

  int wrong = 0;
  if (argc > 2) {
    float* a = read_npy(argv[2], (size_t)(info.m * info.k));
    wrong = compare(a, b, c, &info, n);
    printf(wrong ? "WRONG: %d of 64 elements\n" : "right: 64 elements checked\n", wrong);
    free(a);
  }
  sparsertc_memory_free(context, device_b);
  sparsertc_memory_free(context, device_c);
  sparsertc_memory_free(context, workspace);
  sparsertc_plan_destroy(plan);
  sparsertc_context_destroy(context);
  free(b);
  free(c);
  return wrong != 0;
}
