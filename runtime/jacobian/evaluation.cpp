#include "runtime/jacobian/evaluation.h"

#include "runtime/jacobian/program.h"
#include "runtime/jacobian/shared_terms.h"

#include <algorithm>
#include <array>

namespace sparsertc::jacobian {
namespace {

constexpr uint64_t kWarp = 32;

/// TaskLanes of residual_kernels.cuh, and the threads it takes: 0 where each task has one.
struct LaneWords {
  std::array<uint32_t, 12> words{};
  uint64_t threads = 0;

  explicit LaneWords(const TaskLanes& lanes) {
    if (lanes.task_end.back() == 0)
      return;
    uint64_t warps = 0, tasks = 0;
    for (size_t group = 0; group < lanes.task_end.size(); ++group) {
      warps += ((lanes.task_end[group] - tasks) * (kWarp >> group) + kWarp - 1) / kWarp;
      tasks = lanes.task_end[group];
      words[group] = static_cast<uint32_t>(warps);
      words[group + 6] = lanes.task_end[group];
    }
    threads = warps * kWarp;
  }
  void append(std::vector<uint64_t>& call) const {
    for (size_t k = 0; k < words.size(); k += 2)
      call.push_back(words[k] | uint64_t{words[k + 1]} << 32);
  }
};

} // namespace

Evaluation::Evaluation(const ResidualProgram& program, const JacobianTables& tables,
                       const ParameterSet& parameters, bool by_row, bool f32,
                       const std::optional<ReadAhead>& read_ahead)
    : tables_(tables), by_row_(by_row), number_bytes_(f32 ? sizeof(float) : sizeof(double)),
      parameters_(program, parameters, f32) {
  for (const LocalTasks& tasks : tables.local)
    local_.push_back({upload(program, tasks.row), upload(program, tasks.columns),
                      upload(program, tasks.places)});
  if (const TermTasks& terms = tables.terms; read_ahead) {
    read_ahead_ = {read_ahead->threads,
                   read_ahead->kept_numbers,
                   upload(program, read_ahead->row),
                   upload(program, read_ahead->integers),
                   upload(program, read_ahead->words),
                   upload(program, read_ahead->term_integers),
                   upload(program, read_ahead->term_words),
                   upload(program, read_ahead->stores)};
  } else if (by_lanes(terms)) {
    const SharedTerms shared = shared_terms(terms);
    shared_ = {shared.threads,
               shared.most_terms,
               shared.kept_numbers,
               upload(program, shared.head),
               upload(program, shared.columns),
               upload(program, shared.stores)};
  } else if (terms.count() > 0)
    terms_ = {upload(program, terms.row),          upload(program, terms.columns),
              upload(program, terms.places),       upload(program, terms.first),
              upload(program, terms.term_columns), upload(program, terms.term_places)};
  if (!tables.rows.row.empty())
    row_order_ = upload(program, tables.rows.row);
  if (!tables.places.empty())
    entry_places_ = upload(program, tables.places);
  if (tables.coloured.count() > 0) {
    colour_ = upload(program, tables.coloured.colour);
    offset_ = upload(program, tables.coloured.offset);
    row_ = upload(program, tables.coloured.row);
    tangent_ = upload(program, tables.coloured.tangent);
    places_ = upload(program, tables.coloured.places);
  }
}

Evaluation::Call Evaluation::finished(std::string entry, std::vector<uint64_t> words,
                                      size_t result_word, uint64_t tasks, uint64_t x,
                                      const CallInstances& instances, uint64_t threads) const {
  Call made;
  made.call.threads = threads;
  made.entry = std::move(entry);
  made.x_word = words.size();
  made.result_word = result_word;
  made.call.words = std::move(words);
  made.call.tasks = tasks;
  parameters_.finish(made.call, x, tables_.pattern.columns, instances);
  return made;
}

Evaluation::Call Evaluation::residual(uint64_t x, uint64_t f,
                                      const CallInstances& instances) const {
  const LaneWords lanes(tables_.rows.lanes);
  std::vector<uint64_t> words = {f, row_order_ ? row_order_->address() : 0};
  lanes.append(words);
  return finished("sparsertc_residual", std::move(words), 0, by_row_ ? tables_.pattern.rows : 1, x,
                  instances, lanes.threads);
}

Evaluation::Call Evaluation::product(uint64_t x, uint64_t v, uint64_t y, uint64_t work,
                                     const CallInstances& instances) const {
  const LaneWords lanes(tables_.rows.lanes);
  std::vector<uint64_t> words = {v, y, work, row_order_ ? row_order_->address() : 0};
  lanes.append(words);
  Call call = finished("sparsertc_product", std::move(words), 1, by_row_ ? tables_.pattern.rows : 1,
                       x, instances, lanes.threads);
  call.second_word = 0;
  return call;
}

bool Evaluation::has_values_of_all_rows() const {
  if (!by_row_ || tables_.coloured.count() > 0)
    return false;
  const std::vector<uint64_t>& offset = tables_.pattern.row_offset;
  return std::adjacent_find(offset.begin(), offset.end()) == offset.end(); // no task, no value
}

std::vector<Evaluation::Call> Evaluation::jacobian(uint64_t x, uint64_t values, uint64_t work,
                                                   const CallInstances& instances) const {
  std::vector<Call> calls;
  for (size_t k = 0; k < local_.size(); ++k) {
    const LocalTasks& tasks = tables_.local[k];
    const LaneWords lanes(tasks.lanes);
    std::vector<uint64_t> words = {values,
                                   0,
                                   local_[k].row->address(),
                                   local_[k].columns->address(),
                                   local_[k].places->address(),
                                   tasks.count()};
    lanes.append(words);
    calls.push_back(finished(local_entry(tasks.width), std::move(words), 0, tasks.count(), x,
                             instances, lanes.threads));
    calls.back().second_word = 1;
  }
  const TermTasks& tasks = tables_.terms;
  if (read_ahead_.threads > 0) {
    std::vector<uint64_t> words = {values,
                                   read_ahead_.row->address(),
                                   read_ahead_.integers->address(),
                                   read_ahead_.words->address(),
                                   read_ahead_.term_integers->address(),
                                   read_ahead_.term_words->address(),
                                   read_ahead_.stores->address(),
                                   read_ahead_.threads};
    LaneWords(tasks.lanes).append(words);
    calls.push_back(
        finished(terms_entry(tasks), std::move(words), 0, read_ahead_.threads, x, instances));
    calls.back().call.kept_numbers = read_ahead_.kept_numbers;
  } else if (shared_.threads > 0) {
    calls.push_back(finished(terms_entry(tasks),
                             {values, shared_.head->address(), shared_.columns->address(),
                              shared_.stores->address(), shared_.threads, shared_.most_terms},
                             0, shared_.threads, x, instances));
    calls.back().call.kept_numbers = shared_.kept_numbers;
  } else if (tasks.count() > 0) {
    std::vector<uint64_t> words = {values,
                                   0,
                                   terms_.row->address(),
                                   terms_.columns->address(),
                                   terms_.places->address(),
                                   terms_.first->address(),
                                   terms_.term_columns->address(),
                                   terms_.term_places->address(),
                                   tasks.count()};
    LaneWords(tasks.lanes).append(words);
    calls.push_back(finished(terms_entry(tasks), std::move(words), 0, tasks.count(), x, instances));
    calls.back().second_word = 1;
    calls.back().call.kept_numbers = tasks.most_terms * tasks.inner;
  }
  const ColouredTasks& coloured = tables_.coloured;
  if (coloured.count() > 0)
    calls.push_back(finished(coloured_entry(coloured.width),
                             {values, colour_->address(), offset_->address(), row_->address(),
                              tangent_->address(), places_->address(), coloured.count(), work},
                             0, coloured.count(), x, instances));
  return calls;
}

Evaluation::Call Evaluation::write(uint64_t values, const CallInstances& instances) const {
  return finished(kWriteEntry,
                  {values, entry_places_ ? entry_places_->address() : 0, tables_.pattern.nnz()}, 0,
                  tables_.pattern.nnz(), 0, instances);
}

uint64_t Evaluation::product_work_bytes(uint64_t instances) const {
  return by_row_ ? 0 : 2 * tables_.pattern.rows * instances * number_bytes_;
}

uint64_t Evaluation::jacobian_work_bytes(uint64_t instances) const {
  return tables_.coloured.count() * (1 + tables_.coloured.width) * tables_.pattern.rows *
         instances * number_bytes_;
}

} // namespace sparsertc::jacobian
