#include "tests/fuzz/seed_inputs.h"

namespace sparsertc::testing {
namespace {

std::vector<Bytes> texts(std::initializer_list<std::string_view> all) {
  std::vector<Bytes> inputs;
  for (const std::string_view text : all)
    inputs.push_back(bytes_of_text(text));
  return inputs;
}

const Bytes kFloats = raw(std::vector<float>{0, 3, 0, 1, 0, 2});

} // namespace

std::vector<Bytes> seed_inputs(std::optional<Format> format) {
  if (!format) {
    std::vector<Bytes> inputs;
    for (const Format each :
         {Format::smtx, Format::matrix_market, Format::npy, Format::npz, Format::safetensors}) {
      inputs.push_back(seed_inputs(each).front());
      inputs.push_back(gzip(seed_inputs(each).front()));
    }
    return inputs;
  }
  switch (*format) {
  case Format::smtx:
    return texts({"2, 4, 3 \n0 2 3 \n0 3 1 \n", "3, 2, 0\n0 0 0 0\n\n",
                  "4, 12, 9\r\n0 3 3 7 9\r\n0 1 11 2 3 4 5 6 10\r\n"});
  case Format::matrix_market:
    return texts(
        {"%%MatrixMarket matrix coordinate real general\n% comment\n3 4 5\n1 1 1.5\n3 4 -2e-3\n"
         "2 1 0\n1 1 1\n2 2 .25\n",
         "%%MatrixMarket matrix coordinate integer symmetric\n3 3 3\n1 1 1\n3 1 -2\n3 2 3\n",
         "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n",
         "%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 4 0\n2 1 1 2\n",
         "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 5\n",
         "%%MatrixMarket matrix array real general\n2 2\n1\n0\n-3e5\n4\n",
         "%%MatrixMarket matrix array complex symmetric\n2 2\n1 0\n0 1\n2 2\n"});
  case Format::npy:
    return {npy_file("<f4", false, "2, 3", kFloats),
            npy_file("|i1", true, "2, 3, 2, 2", Bytes(24, 7), 2),
            npy_file(">f2", true, "3, 4", Bytes(24, 0x3c), 3),
            npy_file("|b1", false, "2, 2", {1, 0, 0, 1}), npy_file("<f8", false, "1,", Bytes(8))};
  case Format::npz: {
    const auto csr =
        scipy_members("csr", {2, 3}, {3, 1, 2}, {{"indices", {1, 0, 2}}, {"indptr", {0, 1, 3}}});
    const auto csc =
        scipy_members("csc", {2, 3}, {1, 3, 2}, {{"indices", {1, 0, 1}}, {"indptr", {0, 1, 2, 3}}});
    const auto coo =
        scipy_members("coo", {2, 3}, {2, 1, 3}, {{"row", {1, 1, 0}}, {"col", {2, 0, 2}}});
    const Bytes w = npy_file("<f4", false, "2, 3", kFloats);
    const Bytes bias = npy_file("<f8", false, "1,", Bytes(8));
    return {zip_file({{"w.npy", w}}, false), zip_file({{"w.npy", w}, {"bias.npy", bias}}, true),
            zip_file(csr, false), zip_file(csc, false), zip_file(coo, true)};
  }
  case Format::safetensors:
    return {
        safetensors_file(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", kFloats),
        safetensors_file(R"({"__metadata__":{"by":"test"},)"
                         R"("bias":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
                         R"("w":{"dtype":"I8","shape":[2,2,2,2],"data_offsets":[8,24]}} )",
                         Bytes(24, 0x3f))};
  }
  return {};
}

std::vector<Bytes> power_case_seeds() {
  constexpr const char* kSmall =
      "function mpc = small\n%{\n a block\n%}\nmpc.version = '2';\nmpc.baseMVA = 100; % MVA\n"
      "mpc.bus = [\n7\t3 0 0 0 0 1 1 0 220 1 1.1 .9;\n9, 1, 5, +1e0, 0, 0, 1, 1, -2.5, ...\n"
      "220, 1, 1.1, 0.9\n];\nmpc.gen = [7 5 0 Inf -Inf 1 100 1 9 0];\n"
      "mpc.branch = [7 9 0.1 0.2 0 0 0 0 0.98 -3 1];\nmpc.names = {'it''s'; [1, 2; 3 4]};\n";
  return {bytes_of_text(kSmall), gzip(bytes_of_text(kSmall)),
          bytes_of_text("mpc.version=2,mpc.baseMVA=1\nmpc.bus=[];mpc.gen=[];mpc.branch=[]\nend")};
}

} // namespace sparsertc::testing
