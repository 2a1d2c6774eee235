// Symbolic factorization of a sparse matrix by fill2 (Rose and Tarjan, Algorithmic aspects of
// vertex elimination on directed graphs, SIAM J. Appl. Math. 34, 1978), 64 rows at a time.
//
// Row i of L+U is found by a search from i that goes on from vertices below i only. A threshold,
// the largest vertex in the middle of the paths that are followed, rises from entry to entry of the
// row: from the threshold one goes on to what has not been visited, and what lies above the
// threshold is an entry. Rows near to one another visit nearly the same vertices, so a group of
// rows searches together, as in multi-source breadth-first search (Then et al., The more the
// merrier, PVLDB 8, 2014): a vertex has a bit for each row of the group, and the edges of a vertex
// are looked at once for all rows that come to it at the same time.
//
// A block works on a group. Most thresholds lead to a few vertices only: its first warp works
// through those alone. Where the frontier becomes wide all warps join.
//
// All edges of A between vertices of the frontier are dealt evenly to the lanes of a warp, however
// long the rows of A are.

namespace sparsertc::kernels {
namespace fill2 {

constexpr uint32_t kAll = 0xffffffffu;
constexpr uint32_t kNone = 0xffffffffu;
/// One warp alone works on frontiers of at most so many vertices.
constexpr uint32_t kNarrow = 32;
/// Vertices of a queue that are in shared memory.
constexpr uint32_t kNearQueue = 512;
/// Edges that a lane follows at the same time where all warps work.
constexpr uint32_t kEdgesAtOnce = 4;

/// One group's share of the workspaces.
struct Workspace {
  uint64_t* visited;
  uint64_t* pending;
  uint32_t* entries;
  uint32_t* summary;
  uint32_t* touched;
  uint32_t* queue; ///< two of them, with room for each vertex twice
  uint64_t capacity;
  uint32_t* column;
  uint64_t* rows;

