// Symbolic factorization and levels of large grids on the GPU, beside the same algorithms on the
// CPU with all cores (fill2, Kahn) and beside the CPU's faster method, merging rows, with one
// thread and with all.
//
//   bench_lu_symbolic_gpu [OPTION...] [WIDTHxHEIGHTxDEPTH...]
//
//   --memory-limit=BYTES   of device memory, for symbolic factorization and levels
//   --without=LIST         of the CPU's methods: fill2, merge, levels
//   --threads=N            of a block of fill2 on the GPU
//   --details              how the GPU's phases went
//
// The grids are unsymmetric, a quarter of the entries on one side is missing, ordered by geometric
// nested dissection. Times are in seconds: on the GPU of the second of two runs (the first one also
// loads code and takes memory from the driver), on the CPU of one run. What the GPU finds is
// compared with what the CPU finds.
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"
#include "ir/error.h"
#include "runtime/kernels/compile.h"
#include "runtime/lu/gpu_levels.h"
#include "runtime/lu/gpu_symbolic.h"
#include "tests/support/lu_grids.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {
namespace {

struct Grid {
  uint32_t width = 1, height = 1, depth = 1;
  std::string name;
};

struct Options {
  std::vector<Grid> grids;
  uint64_t memory_limit = 0;
  uint32_t threads = 0;
  bool fill2 = true, merge = true, levels = true, details = false;
};

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What the GPU did with a grid.
struct GpuRun {
  lu::GpuSymbolic symbolic;
  LuLevels gather, safe;
  lu::GpuLevelsReport gather_report, safe_report;
  double symbolic_s = 0, gather_s = 0, safe_s = 0, download_s = 0;
  lu::HostRows rows;
};

GpuRun run_gpu(const lu::GpuAnalysisKernels& kernels, const Pattern& a, const Options& options) {
  GpuRun run;
  lu::GpuSymbolicOptions symbolic;
  symbolic.memory_limit = options.memory_limit;
  symbolic.threads = options.threads;
  run.symbolic_s = seconds(
      [&] { run.symbolic = lu::gpu_symbolic_lu(kernels, a.row_offset, a.column_index, symbolic); });
  const auto levels = [&](bool right_looking, LuLevels& found, lu::GpuLevelsReport& report) {
    lu::GpuLevelsOptions how;
    how.right_looking = right_looking;
    how.memory_limit = options.memory_limit;
    return seconds([&] {
      if (run.symbolic.device) {
        found = lu::gpu_levels(kernels, *run.symbolic.device, how, &report);
      } else {
        const lu::HostRows& rows = *run.symbolic.host;
        found =
            lu::gpu_levels(kernels, {rows.row_offset, rows.diagonal, rows.columns}, how, &report);
      }
    });
  };
  run.gather_s = levels(false, run.gather, run.gather_report);
  run.safe_s = levels(true, run.safe, run.safe_report);
  run.download_s = seconds([&] { run.rows = run.symbolic.take_host_rows(kernels.context()); });
  return run;
}

std::string shown(std::optional<double> value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}

void print_details(const GpuRun& run) {
  const lu::GpuSymbolicReport& r = run.symbolic.report;
  fmt::print("  symbolic: upload {:.1f} ms, count {:.1f} ms, write {:.1f} ms; {} groups, {} kept "
             "with {} entries; frontier {}, visits {}; {} rows in flight ({} early, {} late, split "
             "at {}); {} chunks of {} entries, {}; peak {} bytes of {}\n",
             r.upload_us / 1e3, r.count_us / 1e3, r.write_us / 1e3, r.groups, r.groups_kept,
             r.kept_entries, r.largest_frontier, r.visits, r.rows_in_flight, r.early_rows_in_flight,
             r.late_rows_in_flight, r.split_row, r.chunks, r.chunk_entries,
             r.on_device ? "on the device" : "in host memory", r.peak_bytes, r.budget_bytes);
  for (const lu::GpuLevelsReport* l : {&run.gather_report, &run.safe_report})
    fmt::print(
        "  levels: {} in {} parts; upload {:.1f} ms, Kahn {:.1f} ms, sort {:.1f} ms; peak {} "
        "bytes\n",
        l->levels, l->parts, l->upload_us / 1e3, l->kahn_us / 1e3, l->sort_us / 1e3, l->peak_bytes);
}

/// Whether all methods gave the same.
bool bench(const Grid& grid, const lu::GpuAnalysisKernels& kernels, const Options& options,
           TaskPool& pool) {
  const Pattern a = test::dissected_grid(1, grid.width, grid.height, grid.depth, 0.25);
  std::optional<GpuRun> run;
  for (int i = 0; i < 2; ++i) {
    run.reset();
    run = run_gpu(kernels, a, options);
    if (options.details)
      print_details(*run);
  }
  bool same = true;
  std::optional<double> fill2, alone, together, gather, safe;
  LuPattern found;
  const auto check = [&] {
    same = same && found.rows.row_offset == run->rows.row_offset &&
           found.rows.column_index == run->rows.columns && found.diagonal == run->rows.diagonal;
  };
  if (options.fill2) {
    fill2 = seconds([&] { found = symbolic_lu_fill2(a, &pool); });
    check();
  }
  if (options.merge) {
    alone = seconds([&] { found = symbolic_lu(a); });
    check();
    found = {};
    together = seconds([&] { found = symbolic_lu(a, &pool); });
    check();
  }
  if (options.levels) {
    if (found.diagonal.empty())
      found = symbolic_lu(a, &pool);
    const LuColumns columns = by_columns(found);
    LuLevels levels;
    gather = seconds([&] { levels = factor_levels(found, columns, LevelRule::gather); });
    same = same && levels == run->gather;
    safe = seconds([&] { levels = factor_levels(found, columns, LevelRule::right_looking); });
    same = same && levels == run->safe;
  }
  const std::string ratio =
      fill2 ? fmt::format("{:.1f}", *fill2 / run->symbolic_s) : std::string("-");
  fmt::print("{:>14} {:>8} {:>10} | {:>7.3f} {:>7.3f} {:>8} {:>6} {:>7} {:>7} | {:>6} {:>7.3f} "
             "{:>7} | {:>6} {:>7.3f} {:>7}{}\n",
             grid.name, a.rows, run->symbolic.report.entries, run->symbolic_s, run->download_s,
             shown(fill2), ratio, shown(alone), shown(together), run->gather.count(), run->gather_s,
             shown(gather), run->safe.count(), run->safe_s, shown(safe),
             same ? "" : "  DIFFERENT RESULTS");
  std::fflush(stdout);
  return same;
}

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0)
    throw UsageError(fmt::format("{} is no number", text));
  return number;
}

