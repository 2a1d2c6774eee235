// Newton's method between the residual, the Jacobian and its solves: norms, steps, decisions.
// runtime/newton/README.md describes the iteration, runtime/newton/gpu_state.h has the same
// structs.
//
// Vectors are v[entry * instances + instance]. Blocks of the kernels over entries are 2^log_lanes
// instances wide (at most 32), the rest of their threads are rows of entries; blockIdx.x counts
// groups of instances, blockIdx.y chunks of entries. Arguments are of 8 bytes each.

using u32 = unsigned;
using u64 = unsigned long long;

/// Entries whose loads a thread has under way at once.
constexpr u32 kInFlight = 4;

enum Outcome : u32 { kRunning, kConverged, kDiverged, kStalled, kSingular, kNotFinite, kLimit };

/// What the next step kernel does to the iterate.
enum Action : u32 {
  kLeave,   // nothing: the instance has ended
  kStep,    // takes the full step, where a new one begins
  kRetry,   // takes the halved step from where the last one began
  kRestore, // goes back to where the last one began
};

struct State {
  double norm;   // max |F_i| where the last accepted step ended
  double first;  // the same at the start
  double length; // of the step that is tried, 1: full
  u32 outcome;
  u32 iterations;
  u32 halvings; // of the step that is tried
  u32 action;
  u32 fresh; // whether the Jacobian is that of where the step begins
  u32 unused;
};

struct Control {
  u32 running;  // instances that have not ended
  u32 trying;   // those among them that have not accepted a step yet
  u32 stale;    // those that need a new Jacobian
  u32 singular; // instances that have ended so
  double tolerance;
  double divergence_ratio;
  u32 maximum_iterations;
  u32 maximum_halvings;
  u32 damping;
  u32 recorded; // iterations that the history has room for
  u32 refactor_every;
  u32 age;    // steps since the Jacobian was new, the next one included
  u32 begins; // whether the next trial begins a step
  u32 fresh;  // whether that step's Jacobian is new
  u32 factorizations;
  u32 trials;
};

/// What the factorization has to say: of one matrix (ir/lu_dataflow.h: LuStatusRecord), or a word
/// for each of a batch.
struct Factorization {
  bool failed;
  bool replaced;
};
__device__ Factorization factorization_of(const u64* record, const u32* words, u32 failed_bit,
                                          u64 instance) {
  constexpr u64 kNone = 0x7FFFFFFFFFFFFFFF;
  if (record != nullptr)
    return {record[4] != kNone || record[5] != kNone, record[2] != 0};
  const u32 word = words[instance];
  return {(word & failed_bit) != 0, (word & ~failed_bit) != 0};
}

__device__ bool finite(double a) {
  return a - a == 0;
}

/// The larger one, NaN where either is.
__device__ double larger(double a, double b) {
  return a != a || a >= b ? a : b;
}