  __device__ uint32_t* queue_number(uint32_t number) const { return queue + 2 * number * capacity; }
};

__device__ Workspace workspace_of(const Fill2Arguments& a, uint64_t number) {
  const uint64_t words = (static_cast<uint64_t>(a.size) + 31) / 32;
  const Fill2Workspaces& all = a.work;
  Workspace work;
  work.visited = all.visited + number * a.size;
  work.pending = all.pending + number * a.size;
  work.entries = all.entries + number * words;
  work.summary = all.summary + number * ((words + 31) / 32);
  work.touched = all.touched + number * all.capacity;
  work.queue = all.queue + 4 * number * all.capacity;
  work.capacity = all.capacity;
  work.column = all.column + number * all.capacity;
  work.rows = all.rows + number * all.capacity;
  return work;
}

/// What the threads of a block share.
struct Shared {
  uint32_t group;
  uint32_t threshold;
  uint32_t current; ///< which queue is worked on
  uint32_t queued;  ///< vertices in it
  uint32_t pushed;  ///< vertices in the other one
  uint32_t touched;
  uint32_t length; ///< entries of the group
  uint32_t done;
  uint64_t place; ///< in the store
  uint32_t row_length[kFill2Group];
  uint32_t near[2][kNearQueue];
};

__device__ uint32_t lane() {
  return threadIdx.x % 32;
}
__device__ uint32_t warp() {
  return threadIdx.x / 32;
}
__device__ uint32_t warps() {
  return blockDim.x / 32;
}

/// A place in a list for each lane of `wanting`, which is the same on all lanes and not 0.
__device__ uint32_t reserve(uint32_t* count, uint32_t wanting) {
  const uint32_t leader = __ffs(wanting) - 1;
  uint32_t base = 0;
  if (lane() == leader)
    base = atomicAdd(count, static_cast<uint32_t>(__popc(wanting)));
  return __shfl_sync(kAll, base, leader) + __popc(wanting & ((1u << lane()) - 1));
}

/// The vertices that a warp has to go on from, in one of the two queues: its beginning lies in
/// shared memory, which is near.
__device__ void put(const Workspace& work, Shared& shared, uint32_t queue, uint32_t place,
                    uint32_t w) {
  if (place < kNearQueue)
    shared.near[queue][place] = w;
  else
    work.queue_number(queue)[place] = w;
}
__device__ uint32_t get(const Workspace& work, const Shared& shared, uint32_t queue,
                        uint32_t place) {
  return place < kNearQueue ? shared.near[queue][place] : __ldcg(&work.queue_number(queue)[place]);
}

/// `rows[q]` come to vertices w[q] over kEdges edges, none where they are 0. To be called by all
/// lanes of a warp. New vertices below the threshold go into queue `next`.
template <uint32_t kEdges>
__device__ void visit(const Workspace& work, Shared& shared, uint32_t next,
                      const uint32_t (&w)[kEdges], uint64_t (&rows)[kEdges], uint32_t threshold) {
  uint64_t before[kEdges] = {};
  // Many lanes at once look first, as most come to vertices that have been visited, and atomics are
  // slow in numbers. A warp alone saves the time of the look.
  if (kEdges > 1) {
#pragma unroll
    for (uint32_t q = 0; q < kEdges; ++q)
      if (rows[q] != 0)
        before[q] = __ldcg(&work.visited[w[q]]);
#pragma unroll
    for (uint32_t q = 0; q < kEdges; ++q)
      if (rows[q] != 0)
        rows[q] &= ~before[q];
  }
#pragma unroll
  for (uint32_t q = 0; q < kEdges; ++q)
    if (rows[q] != 0)
      before[q] = atomicOr(&work.visited[w[q]], rows[q]);
#pragma unroll
  for (uint32_t q = 0; q < kEdges; ++q) {
    bool first = false;
    bool push = false;
    if (rows[q] != 0) {
      const uint64_t fresh = rows[q] & ~before[q];
      first = before[q] == 0;
      if (w[q] >= threshold) {
        if (first) {
          atomicOr(&work.entries[w[q] / 32], 1u << (w[q] % 32));
          atomicOr(&work.summary[w[q] / 1024], 1u << (w[q] / 32 % 32));
        }
      } else if (first) {
        // Nobody waits for the answer: another row that comes at the same time may put the vertex
        // into the queue once more.
        atomicOr(&work.pending[w[q]], fresh);
        push = true;
      } else if (fresh != 0) {
        push = atomicOr(&work.pending[w[q]], fresh) == 0;
      }
    }
    if (const uint32_t wanting = __ballot_sync(kAll, first); wanting != 0) {
      const uint32_t place = reserve(&shared.touched, wanting);
      if (first)
        work.touched[place] = w[q];
    }
    if (const uint32_t wanting = __ballot_sync(kAll, push); wanting != 0) {
      const uint32_t place = reserve(&shared.pushed, wanting);
      if (push)
        put(work, shared, next, place, w[q]);
    }
  }
}

/// Follows the edges of one vertex for `rows`, which is the same on all lanes.
__device__ void expand_one(const Fill2Arguments& a, const Workspace& work, Shared& shared,
                           uint32_t next, uint32_t u, uint64_t rows, uint32_t threshold) {
  const uint32_t begin = __ldg(&a.a_offset[u]);
  const uint32_t end = __ldg(&a.a_offset[u + 1]);
  for (uint32_t base = begin; base < end; base += 32) {
    const bool active = lane() < end - base;
    const uint32_t w[1] = {active ? __ldg(&a.a_column[base + lane()]) : 0};
    uint64_t going[1] = {active ? rows : 0};
    visit(work, shared, next, w, going, threshold);
  }
}

/// Goes on from 32 vertices of a queue, `first` and those behind it, below `count`.
template <uint32_t kEdges>
__device__ void expand_queued(const Fill2Arguments& a, const Workspace& work, Shared& shared,
                              uint32_t current, uint32_t first, uint32_t count,
                              uint32_t threshold) {
  uint64_t rows = 0;
  uint32_t begin = 0;
  uint32_t degree = 0;
  if (first + lane() < count) {
    const uint32_t u = get(work, shared, current, first + lane());
    rows = atomicExch(&work.pending[u], static_cast<uint64_t>(0));
    begin = __ldg(&a.a_offset[u]);
    degree = __ldg(&a.a_offset[u + 1]) - begin;
    if (rows == 0) // it was in the queue twice
      degree = 0;
  }
  uint32_t end = degree; // of this lane's edges among all of them
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t below = __shfl_up_sync(kAll, end, step);
    if (lane() >= step)
      end += below;
  }
  const uint32_t total = __shfl_sync(kAll, end, 31);
  const uint32_t shift = begin - (end - degree); // edge e of all is edge e + shift of A
  for (uint32_t base = 0; base < total; base += 32 * kEdges) {
    uint32_t w[kEdges];
    uint64_t mine[kEdges];
#pragma unroll
    for (uint32_t q = 0; q < kEdges; ++q) {
      const uint32_t edge = base + 32 * q + lane();
      uint32_t owner = 0; // the first lane whose edges end behind this one
      for (uint32_t step = 16; step > 0; step /= 2)
        if (__shfl_sync(kAll, end, owner + step - 1) <= edge)
          owner += step;
      const uint64_t theirs = __shfl_sync(kAll, rows, owner);
      const uint32_t from = __shfl_sync(kAll, shift, owner);
      mine[q] = edge < total ? theirs : 0;
      w[q] = edge < total ? __ldg(&a.a_column[edge + from]) : 0;
    }
    visit(work, shared, 1 - current, w, mine, threshold);
  }
}

/// The least entry from `from` on and below `end`, or kNone. To be called by a whole warp.
__device__ uint32_t next_entry(const Workspace& work, uint32_t from, uint32_t end) {
  if (from >= end)
    return kNone;
  const uint32_t words = (end - 1) / 32 + 1;
  uint32_t word = from / 32 + lane();
  uint32_t bits = word < words ? __ldcg(&work.entries[word]) : 0;
  if (lane() == 0)
    bits &= kAll << (from % 32);
  uint32_t found = __ballot_sync(kAll, bits != 0);
  if (found == 0) {
    const uint32_t rest = from / 32 + 32; // the first word that has not been looked at
    uint32_t marks = 0;
    for (uint32_t group = rest / 32; found == 0; group += 32) {
      if (group * 32 >= words)
        return kNone;
      marks = (group + lane()) * 32 < words ? __ldcg(&work.summary[group + lane()]) : 0;
      if (group + lane() == rest / 32)
        marks &= kAll << (rest % 32);
      found = __ballot_sync(kAll, marks != 0);
      word = (group + lane()) * 32 + __ffs(marks) - 1;
    }
    bits = marks != 0 && word < words ? __ldcg(&work.entries[word]) : 0;
    found = __ballot_sync(kAll, bits != 0);
    if (found == 0)
      return kNone;
  }
  const uint32_t leader = __ffs(found) - 1;
  const uint32_t entry = __shfl_sync(kAll, word * 32 + __ffs(bits) - 1, leader);
  return entry < end ? entry : kNone;
}

/// Appends the entries from `from` on, which no threshold comes to, to the entries of the group.
/// Returns how many there are then. To be called by a whole warp.
__device__ uint32_t collect_upper(const Fill2Arguments& a, const Workspace& work, uint32_t from,
                                  uint32_t length) {
  const uint32_t words = (a.size - 1) / 32 + 1;
  const uint32_t marks_end = (words - 1) / 32 + 1;
  for (uint32_t first = from / 1024; first < marks_end; first += 32) {
    const uint32_t marks = first + lane() < marks_end ? __ldcg(&work.summary[first + lane()]) : 0;
    for (uint32_t used = __ballot_sync(kAll, marks != 0); used != 0; used &= used - 1) {
      const uint32_t owner = __ffs(used) - 1;
      const uint32_t theirs = __shfl_sync(kAll, marks, owner);
      const uint32_t word = (first + owner) * 32 + lane();
      uint32_t bits = (theirs >> lane()) & 1 ? __ldcg(&work.entries[word]) : 0;
      if (word < from / 32)
        bits = 0;
      else if (word == from / 32)
        bits &= kAll << (from % 32);
      const uint32_t count = __popc(bits);
      uint32_t end = count;
      for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t below = __shfl_up_sync(kAll, end, step);
        if (lane() >= step)
          end += below;
      }
      uint32_t place = length + end - count;
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t w = word * 32 + __ffs(bits) - 1;
        work.column[place] = w;
        work.rows[place++] = __ldcg(&work.visited[w]);
      }
      length += __shfl_sync(kAll, end, 31);
    }
  }
  return length;
}

