// What rows read, written down by a program of the host; the tables that are made of it; and the
// code that NVRTC makes for them.
#include "compiler/inspect/jacobian_schedule.h"
#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/jacobian/detection.h"
#include "runtime/jacobian/host_program.h"
#include "runtime/jacobian/program.h"
#include "runtime/jacobian/read_ahead.h"
#include "tests/support/nvrtc.h"
#include "tests/support/residuals.h"
#include "tools/jacobian_system.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::jacobian;
using Catch::Contains;
using test::ResidualCase;

namespace {

uint64_t bits_of(double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

struct Looked {
  ReadLog log;
  RowTerms terms;
};

/// Nothing, said aloud, where there is no compiler.
std::optional<Looked> look_at(const ResidualCase& one) {
  const HostCompiler compiler = host_compiler(nullptr);
  ProgramOptions options;
  options.checked = options.read_log = true;
  options.entries = inspection_entries(true);
  try {
    const HostProgram program(compiler, make_program(one.source, one.parameters, options),
                              one.source, one.parameters);
    const Inspection inspection(program, one.parameters, one.x0.size(), false);
    const DetectionPoint point{one.x0, 0};
    return Looked{inspection.read_log(point), inspection.terms({&point, 1})};
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
    return std::nullopt;
  }
}

JacobianTables tables_of(const ResidualCase& one, const RowTerms& terms, uint32_t share) {
  JacobianScheduleOptions options;
  options.has_sums = true;
  options.terms = &terms;
  options.machine = JacobianMachine::gpu(100, 1);
  options.compression = JacobianCompression::terms;
  options.entries_per_lane = share;
  return schedule_jacobian(one.pattern, options).tables;
}

template <class T>
const std::vector<T>& array_of(const ResidualCase& one, const std::string& name) {
  for (const ParameterArray& array : one.parameters.arrays)
    if (array.name == name)
      return std::get<std::vector<T>>(array.values);
  throw InternalError("no parameter " + name);
}

/// Term (0: outside), kind, word.
using Read = std::tuple<uint32_t, ReadKind, uint64_t>;

/// What row i of mixed_graph() reads, in ascending order.
std::vector<Read> reads_by_hand(const ResidualCase& one, uint32_t i) {
  const auto& first = array_of<int64_t>(one, "first");
  const auto& other = array_of<int64_t>(one, "other");
  const auto next = array_of<int64_t>(one, "next")[i];
  const auto integer = [](int64_t value) { return uint64_t{static_cast<uint32_t>(value)}; };
  const auto number = [&](const char* name, size_t k) {
    return bits_of(array_of<double>(one, name)[k]);
  };
  std::vector<Read> reads = {
      {0, ReadKind::integer, integer(next)},
      {0, ReadKind::integer, integer(first[i])},
      {0, ReadKind::integer, integer(first[i + 1])},
      {0, ReadKind::number, number("after", i)},
      {0, ReadKind::number, static_cast<uint64_t>(array_of<int64_t>(one, "large")[i])},
      {0, ReadKind::unknown, i}};
  if (next < 0)
    reads.emplace_back(0, ReadKind::number, number("factor", i));
  else
    reads.emplace_back(0, ReadKind::unknown, integer(next));
  for (int64_t e = first[i]; e < first[i + 1]; ++e) {
    const auto term = static_cast<uint32_t>(e - first[i] + 1);
    const auto k = static_cast<size_t>(e);
    reads.emplace_back(term, ReadKind::integer, integer(other[k]));
    reads.emplace_back(term, ReadKind::number, number("weight", k));
    reads.emplace_back(term, ReadKind::unknown, i);
    if (other[k] < 0)
      reads.emplace_back(term, ReadKind::number, number("given", k));
    else
      reads.emplace_back(term, ReadKind::unknown, integer(other[k]));
  }
  std::sort(reads.begin(), reads.end());
  return reads;
}

} // namespace

TEST_CASE("read logs: what each row reads, and whether it decides by values") {
  const ResidualCase one = test::mixed_graph(31);
  const auto looked = look_at(one);
  if (!looked)
    return;
  const ReadLog& log = looked->log;
  CHECK_FALSE(log.decides);
  const auto& first = array_of<int64_t>(one, "first");
  REQUIRE(log.offset.size() == 32);
  for (uint32_t i = 0; i < 31; ++i) {
    CAPTURE(i);
    CHECK(log.terms[i] == first[i + 1] - first[i]);
    CHECK(looked->terms.lengths[i] == log.terms[i]);
    std::vector<Read> reads;
    for (uint64_t r = log.offset[i]; r < log.offset[i + 1]; ++r)
      reads.emplace_back(log.term[r], log.kind[r], log.word[r]);
    std::sort(reads.begin(), reads.end());
    CHECK(reads == reads_by_hand(one, i));
  }
  ResidualCase decides = one;
  decides.source.text.insert(decides.source.text.find("  f = factor"),
                             "  if (factor > 1)\n    f += 1;\n");
  const auto decided = look_at(decides);
  CHECK(decided->log.decides);
  CHECK_FALSE(read_ahead(tables_of(one, looked->terms, 2).terms, decided->log));
}

TEST_CASE("read ahead: tables have each read of each row and term, and each tangent once") {
  for (const ResidualCase& one : {test::mixed_graph(31), test::weighted_graph(40)}) {
    CAPTURE(one.name);
    const auto looked = look_at(one);
    if (!looked)
      return;
    for (const uint32_t share : {1u, 2u, 4u}) {
      CAPTURE(share);
      const TermTasks tasks = tables_of(one, looked->terms, share).terms;
      const auto made = read_ahead(tasks, looked->log);
      REQUIRE(made);
      const ReadAheadShape& shape = made->shape;
      const std::vector<TaskPart> parts = parts_of(tasks.lanes);
      const uint64_t all = made->threads;
      REQUIRE(all == parts.size());
      CHECK(made->kept_numbers == shape.terms * shape.inner + shape.outer);
      // Columns of tangents and their places, by result.
      std::map<std::pair<uint64_t, uint32_t>, uint32_t> columns;
      const auto check_words = [&](uint64_t r, const std::vector<uint64_t>& words, uint64_t at,
                                   uint32_t k, const ReadsShape& of) {
        const uint64_t word = words[at];
        if (looked->log.kind[r] != ReadKind::unknown) {
          CHECK(word == looked->log.word[r]);
          CHECK((of.numbers >> k & 1) == 1);
          return kNoTangent;
        }
        CHECK(static_cast<uint32_t>(word) == looked->log.word[r]);
        CHECK(word >> 40 == 0xFFFC00);
        CHECK((of.unknowns >> k & 1) == 1);
        const auto tangent = static_cast<uint32_t>(word >> 32 & 255);
        return tangent == 255 ? kNoTangent : tangent;
      };
      for (uint64_t t = 0; t < all; ++t) {
        const TaskPart& part = parts[t];
        if (part.lanes == 0)
          continue;
        const uint32_t row = tasks.row[part.task];
        CHECK(made->row[part.task] == row);
        std::map<uint32_t, std::pair<uint32_t, uint32_t>> at; // by term: integers, words
        for (uint64_t r = looked->log.offset[row]; r < looked->log.offset[row + 1]; ++r) {
          const uint32_t term = looked->log.term[r];
          if (term != 0 && (term - 1) % part.lanes != part.lane)
            continue;
          const uint32_t m = term == 0 ? 0 : (term - 1) / part.lanes;
          REQUIRE(m < shape.terms);
          if (part.lanes < 32)
            REQUIRE(m < shape.often);
          auto& [integers, words] = at[term];
          if (looked->log.kind[r] == ReadKind::integer) {
            const uint32_t k = integers++;
            CHECK(looked->log.word[r] ==
                  (term == 0 ? made->integers[k * tasks.count() + part.task]
                             : made->term_integers[(m * shape.term.integers + k) * all + t]));
            continue;
          }
          const uint32_t k = words++;
          const uint32_t tangent =
              term == 0 ? check_words(r, made->words, k * tasks.count() + part.task, k, shape.row)
                        : check_words(r, made->term_words, (m * shape.term.words + k) * all + t, k,
                                      shape.term);
          if (tangent == kNoTangent)
            continue;
          CHECK(tangent < shape.outer + (term == 0 ? 0 : shape.inner));
          const uint32_t number = tangent < shape.outer ? shape.terms * shape.inner + tangent
                                                        : m * shape.inner + tangent - shape.outer;
          // Of lanes that share a row the first stores what is the row's own.
          const uint64_t lane = tangent < shape.outer ? t - part.lane : t;
          const auto column = static_cast<uint32_t>(looked->log.word[r]);
          const auto [place, is_new] = columns.emplace(
              std::pair(lane / 32, number * kSharedBlockThreads + uint32_t(lane % 32)), column);
          CHECK(place->second == column);
        }
      }
      // Every derivative of those rows is stored once, where the pattern has it.
      std::map<uint32_t, uint32_t> stored; // place -> column
      for (uint64_t s = 0; s < made->stores.size(); ++s)
        if (const ResultStore& store = made->stores[s]; store.place != kNoTangent) {
          const auto found = columns.find({s % all / 32, store.result});
          REQUIRE(found != columns.end());
          CHECK(stored.emplace(store.place, found->second).second);
        }
      CHECK(made->stores.size() == shape.rounds * all);
      uint64_t entries = 0;
      for (const uint32_t row : tasks.row)
        for (uint64_t k = one.pattern.row_offset[row]; k < one.pattern.row_offset[row + 1];
             ++k, ++entries)
          CHECK(stored.at(static_cast<uint32_t>(k)) == one.pattern.column_index[k]);
      CHECK(stored.size() == entries);
    }
  }
}

TEST_CASE("read ahead: NVRTC keeps the reads in registers") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  const ResidualCase one = test::mixed_graph(31);
  const auto looked = look_at(one);
  if (!looked)
    return;
  for (const uint32_t share : {1u, 2u, 4u}) {
    CAPTURE(share);
    const JacobianTables tables = tables_of(one, looked->terms, share);
    const auto made = read_ahead(tables.terms, looked->log);
    REQUIRE(made);
    ProgramOptions options;
    options.shared = true;
    options.read_ahead = made->shape;
    options.entries = {evaluation_entries(tables, false, made->shape).back()};
    REQUIRE(options.entries[0].name == terms_entry(tables.terms));
    const std::string ptx =
        test::compile_residual(*nvrtc, make_program(one.source, one.parameters, options));
    CHECK_THAT(ptx, Contains(".entry " + terms_entry(tables.terms) + "("));
    CHECK_THAT(ptx, !Contains(".local"));
  }
}
