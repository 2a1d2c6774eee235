// Writes the seed inputs into folders that libFuzzer takes as its first corpus, one for each
// reader.
#include "compiler/input/bytes.h"
#include "tests/fuzz/seed_inputs.h"

#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

int main(int argc, char** argv) {
  using namespace sparsertc;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const auto write = [&](std::vector<testing::Bytes> seeds, std::string_view name) {
    const std::string folder = fmt::format("{}/{}", argv[1], name);
    std::filesystem::create_directories(folder);
    int number = 0;
    for (testing::Bytes& bytes : seeds) {
      // The first byte chooses the options.
      bytes.insert(bytes.begin(), 0);
      write_bytes(fmt::format("{}/{}", folder, number++), bytes);
    }
  };
  for (const Format format :
       {Format::smtx, Format::matrix_market, Format::npy, Format::npz, Format::safetensors})
    write(testing::seed_inputs(format), to_string(format));
  write(testing::seed_inputs(std::nullopt), "any");
  write(testing::power_case_seeds(), "matpower");
  return 0;
}