/// The rows of the group that go on from `threshold`: those behind it.
__device__ uint64_t rows_behind(uint32_t threshold, uint32_t begin) {
  if (threshold < begin)
    return ~static_cast<uint64_t>(0);
  const uint32_t bit = threshold - begin;
  return bit + 1 < kFill2Group ? ~static_cast<uint64_t>(0) << (bit + 1) : 0;
}

/// The thresholds that lead to few vertices, by one warp. Ends where the frontier becomes wide, or
/// all are done.
__device__ void work_alone(const Fill2Arguments& a, const Workspace& work, Shared& shared,
                           uint32_t begin, uint32_t end) {
  uint32_t threshold = shared.threshold;
  uint32_t current = shared.current;
  uint32_t queued = shared.queued;
  uint32_t length = shared.length;
  uint32_t done = 0;
  for (;;) {
    if (queued == 0) {
      // (The first is the one behind kNone.)
      threshold = next_entry(work, threshold + 1, end);
      if (threshold == kNone) {
        length = collect_upper(a, work, end, length);
        done = 1;
        break;
      }
      const uint64_t rows = __ldcg(&work.visited[threshold]);
      if (lane() == 0) {
        work.column[length] = threshold;
        work.rows[length] = rows;
      }
      ++length;
      if (const uint64_t going = rows & rows_behind(threshold, begin); going != 0)
        expand_one(a, work, shared, 1 - current, threshold, going, threshold);
    } else {
      expand_queued<1>(a, work, shared, current, 0, queued, threshold);
    }
    __threadfence_block();
    __syncwarp();
    queued = *static_cast<volatile uint32_t*>(&shared.pushed);
    __syncwarp();
    if (lane() == 0)
      shared.pushed = 0;
    __syncwarp();
    current = 1 - current;
    if (queued > kNarrow)
      break;
  }
  if (lane() == 0) {
    shared.threshold = threshold;
    shared.current = current;
    shared.queued = queued;
    shared.length = length;
    shared.done = done;
  }
}

