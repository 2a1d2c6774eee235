/* An inference engine in C for a network of several layers: one allocation beside input and output,
 * and all layers as one CUDA graph.
 *
 *   engine_network NET.srtc [N]
 *
 * NET.srtc is made by `sparsertc compile --network NET.json -o NET.srtc`. N: columns or images, 1
 * where the network does not fix them. The graph's result is compared, byte by byte, with that of
 * the layers one by one, each with an output of its own. Exit status 0: the same, 1: something
 * failed, 3: no GPU. */
#include "sparsertc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what) {
  fprintf(stderr, "engine_network: %s\n", what);
  exit(1);
}

static void check(sparsertc_result result, const char* doing) {
  if (result == SPARSERTC_OK)
    return;
  fprintf(stderr, "engine_network: %s: %s\n%s\n", doing, sparsertc_result_name(result),
          sparsertc_last_error());
  exit(result == SPARSERTC_ERROR_NO_GPU ? 3 : 1);
}

static void* allocate(size_t bytes) {
  void* memory = calloc(bytes ? bytes : 1, 1);
  if (!memory)
    fail("out of memory");
  return memory;
}

/* ---- the part of the CUDA driver API that this engine uses itself ---- */

typedef int (*create_function)(void** made, unsigned flags);
typedef int (*begin_capture_function)(void* stream, int mode);
typedef int (*end_capture_function)(void* stream, void** graph);
typedef int (*instantiate_function)(void** executable, void* graph, unsigned long long flags);
typedef int (*on_stream_function)(void* object, void* stream);
typedef int (*object_function)(void* object);
typedef int (*elapsed_function)(float* milliseconds, void* start, void* end);

/* A function of the driver, from the library that the runtime has opened, too. */
static void* driver_function(const char* name) {
  typedef int (*get_function)(const char*, void**, int, unsigned long long, unsigned*);
  static get_function get_address;
  void* function = NULL;
  unsigned status;
  if (!get_address) {
    const char* path = getenv("SPARSERTC_LIBCUDA");
    void* library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
    void* found = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!found)
      fail("the driver's library cannot be opened");
    memcpy(&get_address, &found, sizeof found);
  }
  if (get_address(name, &function, 12000, 0, &status) != 0 || !function)
    fail(name);
  return function;
}
/* ISO C has no conversion from an object's pointer to a function's. */
#define LOAD(type, variable, name)                                                                 \
  type variable;                                                                                   \
  do {                                                                                             \
    void* found = driver_function(name);                                                           \
    memcpy(&variable, &found, sizeof found);                                                       \
  } while (0)

static void check_cuda(int result, const char* doing) {
  if (result == 0)
    return;
  fprintf(stderr, "engine_network: %s: CUDA error %d\n", doing, result);
  exit(1);
}

/* ---- the layers one by one ---- */

/* Runs every layer with an output of its own; the last one's is `output`. */
static void run_layers(const sparsertc_context* context, const sparsertc_network* network,
                       const sparsertc_network_info* info, void* input, void* output,
                       void* workspace, int64_t n, void* stream) {
  void** outputs = (void**)allocate(info->layer_count * sizeof *outputs);
  uint32_t i;
  for (i = 0; i < info->layer_count; ++i) {
    sparsertc_layer_info layer;
    sparsertc_plan* plan;
    sparsertc_plan_info plan_info;
    sparsertc_arguments arguments;
    layer.struct_size = sizeof layer;
    plan_info.struct_size = sizeof plan_info;
    check(sparsertc_network_layer(network, i, n, &layer), "asking about a layer");
    check(sparsertc_network_plan(network, i, &plan), "taking a layer's plan");
    check(sparsertc_plan_query(plan, &plan_info), "asking about a layer's plan");
    outputs[i] = output;
    if (i + 1 < info->layer_count)
      check(sparsertc_memory_allocate(context, layer.output_size, &outputs[i]), "allocating");
    memset(&arguments, 0, sizeof arguments);
    arguments.struct_size = sizeof arguments;
    arguments.b = layer.input == SPARSERTC_NETWORK_INPUT ? input : outputs[layer.input];
    arguments.c = outputs[i];
    arguments.bias = (const char*)workspace + layer.bias_offset;
    if (layer.residual != SPARSERTC_NOTHING)
      arguments.residual =
          layer.residual == SPARSERTC_NETWORK_INPUT ? input : outputs[layer.residual];
    arguments.n = plan_info.n >= 0 ? plan_info.n : n;
    check(sparsertc_plan_execute(plan, &arguments, workspace, stream), layer.name);
    sparsertc_plan_destroy(plan);
  }
  for (i = 0; i + 1 < info->layer_count; ++i)
    check(sparsertc_memory_free(context, outputs[i]), "freeing");
  free(outputs);
}

