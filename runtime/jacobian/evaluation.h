// A residual's tables and parameters beside its program, and the calls that evaluate it: what the
// CPU and the GPU share.
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/jacobian/read_ahead.h"
#include "runtime/jacobian/residual_program.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc::jacobian {

class Evaluation {
public:
  /// Copies tables and parameters to where the program can reach them. All but `read_ahead` must
  /// outlive it; that the program must have been made for.
  Evaluation(const ResidualProgram& program, const JacobianTables& tables,
             const ParameterSet& parameters, bool by_row, bool f32,
             const std::optional<ReadAhead>& read_ahead = {});

  struct Call {
    std::string entry;
    ProgramCall call;
    size_t x_word = 0;      ///< where the address of x stands in the call's words
    size_t result_word = 0; ///< of f, y or the values
    /// Of v, or of where f is stored with the values (0: nowhere).
    std::optional<size_t> second_word;
  };
  Call residual(uint64_t x, uint64_t f, const CallInstances& instances) const;
  Call product(uint64_t x, uint64_t v, uint64_t y, uint64_t work,
               const CallInstances& instances) const;
  /// One for each width, and one for rows by terms.
  std::vector<Call> jacobian(uint64_t x, uint64_t values, uint64_t work,
                             const CallInstances& instances) const;

  /// Whether the calls of jacobian() can store every row of F(x), too.
  bool has_values_of_all_rows() const;

  /// Only writes numbers to the places of the values; the program must have the entry.
  Call write(uint64_t values, const CallInstances& instances) const;

  /// Bytes of work memory for so many instances at once; 0 where there is no need.
  uint64_t product_work_bytes(uint64_t instances) const;
  uint64_t jacobian_work_bytes(uint64_t instances) const;

private:
  Call finished(std::string entry, std::vector<uint64_t> words, size_t result_word, uint64_t tasks,
                uint64_t x, const CallInstances& instances, uint64_t threads = 0) const;

  const JacobianTables& tables_;
  bool by_row_;
  uint64_t number_bytes_;
  ParameterMemory parameters_;
  struct Local {
    std::unique_ptr<ProgramMemory> row, columns, places;
  };
  std::vector<Local> local_;
  struct Terms {
    std::unique_ptr<ProgramMemory> row, columns, places, first, term_columns, term_places;
  };
  Terms terms_;
  /// Where lanes share the tasks by terms, instead.
  struct SharedTables {
    uint64_t threads = 0;
    uint32_t most_terms = 0, kept_numbers = 0;
    std::unique_ptr<ProgramMemory> head, columns, stores;
  };
  SharedTables shared_;
  /// Or where their reads are known beforehand.
  struct ReadAheadTables {
    uint64_t threads = 0;
    uint32_t kept_numbers = 0;
    std::unique_ptr<ProgramMemory> row, integers, words, term_integers, term_words, stores;
  };
  ReadAheadTables read_ahead_;
  std::unique_ptr<ProgramMemory> row_order_;
  std::unique_ptr<ProgramMemory> colour_, offset_, row_, tangent_, places_, entry_places_;
};

} // namespace sparsertc::jacobian
