#include "tools/assemblers.h"

#include "compiler/assemble/assembler_chain.h"
#include "compiler/assemble/ptxas.h"
#include "ir/error.h"
#include "runtime/bundle/cache.h"
#include "runtime/driver/driver_assembler.h"
#include "runtime/driver/nvjitlink_assembler.h"
#include "tools/caching_assembler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

namespace sparsertc {
namespace {

/// All, the best first.
std::vector<AssemblerCandidate> all_candidates() {
  return {{"ptxas", Ptxas::find},
          {"nvjitlink", NvJitLinkAssembler::find},
          {"driver", DriverAssembler::find}};
}

constexpr const char* kAuto = "auto";

/// The position among all candidates; nothing for "auto".
std::optional<size_t> chosen(const std::string& word) {
  std::vector<std::string> words;
  for (const AssemblerCandidate& candidate : all_candidates())
    words.push_back(candidate.name);
  words.push_back(kAuto);
  const size_t position = choose_word("--assembler", word, words);
  return position + 1 == words.size() ? std::nullopt : std::optional(position);
}

/// A chain of the candidates that the options admit.
std::unique_ptr<Assembler> chain_of(const AssemblerOptions& options,
                                    std::vector<AssemblerCandidate> all,
                                    std::vector<std::string>& refused) {
  const std::optional<size_t> one = chosen(options.choice);
  if (!one)
    return AssemblerChain::find(std::move(all), refused);
  std::vector<std::string> reasons;
  std::unique_ptr<Assembler> chain = AssemblerChain::find({all[*one]}, reasons);
  if (chain == nullptr)
    throw RuntimeError("looking for the assembler", fmt::format("{}", fmt::join(reasons, "; ")),
                       "--assembler=auto takes any that is there");
  return chain;
}

std::unique_ptr<Assembler> required(std::unique_ptr<Assembler> assembler,
                                    const std::vector<std::string>& refused) {
  if (assembler == nullptr)
    throw RuntimeError("looking for an assembler", fmt::format("{}", fmt::join(refused, "; ")),
                       "install a CUDA toolkit, or nvJitLink alone");
  return assembler;
}

/// An assembler with the cache in front of it, in one piece.
class Cached : public Assembler {
public:
  Cached(std::unique_ptr<Assembler> assembler, std::unique_ptr<Cache> cache,
         std::function<void(const std::string&)> tell,
         std::function<void(const std::string&)> remark)
      : assembler_(std::move(assembler)), cache_(std::move(cache)),
        caching_(*assembler_, *cache_, std::move(tell), std::move(remark)) {}
  std::string identity() const override { return caching_.identity(); }
  Assembled assemble(const AssembleRequest& request) const override {
    return caching_.assemble(request);
  }

private:
  std::unique_ptr<Assembler> assembler_;
  std::unique_ptr<Cache> cache_;
  CachingAssembler caching_;
};

} // namespace

void declare(CLI::App& parser, AssemblerOptions& options) {
  parser
      .add_option("--assembler", options.choice,
                  "Which makes machine code: ptxas, nvjitlink, driver, or auto: the first of these "
                  "that is there and knows the target")
      ->check(CLI::Validator(
          [](std::string& word) {
            chosen(word); // says what is known
            return std::string();
          },
          ""))
      ->capture_default_str();
}

std::unique_ptr<Assembler> find_assembler(const AssemblerOptions& options,
                                          std::vector<std::string>& refused) {
  return chain_of(options, all_candidates(), refused);
}

std::unique_ptr<Assembler> find_cached_assembler(const AssemblerOptions& options,
                                                 const CacheOptions& cache, bool verbose,
                                                 std::vector<std::string>& refused) {
  if (cache.off)
    return find_assembler(options, refused);
  std::vector<AssemblerCandidate> candidates = all_candidates();
  const std::string directory = Cache::choose_directory(cache.directory);
  std::function<void(const std::string&)> tell;
  if (verbose)
    tell = [](const std::string& text) { fmt::print(stderr, "cache: {}\n", text); };
  // Once, whichever member it is.
  const auto remark = [told = std::make_shared<std::atomic<bool>>(false)](const std::string& text) {
    if (!told->exchange(true))
      fmt::print(stderr, "remark: {}\n", text);
  };
  for (AssemblerCandidate& candidate : candidates)
    candidate.open = [open = candidate.open, directory, limit = cache.limit_mib << 20, tell,
                      remark](std::vector<std::string>& reasons) -> std::unique_ptr<Assembler> {
      std::unique_ptr<Assembler> assembler = open(reasons);
      if (assembler == nullptr)
        return nullptr;
      return std::make_unique<Cached>(std::move(assembler),
                                      std::make_unique<Cache>(directory, limit), tell, remark);
    };
  return chain_of(options, std::move(candidates), refused);
}

std::unique_ptr<Assembler> require_assembler() {
  std::vector<std::string> refused;
  std::unique_ptr<Assembler> assembler = find_assembler({}, refused);
  return required(std::move(assembler), refused);
}

std::unique_ptr<Assembler> require_cached_assembler(const AssemblerOptions& options,
                                                    const CacheOptions& cache) {
  std::vector<std::string> refused;
  std::unique_ptr<Assembler> assembler = find_cached_assembler(options, cache, false, refused);
  return required(std::move(assembler), refused);
}

} // namespace sparsertc