static int compare_floats(const void* a, const void* b) {
  const float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  enum { kSamples = 25, kReplays = 20 };
  sparsertc_context* context;
  sparsertc_network* network;
  sparsertc_network_info info;
  sparsertc_plan* first;
  sparsertc_plan_info first_info;
  sparsertc_network_arguments arguments;
  void *input, *output, *alone, *workspace, *stream, *graph, *executable, *start, *end;
  float samples[kSamples];
  int i, j, same;

  if (argc < 2)
    fail("usage: engine_network NET.srtc [N]");
  check(sparsertc_context_create(0, &context), "opening the GPU");
  check(sparsertc_network_load(context, argv[1], &network), "loading the network");
  info.struct_size = sizeof info;
  memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  check(sparsertc_network_plan(network, 0, &first), "taking the first layer");
  first_info.struct_size = sizeof first_info;
  check(sparsertc_plan_query(first, &first_info), "asking about the first layer");
  arguments.n = first_info.n >= 0 ? first_info.n : argc > 2 ? atoll(argv[2]) : 1;
  check(sparsertc_network_query(network, arguments.n, &info), "asking about the network");
  if (strcmp(first_info.dtype, "f32") != 0)
    fail("this example makes inputs of f32 only");

  /* Everything that is ever allocated on the device. */
  check(sparsertc_memory_allocate(context, info.input_size, &input), "allocating the input");
  check(sparsertc_memory_allocate(context, info.output_size, &output), "allocating the output");
  check(sparsertc_memory_allocate(context, info.workspace_size, &workspace), "allocating");
  arguments.input = input;
  arguments.output = output;

  LOAD(create_function, create_stream, "cuStreamCreate");
  LOAD(create_function, create_event, "cuEventCreate");
  LOAD(begin_capture_function, begin_capture, "cuStreamBeginCapture");
  LOAD(end_capture_function, end_capture, "cuStreamEndCapture");
  LOAD(instantiate_function, instantiate, "cuGraphInstantiateWithFlags");
  LOAD(on_stream_function, launch_graph, "cuGraphLaunch");
  LOAD(on_stream_function, record, "cuEventRecord");
  LOAD(object_function, synchronize, "cuEventSynchronize");
  LOAD(elapsed_function, elapsed, "cuEventElapsedTime");
  check_cuda(create_stream(&stream, 1), "making a stream");
  check_cuda(create_event(&start, 0), "making an event");
  check_cuda(create_event(&end, 0), "making an event");

  {
    const size_t count = info.input_size / sizeof(float);
    float* values = (float*)allocate(info.input_size);
    size_t k;
    for (k = 0; k < count; ++k)
      values[k] = (float)(k * 2654435761u % 2001) / 1000 - 1; /* in [-1, 1] */
    check(sparsertc_memory_write(context, input, values, info.input_size, stream), "copying");
    free(values);
  }
  check(sparsertc_network_initialize(network, workspace, stream), "initialising the workspace");

  /* Without a graph, and then recorded once, replayed as often as there are inputs. */
  check(sparsertc_network_execute(network, &arguments, workspace, stream), "running the layers");
  check_cuda(begin_capture(stream, 1), "recording");
  check(sparsertc_network_execute(network, &arguments, workspace, stream), "recording the layers");
  check_cuda(end_capture(stream, &graph), "recording");
  check_cuda(instantiate(&executable, graph, 0), "preparing the graph");
  check_cuda(launch_graph(executable, stream), "launching the graph");
  for (i = 0; i < kSamples; ++i) {
    check_cuda(record(start, stream), "timing");
    for (j = 0; j < kReplays; ++j)
      check_cuda(launch_graph(executable, stream), "launching the graph");
    check_cuda(record(end, stream), "timing");
    check_cuda(synchronize(end), "waiting");
    check_cuda(elapsed(&samples[i], start, end), "timing");
  }
  qsort(samples, kSamples, sizeof *samples, compare_floats);
  printf("%s: %u layers, %llu bytes of workspace: %.2f us for a replay of the graph\n", info.name,
         (unsigned)info.layer_count, (unsigned long long)info.workspace_size,
         samples[kSamples / 2] * 1000 / kReplays);

  check(sparsertc_memory_allocate(context, info.output_size, &alone), "allocating");
  run_layers(context, network, &info, input, alone, workspace, arguments.n, stream);
  {
    sparsertc_execution_status status;
    char* by_graph = (char*)allocate(info.output_size);
    char* by_layers = (char*)allocate(info.output_size);
    status.struct_size = sizeof status;
    check(sparsertc_network_status(network, workspace, stream, &status), "waiting");
    check(sparsertc_memory_read(context, by_graph, output, info.output_size, stream), "copying");
    check(sparsertc_memory_read(context, by_layers, alone, info.output_size, stream), "copying");
    same = memcmp(by_graph, by_layers, info.output_size) == 0;
    printf(same ? "right: the layers one by one compute the same\n"
                : "WRONG: the layers one by one compute something else\n");
    free(by_graph);
    free(by_layers);
  }
  sparsertc_memory_free(context, input);
  sparsertc_memory_free(context, output);
  sparsertc_memory_free(context, alone);
  sparsertc_memory_free(context, workspace);
  sparsertc_plan_destroy(first);
  sparsertc_network_destroy(network);
  sparsertc_context_destroy(context);
  return !same;
}