/// One threshold, whose frontier is wide, by all warps until it becomes narrow again.
__device__ void work_together(const Fill2Arguments& a, const Workspace& work, Shared& shared) {
  do {
    const uint32_t count = shared.queued;
    const uint32_t current = shared.current;
    for (uint32_t first = warp() * 32; first < count; first += warps() * 32)
      expand_queued<kEdgesAtOnce>(a, work, shared, current, first, count, shared.threshold);
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.queued = shared.pushed;
      shared.pushed = 0;
      shared.current = 1 - current;
    }
    __syncthreads();
  } while (shared.queued > kNarrow);
  __syncthreads(); // all have read what work_alone writes
}

/// Finds the entries of the group's rows, `begin` to `end`; they are in the workspace then,
/// ascending.
__device__ void search(const Fill2Arguments& a, const Workspace& work, Shared& shared,
                       uint32_t begin, uint32_t end) {
  if (threadIdx.x == 0) {
    shared.threshold = kNone;
    shared.current = shared.queued = shared.pushed = 0;
    shared.touched = shared.length = shared.done = 0;
  }
  __syncthreads();
  for (uint32_t i = begin + warp(); i < end; i += warps()) {
    const uint64_t row = static_cast<uint64_t>(1) << (i - begin);
    const uint32_t first = a.a_offset[i];
    const uint32_t count = a.a_offset[i + 1] - first;
    // All entries of A, and the diagonal behind them.
    for (uint32_t base = 0; base <= count; base += 32) {
      const uint32_t p = base + lane();
      const uint32_t w[1] = {p < count ? a.a_column[first + p] : i};
      uint64_t rows[1] = {p <= count ? row : 0};
      visit(work, shared, 0, w, rows, 0);
    }
  }
  __syncthreads();
  for (;;) {
    if (warp() == 0)
      work_alone(a, work, shared, begin, end);
    __syncthreads();
    if (shared.done != 0)
      break;
    work_together(a, work, shared);
  }
}

/// Makes the workspace zeros again.
__device__ void clean(const Workspace& work, const Shared& shared) {
  for (uint32_t p = threadIdx.x; p < shared.touched; p += blockDim.x) {
    const uint32_t w = work.touched[p];
    work.visited[w] = 0;
    work.entries[w / 32] = 0;
    work.summary[w / 1024] = 0;
  }
}

/// The next group for the block, from the last to the first: late ones take longest.
__device__ bool take_group(const Fill2Arguments& a, Shared& shared) {
  __syncthreads();
  if (threadIdx.x == 0)
    shared.group = atomicAdd(a.next_group, 1u);
  __syncthreads();
  return shared.group < a.last_group - a.first_group;
}

/// The entries of each row, counted.
__device__ void count_rows(const Workspace& work, Shared& shared) {
  for (uint32_t r = threadIdx.x; r < kFill2Group; r += blockDim.x)
    shared.row_length[r] = 0;
  __syncthreads();
  uint32_t low = 0;  // of row lane()
  uint32_t high = 0; // of row 32 + lane()
  for (uint32_t first = warp() * 32; first < shared.length; first += warps() * 32) {
    const uint64_t mine = first + lane() < shared.length ? work.rows[first + lane()] : 0;
#pragma unroll 4
    for (uint32_t r = 0; r < 32; ++r) {
      const uint32_t in_low = __popc(__ballot_sync(kAll, (mine >> r) & 1));
      const uint32_t in_high = __popc(__ballot_sync(kAll, (mine >> (32 + r)) & 1));
      if (lane() == r) {
        low += in_low;
        high += in_high;
      }
    }
  }
  atomicAdd(&shared.row_length[lane()], low);
  atomicAdd(&shared.row_length[32 + lane()], high);
  __syncthreads();
}