Grid grid_of(const std::string& name) {
  Grid grid;
  grid.name = name;
  const size_t first = name.find('x'), last = name.rfind('x');
  if (first == last)
    throw UsageError(fmt::format("{}: a grid is WIDTHxHEIGHTxDEPTH", name));
  const std::string_view view = name;
  grid.width = static_cast<uint32_t>(number_of(view.substr(0, first)));
  grid.height = static_cast<uint32_t>(number_of(view.substr(first + 1, last - first - 1)));
  grid.depth = static_cast<uint32_t>(number_of(view.substr(last + 1)));
  return grid;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&](std::string_view name) -> std::optional<std::string> {
      if (word.rfind(name, 0) == 0)
        return word.substr(name.size());
      return std::nullopt;
    };
    if (const auto bytes = value("--memory-limit=")) {
      options.memory_limit = number_of(*bytes);
    } else if (const auto list = value("--without=")) {
      options.fill2 = list->find("fill2") == std::string::npos;
      options.merge = list->find("merge") == std::string::npos;
      options.levels = list->find("levels") == std::string::npos;
    } else if (const auto threads = value("--threads=")) {
      options.threads = static_cast<uint32_t>(number_of(*threads));
    } else if (word == "--details") {
      options.details = true;
    } else {
      options.grids.push_back(grid_of(word));
    }
  }
  if (options.grids.empty())
    for (const char* name : {"320x320x1", "1000x1000x1", "50x50x50"})
      options.grids.push_back(grid_of(name));
  return options;
}

int run(const Options& options) {
  std::optional<cuda::Context> context;
  std::optional<lu::GpuAnalysisKernels> kernels;
  try {
    context.emplace(cuda::Driver::open());
    double compiling = 0;
    std::vector<uint8_t> image;
    compiling = seconds([&] {
      image = kernels::compile_lu_analysis(*cuda::Nvrtc::open(),
                                           context->properties().compute_capability);
    });
    kernels.emplace(*context, image);
    fmt::print("{}; kernels compiled by NVRTC in {:.2f} s\n", context->properties().name,
               compiling);
  } catch (const Error& error) {
    fmt::print("SKIPPED: {}\n", error.what());
    return 0;
  }
  TaskPool pool;
  fmt::print("{:>14} {:>8} {:>10} | {:>7} {:>7} {:>8} {:>6} {:>7} {:>7} | {:>6} {:>7} {:>7} | "
             "{:>6} {:>7} {:>7}\n",
             "grid", "n", "nnz(L+U)", "fill2", "to host", fmt::format("{} cores", pool.threads()),
             "ratio", "merge", "cores", "gather", "GPU", "CPU", "safe", "GPU", "CPU");
  bool same = true;
  for (const Grid& grid : options.grids)
    same = bench(grid, *kernels, options, pool) && same;
  return same ? 0 : 1;
}

} // namespace
} // namespace sparsertc

int main(int argc, char** argv) {
  using namespace sparsertc;
  try {
    return run(parse(argc, argv));
  } catch (const Error& error) {
    fmt::print(stderr, "bench_lu_symbolic_gpu: {}\n", error.what());
    return error.exit_code();
  }
}
