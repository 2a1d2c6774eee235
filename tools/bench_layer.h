// One SpMM on a GPU whose candidates are compiled, assembled, timed and checked: what `bench` and
// `tune` hand to the search as function objects.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/pipeline.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/tune/graph_replay.h"
#include "runtime/tune/search.h"
#include "tools/gpu_peers.h"
#include "tools/session.h"
#include "tools/spmm_operands.h"

#include <memory>
#include <string>

namespace sparsertc {

/// What is known of a candidate's code besides its time.
struct CandidateFacts {
  std::string tile; ///< all words, the cap on registers included
  double compile_us = 0;
  uint64_t code_bytes = 0;
  uint32_t registers = 0;
  uint64_t spill_bytes = 0;
};

class GpuLayer {
public:
  /// `problem.columns` is set. The operands come from `seed`. All references must outlive it.
  GpuLayer(const cuda::Context& gpu, const cuda::Stream& stream, const Assembler& assembler,
           TaskPool& pool, Matrix weights, const SpmmProblem& problem, uint64_t seed);
  ~GpuLayer();
  GpuLayer(const GpuLayer&) = delete;
  GpuLayer& operator=(const GpuLayer&) = delete;

  const Matrix& weights() const { return samples_.front(); }
  const SpmmProblem& problem() const { return problem_; }
  const Target& target() const { return target_; }
  const SpmmOperands& operands() const { return operands_; }
  const std::string& pattern_digest() const { return pattern_digest_; }
  tune::Layer shape() const;
  /// The tuner's candidates for it on this GPU; of a convolution without those that it refuses or
  /// takes for another.
  std::vector<tune::Candidate> space() const;

  /// Everything that search() asks for, except the clock's progress. `assembler_jobs`: processes at
  /// once for each candidate.
  tune::SearchHooks hooks(unsigned assembler_jobs);

  CandidateFacts facts(const tune::CandidateCode& code) const;
  /// Enqueues one launch.
  void enqueue(const tune::CandidateCode& code) const;
  /// Its launches as a graph; made when first asked for.
  const tune::GraphReplay& replay(const tune::CandidateCode& code) const;
  tune::Timing time_cold(const tune::CandidateCode& code, const cuda::DeviceBuffer& flush,
                         unsigned samples) const;
  /// Runs it once and compares C with float64: what is wrong, or nothing.
  std::string check(const tune::CandidateCode& code) const;

private:
  struct Code;
  /// Of the rows in sample number `sample`; 0: of all.
  std::shared_ptr<const tune::CandidateCode> make(const tune::Candidate& candidate, size_t sample,
                                                  unsigned jobs,
                                                  const std::atomic<bool>& stop) const;
  /// The sparsest sample that the candidate's blocks cover as they cover the whole.
  size_t sample_for(const tune::Candidate& candidate) const;
  void load(const Code& code) const;

  const cuda::Context& gpu_;
  const cuda::Stream& stream_;
  const Assembler& assembler_;
  TaskPool& pool_;
  /// The weights, then every second of their rows, every fourth, ...
  std::vector<Matrix> samples_;
  SpmmProblem problem_;
  Target target_;
  std::string pattern_digest_;
  SpmmOperands operands_;
  SpmmBuffers buffers_;
  cuda::DeviceBuffer b_, c_, bias_, residual_;
};

/// A rival, checked, with its graph.
struct PreparedPeer {
  std::unique_ptr<GpuPeer> peer;
  std::unique_ptr<tune::GraphReplay> replay;
};
/// Whoever can multiply this layer and does so rightly; why others are left out is added to
/// `refused`. Only for f32 and f16 without an epilogue, row-major and tight; else nobody.
std::vector<PreparedPeer> prepare_peers(const cuda::Context& gpu, const cuda::Stream& stream,
                                        const GpuPeerLibraries& libraries, const GpuLayer& layer,
                                        TaskPool& pool, std::vector<std::string>& refused);

/// Tells on standard error which results were wrong, and why the first of the others was refused.
void report_refusals(const tune::SearchResult& found, const std::string& name);

} // namespace sparsertc
