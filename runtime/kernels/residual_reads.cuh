// What rows read, parameters and unknowns, in the order in which they do: written down once, then
// told beforehand. Stands after residual_tangents.cuh.
//
// A row that does not decide by values reads the same entries of the same arrays at every x. What
// it reads of parameters are then constants, and of unknowns only their values change. So the
// chain of loads behind an index (row, bus, neighbour, unknown) is needed once.

namespace sparsertc {

/// Integers of 32 bits and all that takes 64 are counted apart.
inline constexpr u32 kInteger = 0, kNumber = 1, kUnknown = 2;

#if SPARSERTC_READS == 1

/// What a row reads, one after the other. The lists are null while it is counted.
struct ReadLog {
  u64* words; ///< the parameter's bits, or the unknown's number
  u32* kinds; ///< one of those above, plus 4 times the term's number plus 1, or 0 outside of sums
  u32 count = 0;

  __device__ void add(u32 kind, u64 word) {
    if (words != nullptr) {
      words[count] = word;
      kinds[count] = kind + 4 * (sum_state().inside ? sum_state().term + 1 : 0);
    }
    ++count;
  }
  template <class Stored>
  __device__ void add_parameter(Stored value) {
    if constexpr (kSame<Stored, int>)
      add(kInteger, static_cast<u32>(value));
    else if constexpr (kSame<Stored, Real>)
      add(kNumber, word_of(value));
    else
      add(kNumber, static_cast<u64>(value));
  }
};

/// Writes down which unknowns are read; says where values are looked at.
struct SeedLog {
  using Tangent = Columns<SeedLog>;
  ReadLog* log;
  __device__ Tangent operator()(long long j) const {
    log->add(kUnknown, static_cast<u64>(j));
    return {0};
  }
  __device__ static void decides() { sum_state().decided = true; }
};

/// Where arrays of parameters find what is done about their reads.
struct ReadsHook {
  ReadLog* log = nullptr; ///< null: nothing
};

#elif SPARSERTC_READS == 2

// The program says beforehand, of rows beside their sums and of terms,
//   SPARSERTC_ROW_INTEGERS, SPARSERTC_TERM_INTEGERS     how many they read at most
//   SPARSERTC_ROW_WORDS, SPARSERTC_TERM_WORDS           likewise of 64 bits
//   SPARSERTC_ROW_UNKNOWNS, SPARSERTC_TERM_UNKNOWNS     bit k: word k may be an unknown
//   SPARSERTC_ROW_NUMBERS, SPARSERTC_TERM_NUMBERS       bit k: word k may be a parameter
//   SPARSERTC_TERMS                                     that a thread has at most

/// An unknown's word: this, and 256 less than the tangent's number plus 1 where its derivative is
/// one of the task's, in the upper half, the unknown's number in the lower. No parameter's word
/// where there may be either.
inline constexpr u32 kUnknownWord = 0xFFFC0000u;

/// All that a row reads beside its sum, or one of its terms.
template <int I, int W>
struct ReadsAhead {
  int integer[I > 0 ? I : 1];
  u64 word[W > 0 ? W : 1];
  Real number[W > 0 ? W : 1]; ///< the word's, or the unknown's
};
struct Reads {
  static constexpr int kTerms = SPARSERTC_TERMS;
  ReadsAhead<SPARSERTC_ROW_INTEGERS, SPARSERTC_ROW_WORDS> row;
  ReadsAhead<SPARSERTC_TERM_INTEGERS, SPARSERTC_TERM_WORDS> term[kTerms];
};

/// The number of the thread's term that is evaluated; kOutside: none.
inline constexpr u32 kOutside = 0xFFFFFFFFu;
__device__ inline u32& term_at_hand() {
  __shared__ u32 all[kMostThreads];
  return all[threadIdx.x];
}

/// Which reads come next. Compilers know these numbers after unrolling; kept apart from the reads,
/// both end in registers.
struct ReadsPosition {
  u32 row_integer = 0, row_word = 0, integer = 0, word = 0;
  u32 last = kOutside; ///< term

  __device__ u32 term() {
    const u32 now = term_at_hand();
    if (now != last) {
      last = now;
      integer = word = 0;
    }
    return now;
  }
};

struct ReadsHook {
  const Reads* reads = nullptr; ///< null: nothing is known beforehand
  ReadsPosition* at = nullptr;

  __device__ int integer() const {
    const u32 term = at->term();
    return term == kOutside ? reads->row.integer[at->row_integer++]
                            : reads->term[term].integer[at->integer++];
  }
  struct Number {
    Real number;
    u64 word;
  };
  __device__ Number number() const {
    const u32 term = at->term();
    if (term == kOutside) {
      const u32 k = at->row_word++;
      return {reads->row.number[k], reads->row.word[k]};
    }
    const u32 k = at->word++;
    return {reads->term[term].number[k], reads->term[term].word[k]};
  }
  template <class Stored>
  __device__ Stored parameter() const {
    if constexpr (kSame<Stored, int>)
      return integer();
    else if constexpr (kSame<Stored, Real>)
      return number().number;
    else
      return static_cast<Stored>(number().word);
  }
};

/// As SeedTerms, where an unknown's word says which tangent is 1.
template <int O, int I>
struct SeedReads {
  static constexpr int kOuter = O, kInner = I;
  using Tangent = Directions<O + I, SeedReads>;
  ReadsHook hook;
};

#else

struct ReadsHook {};

#endif

template <class A>
inline constexpr bool kReadsAhead = false;
#if SPARSERTC_READS == 2
template <int W, int O, int I>
inline constexpr bool kReadsAhead<Dual<Real, Directions<W, SeedReads<O, I>>>> = true;
#endif

} // namespace sparsertc
