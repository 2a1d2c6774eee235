/* An engine in C that compiles and tunes a layer itself: no command, no files but its own.
 *
 *   engine_tune WEIGHTS.npy OUT.srtc [N] [SECONDS]
 *
 * WEIGHTS.npy (f4, C order, version 1) is a pruned layer; its non-zeros become a matrix in
 * compressed rows, which is compiled for N columns (256). With a GPU the layer is tuned for some
 * seconds (2), and OUT.srtc.tuning.json keeps what was found: where that file is there and holds,
 * nothing is searched. OUT.srtc is the tuned bundle, or the untuned one without a GPU. Exit status
 * 1: something failed. */
#include "sparsertc.h"
#include "sparsertc_compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* doing, const char* what) {
  fprintf(stderr, "engine_tune: %s: %s\n", doing, what);
  exit(1);
}
static void check(sparsertc_result result, const char* doing) {
  if (result != SPARSERTC_OK)
    fail(doing, sparsertc_last_error());
}
static void check_compiler(sparsertc_result result, const char* doing) {
  if (result != SPARSERTC_OK)
    fail(doing, sparsertc_compiler_last_error());
}

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes ? bytes : 1);
  if (!memory)
    fail("allocating", "out of memory");
  return memory;
}

/* The whole file with a NUL behind it, or null where there is none. */
static char* read_file(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  char* text;
  long size;
  if (!file)
    return NULL;
  if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
    fail("reading", path);
  text = (char*)allocate((size_t)size + 1);
  if (fread(text, 1, (size_t)size, file) != (size_t)size)
    fail("reading", path);
  fclose(file);
  text[size] = 0;
  *bytes = (size_t)size;
  return text;
}

static void write_file(const char* path, const void* bytes, size_t count) {
  FILE* file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0)
    fail("writing", path);
}

/* A dense layer in compressed rows. */
typedef struct layer {
  long m, k;
  int64_t* row_offsets;
  int64_t* columns;
  float* values;
} layer;

static layer read_layer(const char* path) {
  layer found;
  size_t bytes = 0;
  char* file = read_file(path, &bytes);
  const char* shape;
  const float* dense;
  int64_t nnz = 0;
  if (!file || bytes < 10 || memcmp(file, "\x93NUMPY\x01", 7) != 0 || !strstr(file + 10, "'<f4'") ||
      !(shape = strstr(file + 10, "'shape': (")) ||
      sscanf(shape, "'shape': (%ld, %ld)", &found.m, &found.k) != 2)
    fail("reading the weights", "expected an .npy file of '<f4' with two dimensions");
  dense = (const float*)(file + 10 + (unsigned char)file[8] + 256 * (unsigned char)file[9]);
  found.row_offsets = (int64_t*)allocate(sizeof(int64_t) * (size_t)(found.m + 1));
  found.columns = (int64_t*)allocate(sizeof(int64_t) * (size_t)(found.m * found.k));
  found.values = (float*)allocate(sizeof(float) * (size_t)(found.m * found.k));
  found.row_offsets[0] = 0;
  for (long i = 0; i < found.m; ++i) {
    for (long j = 0; j < found.k; ++j)
      if (dense[i * found.k + j] != 0) {
        found.columns[nnz] = j;
        found.values[nnz++] = dense[i * found.k + j];
      }
    found.row_offsets[i + 1] = nnz;
  }
  free(file);
  return found;
}

static int32_t show(void* user, const sparsertc_tune_progress* progress) {
  (void)user;
  fprintf(stderr, "\r%llu of %llu candidates, best %.2f us, untuned %.2f us, %.1f of %.1f s ",
          (unsigned long long)progress->tried, (unsigned long long)progress->candidates,
          progress->best_us, progress->untuned_us, progress->seconds, progress->budget_seconds);
  return 0; /* go on */
}

/* Tunes the plan on its GPU, with the record in `record_path` if it is there, and keeps the new
 * one. */
