// What a user's residual is written with: Row, Unknowns, Residuals, and the arrays of Parameters.
// Stands before the user's text, after residual_sums.cuh.

namespace sparsertc {

/// The number of an equation, from 0; converts to int.
class Row {
public:
  __device__ explicit Row(u64 index) : index_(static_cast<int>(index)) {}
  __device__ operator int() const { return index_; }

private:
  int index_;
};

/// x[j]: unknown number j.
template <class T>
class Unknowns;

template <>
class Unknowns<Real> {
public:
  __device__ Unknowns(const Vector& x, u64 length) : x_(x), length_(length) {}
  __device__ Real operator[](long long j) const {
    check_index(j, length_, kBadUnknown, 0);
    return x_.at(j);
  }
  /// n.
  __device__ long long size() const { return static_cast<long long>(length_); }

private:
  Vector x_;
  u64 length_;
};

template <class D>
class Unknowns<Dual<Real, D>> {
public:
  using Seed = typename D::Seed;
  __device__ Unknowns(const Vector& x, u64 length, const Seed& seed)
      : x_(x), length_(length), seed_(seed) {}
  __device__ Dual<Real, D> operator[](long long j) const {
    check_index(j, length_, kBadUnknown, 0);
#if SPARSERTC_READS == 2
    if constexpr (kReadsAhead<Dual<Real, D>>) {
      const ReadsHook::Number found = seed_.hook.number();
      const u32 own = static_cast<u32>(found.word >> 32) - kUnknownWord;
      D t;
      for (int k = 0; k < D::kWords; ++k)
        t.set_word(k, own == static_cast<u32>(k) ? Value(1) : Value(0));
      return {found.number, t};
    } else
#endif
      return {x_.at(j), seed_(j)};
  }
  __device__ long long size() const {
    return static_cast<long long>(length_);
  }

private:
  Vector x_;
  u64 length_;
  Seed seed_;
};

/// f[i]: residual number i, 0 at the beginning. It can be assigned, added to (=, +=, -=, *=, /=),
/// and read by T(f[i]).
template <class T>
class Residuals;

template <>
class Residuals<Real> {
public:
  __device__ Residuals(Real* f, u64 length, u64 stride, u64 instance)
      : f_(kBatch ? f + instance : f), length_(length), stride_(stride) {}
  __device__ Real& operator[](long long i) const {
    check_index(i, length_, kBadResidual, 0);
    return f_[kBatch ? i * stride_ : i];
  }
  __device__ long long size() const { return static_cast<long long>(length_); }
  __device__ void clear() const {
    for (u64 i = 0; i < length_; ++i)
      (*this)[i] = 0;
  }

private:
  Real* f_;
  u64 length_, stride_;
};

/// Values and tangents apart, each word beside those of the other threads.
template <class D>
class Residuals<Dual<Real, D>> {
public:
  using T = Dual<Real, D>;
  class Entry {
  public:
    __device__ Entry(const Residuals& all, u64 i) : all_(all), i_(i) {}
    __device__ operator T() const { return all_.get(i_); }
    __device__ const Entry& operator=(const T& a) const {
      all_.set(i_, a);
      return *this;
    }
    __device__ const Entry& operator=(const Entry& a) const { return *this = T(a); }
    __device__ const Entry& operator+=(const T& a) const { return *this = T(*this) + a; }
    __device__ const Entry& operator-=(const T& a) const { return *this = T(*this) - a; }
    __device__ const Entry& operator*=(const T& a) const { return *this = T(*this) * a; }
    __device__ const Entry& operator/=(const T& a) const { return *this = T(*this) / a; }

  private:
    const Residuals& all_;
    u64 i_;
  };

  __device__ Residuals(Real* values, typename D::Word* words, u64 length, u64 thread, u64 threads)
      : values_(values + thread), words_(words + thread), length_(length), threads_(threads) {}
  __device__ Entry operator[](long long i) const {
    check_index(i, length_, kBadResidual, 0);
    return {*this, static_cast<u64>(i)};
  }
  __device__ long long size() const { return static_cast<long long>(length_); }

  __device__ T get(u64 i) const {
    T a;
    a.v = values_[i * threads_];
    for (int k = 0; k < D::kWords; ++k)
      a.t.set_word(k, words_[(i * D::kWords + k) * threads_]);
    return a;
  }
  __device__ void set(u64 i, const T& a) const {
    values_[i * threads_] = a.v;
    for (int k = 0; k < D::kWords; ++k)
      words_[(i * D::kWords + k) * threads_] = a.t.word(k);
  }
  __device__ typename D::Word word(u64 i, u32 k) const {
    return words_[(i * D::kWords + k) * threads_];
  }
  __device__ void clear() const {
    for (u64 i = 0; i < length_; ++i)
      set(i, T(0));
  }

private:
  Real* values_;
  typename D::Word* words_;
  u64 length_, threads_;
};

// ---- parameters ----

struct ParameterArray {
  const void* data;
  u64 length; ///< of one instance
};

/// p.name[k]: entry k of an array, a Real or a long long, which may be stored more narrowly.
/// `varies`: the instances have arrays of their own, entry by entry.
template <class Result, class Stored, bool varies>
class View {
public:
  __device__ View(const ParameterArray& array, u64 stride, u64 instance, u32 number,
                  [[maybe_unused]] ReadsHook hook)
      : data_(static_cast<const Stored*>(array.data) + (varies ? instance : 0)), stride_(stride),
        length_(array.length), number_(number)
#if SPARSERTC_READS
        ,
        hook_(hook)
#endif
  {
  }
  __device__ Result operator[](long long k) const {
    check_index(k, length_, kBadParameter, number_);
#if SPARSERTC_READS == 2
    if (hook_.reads != nullptr)
      return static_cast<Result>(hook_.template parameter<Stored>());
#endif
    const Stored stored = load(data_ + (varies ? k * stride_ : k));
#if SPARSERTC_READS == 1
    if (hook_.log != nullptr)
      hook_.log->add_parameter(stored);
#endif
    return static_cast<Result>(stored);
  }

private:
  const Stored* data_;
  u64 stride_, length_;
  u32 number_;
#if SPARSERTC_READS
  ReadsHook hook_;
#endif
};

} // namespace sparsertc
