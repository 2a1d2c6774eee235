#include "runtime/jacobian/detection.h"

#include "ir/error.h"
#include "runtime/jacobian/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

namespace sparsertc::jacobian {
namespace {

constexpr uint64_t kSetBits = 64;
/// Of sets and values at once, in the whole form.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;

void merge(std::vector<uint32_t>& into, const std::vector<uint32_t>& ascending) {
  std::vector<uint32_t> both;
  std::set_union(into.begin(), into.end(), ascending.begin(), ascending.end(),
                 std::back_inserter(both));
  into = std::move(both);
}

} // namespace

Inspection::Inspection(const ResidualProgram& program, const ParameterSet& parameters, uint64_t n,
                       bool f32)
    : program_(program), parameters_(parameters), n_(n), f32_(f32),
      memory_(program, parameters, f32) {
  if (n == 0 || n > std::numeric_limits<int32_t>::max())
    throw UserError(fmt::format("a residual of {} unknowns", n), "give 1 to 2^31 - 1");
  const auto form = program.allocate(sizeof(uint64_t));
  program.run("sparsertc_form", call({form->address()}, 1, 0, {}));
  by_row_ = download<uint64_t>(*form, 1)[0] != 0;
}

ProgramCall Inspection::call(std::vector<uint64_t> words, uint64_t tasks, uint64_t x,
                             const DetectionPoint& point) const {
  ProgramCall made;
  made.words = std::move(words);
  made.tasks = tasks;
  CallInstances instances;
  instances.parameter_stride = parameters_.instances;
  instances.parameter_first = point.instance;
  memory_.finish(made, x, n_, instances);
  return made;
}

std::vector<double> Inspection::residual(const DetectionPoint& point) const {
  const auto x = upload_reals(program_, point.x, f32_);
  const auto f = upload_reals(program_, std::vector<double>(n_), f32_);
  program_.run("sparsertc_residual",
               call({f->address(), 0, 0, 0, 0, 0, 0, 0}, by_row_ ? n_ : 1, x->address(), point));
  return download_reals(*f, n_, f32_);
}

JacobianPattern Inspection::pattern(std::span<const DetectionPoint> points) const {
  Columns columns(n_);
  for (const DetectionPoint& point : points) {
    if (by_row_)
      add_by_row(point, columns);
    else
      add_whole(point, columns);
  }
  JacobianPattern pattern;
  pattern.rows = pattern.columns = static_cast<uint32_t>(n_);
  for (const std::vector<uint32_t>& row : columns) {
    pattern.column_index.insert(pattern.column_index.end(), row.begin(), row.end());
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return pattern;
}

Inspection::Reads Inspection::reads(const DetectionPoint& point, uint64_t x) const {
  Reads reads;
  const auto counts = program_.allocate(n_ * sizeof(uint32_t)),
             sums = program_.allocate(n_ * sizeof(uint32_t)),
             lengths = program_.allocate(n_ * sizeof(uint32_t));
  const auto run = [&](uint64_t offset, uint64_t list, uint64_t terms) {
    program_.run("sparsertc_reads",
                 call({counts->address(), sums->address(), lengths->address(), offset, list, terms},
                      n_, x, point));
  };
  run(0, 0, 0);
  reads.count = download<uint32_t>(*counts, n_);
  reads.sums = download<uint32_t>(*sums, n_);
  reads.lengths = download<uint32_t>(*lengths, n_);
  reads.offset = {0};
  for (const uint32_t count : reads.count)
    reads.offset.push_back(reads.offset.back() + count);
  const auto offsets = upload(program_, reads.offset);
  const auto lists = program_.allocate(reads.offset.back() * sizeof(uint32_t)),
             terms = program_.allocate(reads.offset.back() * sizeof(uint32_t));
  run(offsets->address(), lists->address(), terms->address());
  reads.list = download<uint32_t>(*lists, reads.offset.back());
  reads.term = download<uint32_t>(*terms, reads.offset.back());
  return reads;
}

RowTerms Inspection::terms(std::span<const DetectionPoint> points) const {
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> found(n_); // term and column
  RowTerms terms;
  terms.sums.assign(n_, 0);
  terms.lengths.assign(n_, 0);
  for (const DetectionPoint& point : points) {
    const auto x = upload_reals(program_, point.x, f32_);
    const Reads reads = this->reads(point, x->address());
    for (uint64_t i = 0; i < n_; ++i) {
      terms.sums[i] = std::max(terms.sums[i], reads.sums[i]);
      terms.lengths[i] = std::max(terms.lengths[i], reads.lengths[i]);
      for (uint64_t r = reads.offset[i]; r < reads.offset[i + 1]; ++r)
        found[i].emplace_back(reads.term[r], reads.list[r]);
      std::sort(found[i].begin(), found[i].end());
      found[i].erase(std::unique(found[i].begin(), found[i].end()), found[i].end());
    }
  }
  for (const std::vector<std::pair<uint32_t, uint32_t>>& row : found) {
    for (const auto& [term, column] : row) {
      terms.term.push_back(term);
      terms.column.push_back(column);
    }
    terms.offset.push_back(terms.column.size());
  }
  return terms;
}

ReadLog Inspection::read_log(const DetectionPoint& point) const {
  const auto x = upload_reals(program_, point.x, f32_);
  const auto counts = program_.allocate(n_ * sizeof(uint32_t)),
             terms = program_.allocate(n_ * sizeof(uint32_t)),
             decided = program_.allocate(n_ * sizeof(uint32_t));
  const auto run = [&](uint64_t offset, uint64_t words, uint64_t kinds) {
    program_.run(kReadLogEntry, call({counts->address(), terms->address(), decided->address(),
                                      offset, words, kinds},
                                     n_, x->address(), point));
  };
  run(0, 0, 0);
  ReadLog log;
  log.terms = download<uint32_t>(*terms, n_);
  for (const uint32_t one : download<uint32_t>(*decided, n_))
    log.decides = log.decides || one != 0;
  for (const uint32_t count : download<uint32_t>(*counts, n_))
    log.offset.push_back(log.offset.back() + count);
  const uint64_t reads = log.offset.back();
  const auto offsets = upload(program_, log.offset);
  const auto words = program_.allocate(reads * sizeof(uint64_t)),
             kinds = program_.allocate(reads * sizeof(uint32_t));
  run(offsets->address(), words->address(), kinds->address());
  log.word = download<uint64_t>(*words, reads);
  for (const uint32_t kind : download<uint32_t>(*kinds, reads)) {
    log.kind.push_back(static_cast<ReadKind>(kind % 4));
    log.term.push_back(kind / 4);
  }
  return log;
}

void Inspection::add_by_row(const DetectionPoint& point, Columns& columns) const {
  const auto x = upload_reals(program_, point.x, f32_);
  // What each row reads,
  Reads reads = this->reads(point, x->address());
  const std::vector<uint64_t>& offset = reads.offset;
  std::vector<uint32_t>& list = reads.list;
  // each unknown once, in sets of 64,
  std::vector<uint32_t> row, unknown;
  std::vector<uint64_t> first = {0};
  for (uint64_t i = 0; i < n_; ++i) {
    const auto begin = list.begin() + static_cast<std::ptrdiff_t>(offset[i]);
    const auto end = begin + reads.count[i];
    std::sort(begin, end);
    const auto unique_end = std::unique(begin, end);
    for (auto at = begin; at != unique_end;) {
      const auto stop = at + std::min<std::ptrdiff_t>(unique_end - at, kSetBits);
      row.push_back(static_cast<uint32_t>(i));
      unknown.insert(unknown.end(), at, stop);
      first.push_back(unknown.size());
      at = stop;
    }
  }
  if (row.empty())
    return;
  // and which of them its value depends on.
  const auto rows = upload(program_, row), unknowns = upload(program_, unknown);
  const auto firsts = upload(program_, first);
  const auto sets = program_.allocate(row.size() * sizeof(uint64_t));
  program_.run("sparsertc_row_sets", call({rows->address(), firsts->address(), unknowns->address(),
                                           sets->address(), row.size()},
                                          row.size(), x->address(), point));
  const std::vector<uint64_t> set = download<uint64_t>(*sets, row.size());
  std::vector<uint32_t> found;
  for (size_t t = 0; t < row.size(); ++t) {
    for (uint64_t bits = set[t]; bits != 0; bits &= bits - 1)
      found.push_back(unknown[first[t] + static_cast<uint64_t>(std::countr_zero(bits))]);
    if (t + 1 == row.size() || row[t + 1] != row[t]) {
      merge(columns[row[t]], found);
      found.clear();
    }
  }
}

void Inspection::add_whole(const DetectionPoint& point, Columns& columns) const {
  const auto x = upload_reals(program_, point.x, f32_);
  const uint64_t chunks = (n_ + kSetBits - 1) / kSetBits;
  const uint64_t most = std::clamp<uint64_t>(kMostBytes / (n_ * 2 * sizeof(uint64_t)), 1, chunks);
  const auto sets = program_.allocate(n_ * most * sizeof(uint64_t));
  const auto work = program_.allocate(n_ * most * sizeof(double));
  Columns found(n_);
  for (uint64_t chunk = 0; chunk < chunks; chunk += most) {
    const uint64_t now = std::min(most, chunks - chunk);
    program_.run("sparsertc_whole_sets",
                 call({chunk, now, sets->address(), work->address()}, now, x->address(), point));
    const std::vector<uint64_t> set = download<uint64_t>(*sets, n_ * now);
    for (uint64_t i = 0; i < n_; ++i)
      for (uint64_t c = 0; c < now; ++c)
        for (uint64_t bits = set[i * now + c]; bits != 0; bits &= bits - 1)
          found[i].push_back(static_cast<uint32_t>((chunk + c) * kSetBits) +
                             static_cast<uint32_t>(std::countr_zero(bits)));
  }
  for (uint64_t i = 0; i < n_; ++i)
    merge(columns[i], found[i]);
}

std::optional<MissingEntry> find_missing_entry(const JacobianPattern& pattern,
                                               std::span<const double> values,
                                               const Product& product, bool f32, uint64_t seed) {
  const double tolerance = std::sqrt(f32 ? std::numeric_limits<float>::epsilon()
                                         : std::numeric_limits<double>::epsilon());
  // Of either sign and away from 0, by whole numbers that all machines agree on.
  std::mt19937_64 random(seed);
  std::vector<double> v(pattern.columns);
  for (double& entry : v) {
    const uint64_t bits = random();
    entry = (0.5 + static_cast<double>(bits >> 12) * 0x1p-52) * ((bits & 1) != 0 ? 1.0 : -1.0);
  }
  const std::vector<double> all = product(v);
  for (uint32_t i = 0; i < pattern.rows; ++i) {
    double sum = 0, terms = std::abs(all[i]);
    for (uint64_t k = pattern.row_offset[i]; k < pattern.row_offset[i + 1]; ++k) {
      const double term = values[k] * v[pattern.column_index[k]];
      sum += term;
      terms += std::abs(term);
    }
    if (!std::isfinite(terms) || std::abs(all[i] - sum) <= tolerance * terms)
      continue;
    // The columns that the row has not, and one half of them after the other.
    std::vector<uint32_t> others;
    for (uint32_t j = 0; j < pattern.columns; ++j)
      if (!std::binary_search(
              pattern.column_index.begin() + static_cast<std::ptrdiff_t>(pattern.row_offset[i]),
              pattern.column_index.begin() + static_cast<std::ptrdiff_t>(pattern.row_offset[i + 1]),
              j))
        others.push_back(j);
    const auto by = [&](std::span<const uint32_t> columns) {
      std::vector<double> part(pattern.columns, 0.0);
      for (const uint32_t j : columns)
        part[j] = v[j];
      return std::abs(product(part)[i]);
    };
    std::span<const uint32_t> left = others;
    while (left.size() > 1) {
      const auto half = left.first(left.size() / 2), rest = left.subspan(left.size() / 2);
      left = by(half) >= by(rest) ? half : rest;
    }
    if (left.empty())
      throw InternalError(fmt::format("derivatives of row {} by all its columns do not add up to "
                                      "its directional derivative: {} and {}",
                                      i, sum, all[i]));
    std::vector<double> one(pattern.columns, 0.0);
    one[left[0]] = 1;
    return MissingEntry{i, left[0], product(one)[i]};
  }
  return std::nullopt;
}

std::optional<MissingEntry> first_not_in(const JacobianPattern& given,
                                         const JacobianPattern& found) {
  for (uint32_t i = 0; i < found.rows; ++i) {
    uint64_t at = given.row_offset[i];
    for (uint64_t k = found.row_offset[i]; k < found.row_offset[i + 1]; ++k) {
      const uint32_t column = found.column_index[k];
      while (at < given.row_offset[i + 1] && given.column_index[at] < column)
        ++at;
      if (at == given.row_offset[i + 1] || given.column_index[at] != column)
        return MissingEntry{i, column, 0};
    }
  }
  return std::nullopt;
}

} // namespace sparsertc::jacobian