static sparsertc_plan* tune(const sparsertc_plan* untuned, sparsertc_compiler* compiler,
                            double seconds, const char* record_path) {
  static const char* uses[] = {"none", "holds", "is of a similar layer", "refused"};
  size_t bytes = 0;
  char* record = read_file(record_path, &bytes);
  sparsertc_plan* tuned;
  sparsertc_tune_report report;
  sparsertc_tune_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.compile = sparsertc_compiler_candidate;
  options.release = sparsertc_compiler_release;
  options.compile_user = compiler;
  options.budget_seconds = seconds;
  options.similar = 1;
  options.progress = show;
  options.record = record;
  report.struct_size = sizeof report;
  check(sparsertc_plan_tune(untuned, &options, &report, &tuned), "tuning the layer");
  printf("\ntuned: %.2f us, untuned %.2f us, after %llu candidates (%llu refused, %llu wrong) in "
         "%.1f s; record: %s\n  %s\n",
         report.tuned_us, report.untuned_us, (unsigned long long)report.tried,
         (unsigned long long)report.refused, (unsigned long long)report.wrong, report.seconds,
         uses[report.record_use], report.tile);
  if (*report.strategies)
    printf("  strategies: %s\n", report.strategies);
  if (*report.remark)
    printf("  remark: %s\n", report.remark);
  if (report.wrong != 0)
    fail("tuning the layer", "a candidate computed something else");
  write_file(record_path, report.record, strlen(report.record));
  free(record);
  return tuned;
}

int main(int argc, char** argv) {
  if (argc < 3)
    fail("usage", "engine_tune WEIGHTS.npy OUT.srtc [N] [SECONDS]");
  const layer weights = read_layer(argv[1]);
  const char* n = argc > 3 ? argv[3] : "256";
  const double seconds = argc > 4 ? atof(argv[4]) : 2;

  /* SPARSERTC_EXAMPLE_WORDS: more words, "target=sm_80 assembler=none". */
  const char* more = getenv("SPARSERTC_EXAMPLE_WORDS");
  char words[512];
  if (snprintf(words, sizeof words, "columns=%s %s", n, more ? more : "") >= (int)sizeof words)
    fail("reading the words", "too long");
  sparsertc_matrix matrix;
  memset(&matrix, 0, sizeof matrix);
  matrix.struct_size = sizeof matrix;
  matrix.m = weights.m;
  matrix.k = weights.k;
  matrix.nnz = weights.row_offsets[weights.m];
  matrix.row_offsets = weights.row_offsets;
  matrix.column_indices = weights.columns;
  matrix.values = weights.values;
  matrix.index_type = SPARSERTC_INDEX_I64;
  matrix.value_type = SPARSERTC_VALUE_F32;
  sparsertc_compiler* compiler;
  check_compiler(sparsertc_compiler_create(&matrix, words, &compiler), "reading the layer");
  sparsertc_compiled compiled;
  compiled.struct_size = sizeof compiled;
  check_compiler(sparsertc_compiler_compile(compiler, NULL, &compiled), "compiling the layer");
  printf("%ld x %ld, %lld non-zeros, N = %s: a bundle of %llu bytes, assembler: %s\n", weights.m,
         weights.k, (long long)matrix.nnz, n, (unsigned long long)compiled.bytes,
         *sparsertc_compiler_assembler(compiler) ? sparsertc_compiler_assembler(compiler)
                                                 : "the driver's");

  sparsertc_context* context;
  const sparsertc_result opened = sparsertc_context_create(0, &context);
  const int has_gpu = opened != SPARSERTC_ERROR_NO_GPU;
  check(has_gpu ? opened : sparsertc_context_create(-1, &context), "opening the GPU");
  sparsertc_plan* plan;
  check(sparsertc_plan_create(context, compiled.bundle, compiled.bytes, &plan), "loading");
  sparsertc_compiler_release(compiler, &compiled);
  if (has_gpu) {
    char* record_path = (char*)allocate(strlen(argv[2]) + sizeof ".tuning.json");
    strcpy(record_path, argv[2]);
    strcat(record_path, ".tuning.json");
    sparsertc_plan* tuned = tune(plan, compiler, seconds, record_path);
    sparsertc_plan_destroy(plan);
    plan = tuned;
    free(record_path);
  } else {
    printf("SKIPPED: tuning: no GPU\n");
  }
  check(sparsertc_plan_save(plan, argv[2]), "saving the layer");

  sparsertc_plan_destroy(plan);
  sparsertc_context_destroy(context);
  sparsertc_compiler_destroy(compiler);
  free(weights.row_offsets);
  free(weights.columns);
  free(weights.values);
  return 0;
}
