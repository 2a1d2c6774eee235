#include "runtime/jacobian/host_program.h"

#include "ir/error.h"
#include "ir/sha256.h"
#include "runtime/bundle/file.h"
#include "runtime/jacobian/compiler_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>

#include <stdlib.h>

namespace sparsertc::jacobian {
namespace {

constexpr const char* kSection = "host";
/// Tasks that a thread takes at once.
constexpr uint64_t kTasksOfShare = 256;

/// A folder of our own, removed with all that is in it.
class Folder {
public:
  Folder() {
    const char* const chosen = std::getenv("TMPDIR");
    path_ = std::string(chosen != nullptr && *chosen != 0 ? chosen : "/tmp") + "/sparsertc-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr)
      throw RuntimeError("making the folder " + path_, std::strerror(errno),
                         "TMPDIR names another folder for temporary files");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

void write(const std::string& path, std::span<const uint8_t> bytes) {
  if (const int error = replace_file(path, bytes))
    throw RuntimeError("writing " + path, std::strerror(error));
}

/// A program is looked for in PATH, and speaks English.
std::vector<std::string> through_env(std::vector<std::string> command) {
  command.insert(command.begin(), {"/usr/bin/env", "LC_ALL=C"});
  return command;
}

const std::vector<std::string>& compiler_options() {
  // Products and sums are rounded apart, as everywhere else on the host.
  static const std::vector<std::string> options = [] {
    std::vector<std::string> all = {"-std=c++20",
                                    "-O2",
                                    "-fPIC",
                                    "-shared",
                                    "-w",
                                    "-fvisibility=hidden",
                                    "-fno-math-errno",
                                    "-x",
                                    "c++",
                                    "-ffp-contract=off",
                                    "-fdiagnostics-color=never"};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") != 0)
      all.emplace_back("-mavx2"); // four tangents at once
#endif
    return all;
  }();
  return options;
}

std::vector<uint8_t> compile(const HostCompiler& compiler, const std::string& program,
                             const ResidualSource& source) {
  const Folder folder;
  const std::string text = folder.path() + "/residual.cu", object = folder.path() + "/residual.so";
  write(text, {reinterpret_cast<const uint8_t*>(program.data()), program.size()});
  std::vector<std::string> arguments = through_env(compiler.words());
  arguments.insert(arguments.end(), compiler_options().begin(), compiler_options().end());
  arguments.insert(arguments.end(), {text, "-o", object});
  const ProgramOutcome outcome = compiler.run(arguments, folder.path());
  if (!outcome.succeeded) {
    if (outcome.output.find("error: ") != std::string::npos)
      throw_compile_error(outcome.output, source);
    throw RuntimeError(
        fmt::format("compiling {} ({})", source.name, fmt::join(compiler.words(), " ")),
        outcome.how + (outcome.output.empty() ? "" : "\n" + outcome.output));
  }
  int error = 0;
  std::optional<std::vector<uint8_t>> bytes = read_whole_file(object, error);
  if (!bytes)
    throw RuntimeError("reading " + object, std::strerror(error));
  return *std::move(bytes);
}

class HostMemory : public ProgramMemory {
public:
  explicit HostMemory(uint64_t bytes) : words_((bytes + 7) / 8) {}
  uint64_t address() const override { return reinterpret_cast<uint64_t>(words_.data()); }
  void write(std::span<const uint8_t> bytes) override {
    if (!bytes.empty())
      std::memcpy(words_.data(), bytes.data(), bytes.size());
  }
  void read(std::span<uint8_t> bytes) const override {
    if (!bytes.empty())
      std::memcpy(bytes.data(), words_.data(), bytes.size());
  }

private:
  std::vector<uint64_t> words_;
};

} // namespace

std::vector<std::string> HostCompiler::words() const {
  if (!command.empty())
    return command;
  const char* const chosen = std::getenv("CXX");
  std::istringstream text(chosen != nullptr ? chosen : "");
  std::vector<std::string> found;
  for (std::string word; text >> word;)
    found.push_back(word);
  return found.empty() ? std::vector<std::string>{"c++"} : found;
}

std::string HostCompiler::identity() const {
  std::vector<std::string> arguments = through_env(words());
  arguments.push_back("--version");
  const ProgramOutcome outcome = run(arguments, "/");
  if (!outcome.succeeded)
    throw RuntimeError("looking for a C++ compiler",
                       fmt::format("`{} --version`: {}", fmt::join(words(), " "), outcome.how),
                       "install one (g++ or clang++), or name it by CXX");
  return outcome.output.substr(0, outcome.output.find('\n'));
}

HostProgram::HostProgram(const HostCompiler& compiler, const std::string& program,
                         const ResidualSource& source, const ParameterSet& parameters)
    : source_(source) {
  for (const ParameterArray& array : parameters.arrays)
    names_.arrays.push_back({array.name, {}, false});
  Sha256 digest;
  digest.add(program);
  const CacheKey key{fmt::format("schema=1\nresidual=host\ncompiler={}\noptions={}\nprogram={}\n",
                                 compiler.identity(), fmt::join(compiler_options(), " "),
                                 digest.hex())};
  if (compiler.cache != nullptr)
    if (const std::optional<Bundle> bundle = compiler.cache->find(key))
      if (const Bundle::Section* section = bundle->find(kSection)) {
        open(section->bytes);
        was_cached_ = true;
        return;
      }
  const std::vector<uint8_t> object = compile(compiler, program, source);
  open(object);
  if (compiler.cache != nullptr)
    compiler.cache->store(key, Bundle{"{\"artefact\":\"residual\"}\n", {{kSection, object}}});
}

HostProgram::~HostProgram() {
  if (handle_ != nullptr)
    ::dlclose(handle_);
}

void HostProgram::open(const std::vector<uint8_t>& object) {
  const Folder folder;
  const std::string path = folder.path() + "/residual.so";
  write(path, object);
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* const reason = ::dlerror();
    throw RuntimeError("opening the compiled residual", reason != nullptr ? reason : "no reason",
                       "TMPDIR names another folder for temporary files");
  }
}

std::unique_ptr<ProgramMemory> HostProgram::allocate(uint64_t bytes) const {
  return std::make_unique<HostMemory>(bytes);
}

HostProgram::Function HostProgram::function(const std::string& entry) const {
  void* const found = ::dlsym(handle_, entry.c_str());
  if (found == nullptr)
    throw InternalError("a residual's program has no entry " + entry);
  return reinterpret_cast<Function>(found);
}

void HostProgram::run(const std::string& entry, const ProgramCall& call) const {
  run(function(entry), call);
}

void HostProgram::run(Function called, const ProgramCall& call, TaskPool* pool) const {
  const auto run_tasks = [&](uint64_t first, uint64_t last) {
    if (called(call.words.data(), first, last) != 0)
      fail();
  };
  if (pool == nullptr || call.tasks < 2 * kTasksOfShare) {
    run_tasks(0, call.tasks);
    return;
  }
  const uint64_t shares = (call.tasks + kTasksOfShare - 1) / kTasksOfShare;
  pool->run(shares,
            [&](uint64_t share) { run_tasks(share * kTasksOfShare, (share + 1) * kTasksOfShare); });
}

void HostProgram::fail() const {
  ResidualStatus status; // the calling thread's
  void* const take = ::dlsym(handle_, "sparsertc_take_status");
  if (take != nullptr)
    reinterpret_cast<void (*)(ResidualStatus*)>(take)(&status);
  throw_status(status, source_, names_);
  throw InternalError("a residual's program failed without a word");
}

} // namespace sparsertc::jacobian
