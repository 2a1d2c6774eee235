#include "runtime/jacobian/evaluation.h"

#include "runtime/jacobian/program.h"

namespace sparsertc::jacobian {

Evaluation::Evaluation(const ResidualProgram& program, const JacobianTables& tables,
                       const ParameterSet& parameters, bool by_row, bool f32)
    : tables_(tables), by_row_(by_row), number_bytes_(f32 ? sizeof(float) : sizeof(double)),
      parameters_(program, parameters, f32) {
  for (const LocalTasks& tasks : tables.local)
    local_.push_back({upload(program, tasks.row), upload(program, tasks.columns),
                      upload(program, tasks.places)});
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
                                      const CallInstances& instances, uint32_t lanes) const {
  Call made;
  made.call.lanes = lanes;
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
  return finished("sparsertc_residual", {f}, 0, by_row_ ? tables_.pattern.rows : 1, x, instances,
                  tables_.lanes);
}

Evaluation::Call Evaluation::product(uint64_t x, uint64_t v, uint64_t y, uint64_t work,
                                     const CallInstances& instances) const {
  return finished("sparsertc_product", {v, y, work}, 1, by_row_ ? tables_.pattern.rows : 1, x,
                  instances, tables_.lanes);
}

std::vector<Evaluation::Call> Evaluation::jacobian(uint64_t x, uint64_t values, uint64_t work,
                                                   const CallInstances& instances) const {
  std::vector<Call> calls;
  for (size_t k = 0; k < local_.size(); ++k) {
    const LocalTasks& tasks = tables_.local[k];
    calls.push_back(finished(local_entry(tasks.width),
                             {values, local_[k].row->address(), local_[k].columns->address(),
                              local_[k].places->address(), tasks.count()},
                             0, tasks.count(), x, instances, tables_.lanes));
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