/// partial[chunk * instances + instance] = max |f_i| of the chunk's entries, NaN where one is.
template <class T>
__device__ void norm_of(const T* f, u64 n, u64 instances, u64 log_lanes, u64 chunk,
                        double* partial) {
  __shared__ double found[256];
  const u32 lanes = 1u << log_lanes, rows = 256u >> log_lanes;
  const u32 row = threadIdx.x >> log_lanes;
  const u64 instance = u64(blockIdx.x) * lanes + (threadIdx.x & (lanes - 1));
  const u64 begin = blockIdx.y * chunk, end = begin + chunk < n ? begin + chunk : n;
  double most = 0;
  if (instance < instances)
    for (u64 e = begin + row; e < end; e += kInFlight * rows) {
      T value[kInFlight];
#pragma unroll
      for (u32 k = 0; k < kInFlight; ++k)
        value[k] = e + k * rows < end ? f[(e + k * rows) * instances + instance] : T(0);
#pragma unroll
      for (u32 k = 0; k < kInFlight; ++k)
        most = larger(most, fabs(double(value[k])));
    }
  found[threadIdx.x] = most;
  for (u32 half = rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row < half)
      found[threadIdx.x] = larger(found[threadIdx.x], found[threadIdx.x + half * lanes]);
  }
  if (row == 0 && instance < instances)
    partial[blockIdx.y * instances + instance] = found[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(256)
    sparsertc_newton_norm(const double* f, u64 n, u64 instances, u64 log_lanes, u64 chunk,
                          double* partial) {
  norm_of(f, n, instances, log_lanes, chunk, partial);
}
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_newton_norm_f32(const float* f, u64 n, u64 instances, u64 log_lanes, u64 chunk,
                              double* partial) {
  norm_of(f, n, instances, log_lanes, chunk, partial);
}

__device__ double reduce(const double* partial, u64 chunks, u64 instances, u64 instance) {
  double most = 0;
  for (u64 c = 0; c < chunks; ++c)
    most = larger(most, partial[c * instances + instance]);
  return most;
}

/// Ends the instance where its norm says so.
__device__ void judge(State& state, const Control& control) {
  state.action = kLeave;
  if (state.norm <= control.tolerance) {
    state.outcome = kConverged;
  } else if (state.norm > control.divergence_ratio * state.first) {
    state.outcome = kDiverged;
  } else if (state.iterations == control.maximum_iterations) {
    state.outcome = state.norm > state.first ? kDiverged : kLimit;
  } else {
    state.action = kStep;
    state.length = 1;
    state.halvings = 0;
  }
}

/// From the norm at the start. A thread an instance; so in the next one.
extern "C" __global__ void sparsertc_newton_start(const double* partial, u64 chunks, u64 instances,
                                                  State* states, double* history,
                                                  Control* control) {
  const u64 instance = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (instance >= instances)
    return;
  State state = {};
  state.norm = state.first = reduce(partial, chunks, instances, instance);
  for (u64 i = 1; i <= 2 * u64(control->recorded); ++i)
    history[i * instances + instance] = 0;
  history[instance] = state.norm;
  if (finite(state.norm))
    judge(state, *control);
  else
    state.outcome = kNotFinite;
  if (state.outcome == kRunning)
    atomicAdd(&control->running, 1u);
  states[instance] = state;
}

/// Moves x, or leaves it, as the instance's state says. Where its step begins, `base` becomes what
/// x was.
extern "C" __global__ void __launch_bounds__(256)
    sparsertc_newton_step(double* x, double* base, const double* step, u64 n, u64 instances,
                          u64 log_lanes, u64 chunk, const State* states, const u64* record,
                          const u32* words, u64 failed_bit, const Control* control) {
  const u32 lanes = 1u << log_lanes, rows = 256u >> log_lanes;
  const u64 instance = u64(blockIdx.x) * lanes + (threadIdx.x & (lanes - 1));
  if (instance >= instances)
    return;
  const State state = states[instance];
  if (state.action == kLeave || (state.action == kStep && control->begins == 0))
    return;
  const bool starts = state.action == kStep;
  if (starts && factorization_of(record, words, u32(failed_bit), instance).failed)
    return;
  const double length = state.action == kRestore ? 0 : state.length;
  const u64 begin = blockIdx.y * chunk, end = begin + chunk < n ? begin + chunk : n;
  const double* const source = starts ? x : base;
  for (u64 e = begin + (threadIdx.x >> log_lanes); e < end; e += kInFlight * rows) {
    double from[kInFlight], along[kInFlight];
#pragma unroll
    for (u32 k = 0; k < kInFlight; ++k) {
      const u64 at = (e + k * rows) * instances + instance;
      const bool inside = e + k * rows < end;
      from[k] = inside ? source[at] : 0;
      along[k] = inside && length != 0 ? step[at] : 0;
    }
#pragma unroll
    for (u32 k = 0; k < kInFlight; ++k)
      if (e + k * rows < end) {
        const u64 at = (e + k * rows) * instances + instance;
        if (starts)
          base[at] = from[k];
        x[at] = length == 0 ? from[k] : from[k] - length * along[k];
      }
  }
}

/// Judges the residual at x. The history of step lengths stands behind that of norms: `recorded` +
/// 1 of the latter, by instance.
extern "C" __global__ void sparsertc_newton_judge(const double* partial, u64 chunks, u64 instances,
                                                  State* states, const u64* record,
                                                  const u32* words, u64 failed_bit, double* history,
                                                  Control* control) {
  const u64 instance = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (instance >= instances)
    return;
  State state = states[instance];
  if (state.outcome != kRunning)
    return;
  const bool begins = control->begins != 0;
  if (state.action == kStep && !begins) { // waits for the others
    atomicAdd(&control->running, 1u);
    return;
  }
  if (begins)
    state.fresh = control->fresh;
  const Factorization factorization = factorization_of(record, words, u32(failed_bit), instance);
  const double norm = reduce(partial, chunks, instances, instance);
  bool needs_jacobian = false;
  if (state.action == kRestore) { // x is back: what was found there holds again
    state.action = kStep;
    state.length = 1;
    state.halvings = 0;
    needs_jacobian = true;
  } else if (begins && factorization.failed) {
    state.outcome = kSingular;
    state.action = kLeave;
  } else if (control->damping == 0 && !finite(norm)) {
    state.outcome = kNotFinite;
    state.action = kRestore;
  } else if (control->damping == 0 || norm < state.norm) {
    state.norm = norm;
    ++state.iterations;
    if (state.iterations <= control->recorded) {
      history[state.iterations * instances + instance] = norm;
      history[(u64(control->recorded) + state.iterations) * instances + instance] = state.length;
    }
    judge(state, *control);
  } else if (state.halvings < control->maximum_halvings) {
    state.length /= 2;
    ++state.halvings;
    state.action = kRetry;
  } else {
    state.action = kRestore;
    if (state.fresh != 0)
      state.outcome = factorization.replaced ? kSingular : kStalled;
  }
  states[instance] = state;
  if (state.outcome == kSingular)
    atomicAdd(&control->singular, 1u);
  if (state.outcome != kRunning)
    return;
  atomicAdd(&control->running, 1u);
  if (state.action != kStep)
    atomicAdd(&control->trying, 1u);
  if (needs_jacobian)
    atomicAdd(&control->stale, 1u);
}

/// After the start and after each trial, one thread: what the next trial is. flags: how many
/// instances go on, how many of them still try their step, whether the next step has a new
/// Jacobian, how many instances have ended as singular.
extern "C" __global__ void sparsertc_newton_decide(Control* control, u32* flags) {
  Control c = *control;
  c.begins = c.trying == 0 ? 1 : 0;
  if (c.begins != 0) {
    c.fresh = c.age >= c.refactor_every || c.stale != 0 ? 1 : 0;
    c.age = c.fresh != 0 ? 1 : c.age + 1;
    c.stale = 0;
  }
  if (c.running != 0) {
    ++c.trials;
    c.factorizations += c.begins != 0 ? c.fresh : 0;
  }
  flags[0] = c.running;
  flags[1] = c.trying;
  flags[2] = c.fresh;
  flags[3] = c.singular;
  c.running = c.trying = 0; // the next judge counts again
  *control = c;
}

/// After the norms of the Jacobian's values: what is not finite is not merely singular.
extern "C" __global__ void sparsertc_newton_classify(const double* partial, u64 chunks,
                                                     u64 instances, State* states) {
  const u64 instance = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (instance < instances && states[instance].outcome == kSingular &&
      !finite(reduce(partial, chunks, instances, instance)))
    states[instance].outcome = kNotFinite;
}