/// Writes the columns of the group's rows, from entries in a list.
__device__ void write_rows(const Fill2Arguments& a, uint32_t begin, uint32_t end,
                           const uint32_t* column, const uint64_t* rows, uint32_t length) {
  constexpr uint32_t kAtOnce = 4;
  for (uint32_t r = warp() * kAtOnce; r < end - begin; r += warps() * kAtOnce) {
    uint64_t place[kAtOnce];
    bool wanted[kAtOnce];
    for (uint32_t q = 0; q < kAtOnce; ++q) {
      const uint32_t i = begin + r + q;
      wanted[q] = i < end && i >= a.first_row && i < a.last_row;
      place[q] = wanted[q] ? a.row_offset[i] : 0;
    }
    for (uint32_t first = 0; first < length; first += 32) {
      const bool inside = first + lane() < length;
      const uint32_t w = inside ? column[first + lane()] : 0;
      const uint32_t mine = inside ? static_cast<uint32_t>(rows[first + lane()] >> r) : 0;
      for (uint32_t q = 0; q < kAtOnce; ++q) {
        const bool has = wanted[q] && ((mine >> q) & 1) != 0;
        const uint32_t all = __ballot_sync(kAll, has);
        if (has) {
          const uint64_t here = place[q] + __popc(all & ((1u << lane()) - 1));
          a.columns[here - a.first_entry] = w;
          if (w == begin + r + q)
            a.diagonal[w] = here;
        }
        place[q] += __popc(all);
      }
    }
  }
}

} // namespace fill2

/// The first pass: how long the rows are. Entries are kept in the store as long as there is room.
extern "C" __global__ void __launch_bounds__(1024, 1)
    sparsertc_fill2_count(const __grid_constant__ Fill2Arguments a) {
  using namespace fill2;
  __shared__ Shared shared;
  const Workspace work = workspace_of(a, blockIdx.x);
  while (take_group(a, shared)) {
    const uint32_t group = a.last_group - 1 - shared.group;
    const uint32_t begin = group * kFill2Group;
    const uint32_t end = a.size - begin < kFill2Group ? a.size : begin + kFill2Group;
    search(a, work, shared, begin, end);
    count_rows(work, shared);
    for (uint32_t r = threadIdx.x; r < end - begin; r += blockDim.x)
      a.row_length[begin + r] = shared.row_length[r];
    if (threadIdx.x == 0) {
      const uint64_t place = atomicAdd(a.store.used, static_cast<uint64_t>(shared.length));
      shared.place = place + shared.length <= a.store.capacity ? place : kNotStored;
      a.store.offset[group] = shared.place;
      a.store.length[group] = shared.length;
      a.frontier[group] = shared.touched;
    }
    __syncthreads();
    if (shared.place != kNotStored)
      for (uint32_t p = threadIdx.x; p < shared.length; p += blockDim.x) {
        a.store.column[shared.place + p] = work.column[p];
        a.store.rows[shared.place + p] = work.rows[p];
      }
    clean(work, shared);
  }
}

/// The second pass: the columns of the rows. Groups that are not in the store are searched again.
extern "C" __global__ void __launch_bounds__(1024, 1)
    sparsertc_fill2_write(const __grid_constant__ Fill2Arguments a) {
  using namespace fill2;
  __shared__ Shared shared;
  while (take_group(a, shared)) {
    const uint32_t group = a.last_group - 1 - shared.group;
    const uint32_t begin = group * kFill2Group;
    const uint32_t end = a.size - begin < kFill2Group ? a.size : begin + kFill2Group;
    const uint64_t stored = a.store.offset[group];
    if (stored != kNotStored) {
      write_rows(a, begin, end, a.store.column + stored, a.store.rows + stored,
                 a.store.length[group]);
      continue;
    }
    const Workspace work = workspace_of(a, blockIdx.x);
    search(a, work, shared, begin, end);
    write_rows(a, begin, end, work.column, work.rows, shared.length);
    clean(work, shared);
  }
}

} // namespace sparsertc::kernels
