// The work on a residual: evaluation, derivatives, finding the pattern. Stands after the user's
// text. A call is a struct of arguments, in the order in which the host fills them in; it runs for
// tasks x instances: on the GPU a thread each, on the host one after the other.

namespace sparsertc {

// What takes a number that is going away takes f by value, and its result would be lost.
template <class T>
concept ByRow = requires(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  residual(i, x, p, f);
}
&&!requires(Row i, Unknowns<T> x, const Parameters& p) {
  residual(i, x, p, T(0));
};
template <class T>
concept Whole = requires(Unknowns<T> x, const Parameters& p, Residuals<T> f) {
  residual(x, p, f);
};

inline constexpr bool kByRow = ByRow<Real>;
static_assert(kByRow || Whole<Real>, "SPARSERTC_NO_SIGNATURE");
static_assert(!kShared || (kByRow && !kBatch && !kChecked));

/// What every call ends in.
struct Common {
  const Real* x;
  u64 n;
  u64 stride;           ///< between the entries of a vector
  u64 first;            ///< instance in the vectors
  u64 parameter_stride; ///< between the entries of an array that varies
  u64 parameter_first;
  u64 instances; ///< that run
  ParameterArrays parameters;

  __device__ Parameters parameters_of(u64 instance, ReadsHook hook = {}) const {
    return Parameters(parameters, parameter_stride, parameter_first + instance, hook);
  }
  __device__ Vector vector(const Real* data, u64 instance) const {
    return Vector(data, stride, first + instance);
  }
  __device__ u64 place(u64 entry, u64 instance) const {
    return kBatch ? entry * stride + first + instance : entry;
  }
};

/// Whether this one of a task's lanes stores result k: all have them.
__device__ inline bool writes(u32 k) {
  return !kShared || own_lane() == (k & (lane_count() - 1));
}

/// The residual, in the user's form, with its results put where `f` says.
template <class T>
__device__ void evaluate(const Unknowns<T>& x, const Parameters& p, const Residuals<T>& f) {
  f.clear();
  if constexpr (kByRow) {
    for (long long i = 0; i < x.size(); ++i) {
      T own = T(0);
      residual(Row(i), x, p, own);
      f[i] = own;
    }
  } else {
    residual(x, p, f);
  }
}

/// Which tasks are shared by how many lanes (ir/jacobian_tables.h: TaskLanes), and the warps that
/// they take.
struct TaskLanes {
  u32 warp_end[6];
  u32 task_end[6];
};

/// Which form the user's residual has: 1 by row, 0 whole.
struct FormCall {
  u64* by_row;
  Common c;
  __device__ u64 tasks() const { return 1; }
  __device__ void operator()(u64, u64) const { *by_row = kByRow ? 1 : 0; }
};

/// f = F(x).
struct ResidualCall {
  Real* f;
  const u32* row; ///< by task; null: the task's number
  TaskLanes lanes;
  Common c;
  __device__ u64 tasks() const { return kByRow ? c.n : 1; }
  template <class T = Real>
  __device__ void operator()(u64 task, u64 instance) const {
    const Parameters p = c.parameters_of(instance);
    const Unknowns<T> x(c.vector(c.x, instance), c.n);
    if constexpr (kByRow) {
      T own = T(0);
      const u64 i = row == nullptr ? task : load(row + task);
      residual(Row(i), x, p, own);
      if (writes(0))
        f[c.place(i, instance)] = own;
    } else {
      evaluate(x, p, Residuals<T>(f, c.n, c.stride, c.first + instance));
    }
  }
};

/// y = J(x) v; `work`: 2 n numbers for each instance where the residual is whole.
struct ProductCall {
  const Real* v;
  Real* y;
  Real* work;
  const u32* row; ///< by task; null: the task's number
  TaskLanes lanes;
  Common c;
  __device__ u64 tasks() const { return kByRow ? c.n : 1; }
  template <class T = Dual<Real, SeedVector::Tangent>>
  __device__ void operator()(u64 task, u64 instance) const {
    const Parameters p = c.parameters_of(instance);
    const Unknowns<T> x(c.vector(c.x, instance), c.n, SeedVector{c.vector(v, instance)});
    if constexpr (kByRow) {
      T own = T(0);
      const u64 i = row == nullptr ? task : load(row + task);
      residual(Row(i), x, p, own);
      if (writes(0))
        y[c.place(i, instance)] = own.t.d[0];
    } else {
      Value* const words = reinterpret_cast<Value*>(work + c.n * c.instances);
      const Residuals<T> f(work, words, c.n, instance, c.instances);
      evaluate(x, p, f);
      for (u64 i = 0; i < c.n; ++i)
        y[c.place(i, instance)] = f.word(i, 0);
    }
  }
};

/// Derivatives of one row by W of its columns (ir/jacobian_tables.h: LocalTasks).
template <int W>
struct LocalCall {
  Value* values;
  Real* f; ///< where the rows' values go, too; null: nowhere
  const u32* row;
  const u32* columns;
  const u32* places;
  u64 count;
  TaskLanes lanes;
  Common c;
  using T = Dual<Real, typename SeedColumns<W>::Tangent>;
  __device__ u64 tasks() const { return count; }
  __device__ void operator()(u64 task, u64 instance) const {
    if constexpr (kByRow) {
      const Parameters p = c.parameters_of(instance);
      SeedColumns<W> seed;
      u32 place[W]; // read early: at the end the stores would wait for them
      SPARSERTC_UNROLLED
      for (int k = 0; k < W; ++k) {
        seed.column[k] = load(columns + task * W + k);
        place[k] = load(places + task * W + k);
      }
      const Unknowns<T> x(c.vector(c.x, instance), c.n, seed);
      T own = T(0);
      const u32 i = load(row + task);
      residual(Row(i), x, p, own);
      // A row's tasks stand together.
      if (kBatch && f != nullptr && (task == 0 || load(row + task - 1) != i))
        f[c.place(i, instance)] = own.v;
      SPARSERTC_UNROLLED
      for (int k = 0; k < W; ++k)
        if (writes(k) && (W == 1 || seed.column[k] != 0xFFFFFFFFu))
          values[c.place(place[k], instance)] = own.t.d[k];
    }
  }
};

/// Derivatives of a row by O columns of its own and I of each of its sum's terms
/// (ir/jacobian_tables.h: TermTasks).
template <int O, int I>
struct TermsCall {
  Value* values;
  Real* f; ///< as in LocalCall
  const u32* row;
  const u32* columns;
  const u32* places;
  const u32* first;
  const u32* term_columns;
  const u32* term_places;
  u64 count;
  TaskLanes lanes;
  Common c;
  using T = Dual<Real, typename SeedTerms<O, I>::Tangent>;
  __device__ u64 tasks() const { return count; }
  __device__ void operator()(u64 task, u64 instance) const {
    if constexpr (kByRow) {
      const Parameters p = c.parameters_of(instance);
      ColumnArray<O> column;
      u32 place[O];
      SPARSERTC_UNROLLED
      for (int k = 0; k < O; ++k) {
        column[k] = load(columns + task * O + k);
        place[k] = load(places + task * O + k);
      }
      const u32 begin = load(first + task), terms = load(first + task + 1) - begin;
      TermState& state = term_state();
      state = {term_columns + u64(begin) * I, terms, 0, true};
      T own = T(0);
      const SeedTerms<O, I> seed(column);
      const u32 i = load(row + task);
      residual(Row(i), Unknowns<T>(c.vector(c.x, instance), c.n, seed), p, own);
      if (kBatch && f != nullptr)
        f[c.place(i, instance)] = own.v;
      SPARSERTC_UNROLLED
      for (int k = 0; k < O; ++k)
        if (writes(k) && column[k] != 0xFFFFFFFFu)
          values[c.place(place[k], instance)] = own.t.d[k];
      const Value slope = own.t.d[O]; // by the sum
      const bool steep = ::isinf(slope);
      const Value* const kept = &kept_number(0);
      u32 mine = 0;
      for (u32 term = own_lane(); term < terms; term += lane_count(), ++mine)
        SPARSERTC_UNROLLED
      for (int k = 0; k < I; ++k) {
        const u32 where = load(term_places + u64(begin + term) * I + k);
        if (where == 0xFFFFFFFFu)
          continue;
        // What does not move the sum does not move the row, however steep it is.
        const Value by = mine < state.kept ? kept[(mine * I + k) * kept_stride()] : Value(0);
        values[c.place(where, instance)] = by == Value(0) && steep ? Value(0) : slope * by;
      }
    }
  }
};

/// Derivatives of all rows by W colours (ir/jacobian_tables.h: ColouredTasks); `work`: (1 + W) n
/// numbers for each task and instance.
template <int W>
struct ColouredCall {
  Value* values;
  const u32* colour;
  const u64* offset;
  const u32* row;
  const u32* tangent;
  const u32* places;
  u64 count;
  Real* work;
  Common c;
  using T = Dual<Real, typename SeedColours<W>::Tangent>;
  __device__ u64 tasks() const { return count; }
  __device__ void operator()(u64 task, u64 instance) const {
    const Parameters p = c.parameters_of(instance);
    const Unknowns<T> x(c.vector(c.x, instance), c.n,
                        SeedColours<W>{colour, static_cast<u32>(task) * W});
    const u64 threads = count * c.instances;
    Value* const words = reinterpret_cast<Value*>(work + c.n * threads);
    const Residuals<T> f(work, words, c.n, task * c.instances + instance, threads);
    evaluate(x, p, f);
    for (u64 e = load(offset + task); e < load(offset + task + 1); ++e)
      values[c.place(load(places + e), instance)] = f.word(load(row + e), load(tangent + e));
  }
};

/// Writes as many numbers as a Jacobian has to the same places, and does nothing else: what an
/// evaluation's time is compared with. `places` null: number k at k.
struct WriteCall {
  Value* values;
  const u32* places;
  u64 count;
  Common c;
  __device__ u64 tasks() const { return count; }
  __device__ void operator()(u64 task, u64 instance) const {
    values[c.place(places == nullptr ? task : load(places + task), instance)] =
        static_cast<Value>(task);
  }
};

/// How many unknowns each row reads, counting each as often as it is read, and which they are
/// where there is a list, and in which term of a sum; row i's list begins at offset[i].
struct ReadsCall {
  u32* count;
  u32* sums;
  u32* lengths; ///< of the row's last sum, in terms
  const u64* offset;
  u32* list;
  u32* terms;
  Common c;
  __device__ u64 tasks() const { return c.n; }
  template <class T = Dual<Real, SeedUnknowns::Tangent>>
  __device__ void operator()(u64 task, u64 instance) const {
    if constexpr (kByRow) {
      u32 reads = 0;
      const u64 begin = list == nullptr ? 0 : offset[task];
      const SeedUnknowns seed{&reads, list == nullptr ? nullptr : list + begin, terms + begin};
      sum_state().sums = sum_state().terms = 0;
      T own = T(0);
      residual(Row(task), Unknowns<T>(c.vector(c.x, instance), c.n, seed),
               c.parameters_of(instance), own);
      count[task] = reads;
      sums[task] = sum_state().sums;
      lengths[task] = sum_state().terms;
    }
  }
};

#if SPARSERTC_READS == 1
/// What each row reads (ReadLog); row i's lists begin at offset[i]. `words` null: how much that is.
struct ReadLogCall {
  u32* count;
  u32* terms;   ///< of the row's last sum
  u32* decided; ///< 1 where the row looks at values: elsewhere it may read something else
  const u64* offset;
  u64* words;
  u32* kinds;
  Common c;
  __device__ u64 tasks() const { return c.n; }
  template <class T = Dual<Real, SeedLog::Tangent>>
  __device__ void operator()(u64 task, u64 instance) const {
    if constexpr (kByRow) {
      ReadLog log{nullptr, nullptr};
      if (words != nullptr)
        log = {words + offset[task], kinds + offset[task]};
      sum_state().terms = 0;
      sum_state().decided = false;
      T own = T(0);
      residual(Row(task), Unknowns<T>(c.vector(c.x, instance), c.n, SeedLog{&log}),
               c.parameters_of(instance, {&log}), own);
      count[task] = log.count;
      terms[task] = sum_state().terms;
      decided[task] = sum_state().decided ? 1 : 0;
    }
  }
};
#endif

/// Which of (up to 64 of) the unknowns that a row reads it depends on. Task t is of row row[t] and
/// its list from first[t] to first[t + 1].
struct RowSetsCall {
  const u32* row;
  const u64* first;
  const u32* list;
  u64* sets;
  u64 count;
  Common c;
  __device__ u64 tasks() const { return count; }
  template <class T = Dual<Real, SeedList::Tangent>>
  __device__ void operator()(u64 task, u64 instance) const {
    if constexpr (kByRow) {
      const SeedList seed{list + first[task], static_cast<u32>(first[task + 1] - first[task])};
      T own = T(0);
      residual(Row(row[task]), Unknowns<T>(c.vector(c.x, instance), c.n, seed),
               c.parameters_of(instance), own);
      sets[task] = own.t.set;
    }
  }
};

/// Which of 64 unknowns each row depends on, for chunks of 64: sets[row * chunks + chunk]. `work`:
/// n numbers for each chunk.
struct WholeSetsCall {
  u64 first_chunk;
  u64 chunks;
  u64* sets;
  Real* work;
  Common c;
  __device__ u64 tasks() const { return chunks; }
  template <class T = Dual<Real, SeedChunk::Tangent>>
  __device__ void operator()(u64 task, u64 instance) const {
    const SeedChunk seed{static_cast<u32>(first_chunk + task)};
    evaluate(Unknowns<T>(c.vector(c.x, instance), c.n, seed), c.parameters_of(instance),
             Residuals<T>(work, sets, c.n, task, chunks));
  }
};

#ifdef __CUDACC__

template <class Call>
concept SharedCall = kShared && requires(const Call& call) {
  call.lanes;
};

/// The task of the thread's lanes, whose number is set; no task below the last of `groups`: none.
__device__ inline u32 task_of(const TaskLanes& groups, u32 thread) {
  const u32 warp = thread / 32;
  u32 warps = 0, tasks = 0, end = groups.task_end[0], group = 0;
#pragma unroll
  for (u32 g = 1; g < 6; ++g)
    if (warp >= groups.warp_end[g - 1]) {
      warps = groups.warp_end[g - 1];
      tasks = groups.task_end[g - 1];
      end = groups.task_end[g];
      group = g;
    }
  lanes_of_task() = 32 >> group;
  const u32 task = tasks + ((thread - warps * 32) >> (5 - group));
  return task < end ? task : 0xFFFFFFFFu;
}

template <SharedCall Call>
__device__ void run_shared(const Call& call) {
  const u32 task = task_of(call.lanes, blockIdx.x * blockDim.x + threadIdx.x);
  if (task != 0xFFFFFFFFu)
    call(task, 0);
}

template <class Call>
__device__ void run(const Call& call) {
  if (kChecked)
    sum_state() = SumState{};
  if (kShared)
    lanes_of_task() = 1;
  if constexpr (SharedCall<Call>) {
    run_shared(call);
  } else if constexpr (kBatch) {
    const u64 instance = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (instance < call.c.instances)
      for (u64 task = blockIdx.y; task < call.tasks(); task += gridDim.y)
        call(task, instance);
  } else {
    const u64 task = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (task < call.tasks())
      call(task, 0);
  }
}
// In a batch there are always more blocks than fit: what takes a few registers less has more warps
// to choose from.
#if SPARSERTC_BATCH
#define SPARSERTC_BOUNDS __launch_bounds__(128, sizeof(sparsertc::Value) == 4 ? 8 : 7)
#else
#define SPARSERTC_BOUNDS
#endif
#define SPARSERTC_ENTRY(name, ...)                                                                 \
  extern "C" __global__ void SPARSERTC_BOUNDS name(const __VA_ARGS__ call) {                       \
    run(call);                                                                                     \
  }

/// Hands out what went wrong since the last time.
extern "C" __global__ void sparsertc_take_status(Status* status) {
  *status = first_status;
  first_status = {0, 0, 0, 0};
}

#else

/// The tasks from first to last. 0, or the code of what went wrong: then the rest was not done.
// Flat: GCC calls functions as large as residuals, and passes numbers with tangents through memory.
template <class Call>
__attribute__((flatten)) int run(const Call& call, u64 first, u64 last) {
  sum_state() = SumState{}; // a sum that went wrong may have left it
  try {
    for (u64 task = first; task < last && task < call.tasks(); ++task)
      for (u64 instance = 0; instance < call.c.instances; ++instance)
        call(task, instance);
  } catch (const Stopped&) {
    return static_cast<int>(first_status.code);
  }
  return 0;
}
#define SPARSERTC_ENTRY(name, ...)                                                                 \
  extern "C" __attribute__((visibility("default"))) int name(                                      \
      const __VA_ARGS__* call, sparsertc::u64 first, sparsertc::u64 last) {                        \
    return run(*call, first, last);                                                                \
  }

/// Of the calling thread.
extern "C" __attribute__((visibility("default"))) void sparsertc_take_status(Status* status) {
  *status = first_status;
  first_status = {0, 0, 0, 0};
}

#endif

} // namespace sparsertc
