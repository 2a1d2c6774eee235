#include "runtime/plan/plan_manifest.h"

#include "runtime/plan/manifest_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>

namespace sparsertc {
namespace {

using Json = nlohmann::json;
using Reader = ManifestReader;

constexpr uint64_t kSchema = 1;
constexpr uint64_t kMost32 = Reader::kMost32;

PlanEntry read_entry(const Reader& json, const PlanManifest& manifest) {
  const std::initializer_list<std::string_view> kRoles = {"b",       "c",   "bias", "residual",
                                                          "columns", "ldb", "ldc"};
  PlanEntry entry;
  entry.name = json.text("name");
  if (!entry.name.starts_with("sparsertc_"))
    json.refuse("name", "a name that begins with sparsertc_");

  const size_t parameters = json.array("parameters").size();
  if (parameters > PlanEntry::kMostParameters)
    json.refuse("parameters", fmt::format("at most {} of them", PlanEntry::kMostParameters));
  for (size_t i = 0; i < parameters; ++i) {
    const Reader parameter = json.element("parameters", i);
    const auto role = static_cast<OperandRole>(parameter.word("role", kRoles));
    const bool pointer = role <= OperandRole::residual;
    // A kernel reads as many bytes as its parameter has: a wrong number would be read past it.
    const uint64_t bytes = pointer ? 8 : 4;
    if (parameter.number("bytes", 1, 8) != bytes)
      parameter.refuse("bytes", std::to_string(bytes));
    const bool given = role == OperandRole::bias       ? manifest.bias
                       : role == OperandRole::residual ? manifest.residual
                       : role == OperandRole::columns  ? !manifest.n
                       : role == OperandRole::ldb      ? !manifest.ldb
                       : role == OperandRole::ldc      ? !manifest.ldc
                                                       : true;
    if (!given)
      parameter.refuse("role", "a parameter that the layer has");
    entry.parameters.push_back(role);
  }

  for (size_t i = 0; i < json.array("ranges").size(); ++i) {
    const Reader range = json.element("ranges", i);
    entry.ranges.push_back(
        {range.number32("items", 1, kMost32), range.number32("items_per_block", 1, kMost32)});
  }
  if (entry.ranges.empty())
    json.refuse("ranges", "at least one range of blocks");
  const Reader grid = json.object("grid");
  entry.grid_rows = grid.number32("y", 0, kMost32);
  // A launch whose grid is no multiple of the cluster fails, in the driver's words.
  constexpr uint32_t kMostClusterBlocks = 8;
  const uint32_t cluster = grid.number32_or("cluster_y", 1);
  if (cluster < 1 || cluster > kMostClusterBlocks || entry.grid_rows % cluster != 0)
    grid.refuse("cluster_y", fmt::format("1 to {}, a divisor of y", kMostClusterBlocks));
  const Json& block = json.array("block");
  if (block.size() != 3)
    json.refuse("block", "three numbers");
  for (size_t axis = 0; axis < 3; ++axis) {
    if (!block[axis].is_number_unsigned() || block[axis].get<uint64_t>() < 1 ||
        block[axis].get<uint64_t>() > kMost32)
      json.refuse("block", "three positive numbers");
    entry.block[axis] = block[axis].get<uint32_t>();
  }
  entry.dynamic_shared_bytes = json.number32("dynamic_shared_bytes", 0, kMost32);
  entry.pointer_alignment = json.number32("pointer_alignment_bytes", 1, 256);
  if (!std::has_single_bit(entry.pointer_alignment))
    json.refuse("pointer_alignment_bytes", "a power of two");
  entry.static_shared_bytes = json.number32_or("static_shared_bytes", 0);
  entry.registers = json.number32_or("registers", 0);
  return entry;
}

PlanImages read_images(const Reader& json) {
  PlanImages images;
  images.channels = json.number32("channels", 0, kMost32);
  images.height = json.number32("height", 1, kMost32);
  images.width = json.number32("width", 1, kMost32);
  images.out_height = json.number32("out_height", 1, kMost32);
  images.out_width = json.number32("out_width", 1, kMost32);
  // Filter and dilation are pairs of height and width.
  const auto pair = [&](const char* key) {
    const Json& numbers = json.array(key);
    std::array<uint64_t, 2> values{};
    for (size_t i = 0; i < values.size(); ++i) {
      if (numbers.size() != values.size() || !numbers[i].is_number_unsigned() ||
          numbers[i].get<uint64_t>() < 1 || numbers[i].get<uint64_t>() > kMost32)
        json.refuse(key, "two numbers from 1");
      values[i] = numbers[i].get<uint64_t>();
    }
    return values;
  };
  const auto filter = pair("filter"), dilation = pair("dilation");
  const auto window = [&](size_t axis) {
    const uint64_t size = (filter[axis] - 1) * dilation[axis] + 1;
    if (size > kMost32)
      json.refuse("filter", "a window that is no larger than an image can be");
    return static_cast<uint32_t>(size);
  };
  images.window_height = window(0);
  images.window_width = window(1);
  images.words = json.text("words");
  return images;
}

} // namespace

PlanManifest parse_plan_manifest(const std::string& text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    throw UserError(Place{name, 0, 0, {}}, "the manifest is not JSON");
  const Reader reader(json, name, "");
  if (reader.number("schema", 0, std::numeric_limits<uint32_t>::max()) != kSchema)
    reader.refuse("schema", std::to_string(kSchema));
  if (reader.text("family") == "network")
    throw UserError(Place{name, 0, 0, {}}, "this bundle holds a network, not one layer",
                    "load it with sparsertc_network_load, which gives the plan of each layer");
  if (reader.text("family") == "lu")
    throw UserError(Place{name, 0, 0, {}}, "this bundle holds sparse LU, not a layer",
                    "load it with sparsertc_lu_load");
  const bool is_convolution = reader.word("family", {"spmm", "conv2d"}) == 1;

  PlanManifest manifest;
  manifest.target = reader.text("target");
  manifest.m = reader.number("m", 0, kMost32);
  manifest.k = reader.number("k", 0, kMost32);
  manifest.n = reader.optional_number("n", kMost32);
  manifest.nnz = reader.number("nnz", 0, std::numeric_limits<uint32_t>::max());
  constexpr uint32_t kBytes[] = {4, 2, 2, 8};
  manifest.element_bytes = kBytes[reader.word("dtype", {"f32", "f16", "bf16", "f64"})];
  manifest.dtype = reader.text("dtype");
  manifest.column_major = is_convolution ? reader.word("layout", {"nchw", "nhwc"}) == 1
                                         : reader.word("layout", {"row", "column"}) == 1;
  const uint64_t most_leading = kMost32 / manifest.element_bytes;
  manifest.ldb = reader.optional_number("ldb", most_leading);
  manifest.ldc = reader.optional_number("ldc", most_leading);
  if (is_convolution)
    manifest.images = read_images(reader.object("convolution"));
  // `pixels`: of an image of B or C.
  const auto check_leading = [&](const char* key, const std::optional<uint64_t>& leading,
                                 uint64_t rows, uint64_t pixels) {
    if (!leading && (is_convolution || manifest.column_major || manifest.n))
      reader.refuse(key, "a number, as only rows of a length given at the launch have none");
    const uint64_t least = manifest.column_major ? rows
                           : is_convolution      ? rows * pixels
                                                 : manifest.n.value_or(0);
    if (leading && *leading < least)
      reader.refuse(key, is_convolution ? "at least the length of an image or pixel"
                                        : "at least the length of a line");
  };
  const PlanImages images = manifest.images.value_or(PlanImages{});
  check_leading("ldb", manifest.ldb, is_convolution ? images.channels : manifest.k,
                uint64_t{images.height} * images.width);
  check_leading("ldc", manifest.ldc, manifest.m, uint64_t{images.out_height} * images.out_width);
  const Reader epilogue = reader.object("epilogue");
  manifest.bias = epilogue.flag("bias");
  manifest.residual = epilogue.flag("residual");
  manifest.activation = epilogue.text("activation");
  manifest.strategy = reader.text("strategy");
  manifest.tile = reader.text("tile");
  if (json.contains("dense")) {
    const Reader dense = reader.object("dense");
    manifest.dense = {dense.word("code", {"library", "own"}) == 0, dense.text("array"),
                      dense.number("leading", manifest.m, kMost32)};
    if (manifest.dense->library && (!manifest.n || manifest.bias))
      dense.refuse("code", "own, as a library needs a fixed n and adds no bias");
  }
  manifest.pattern_digest = reader.text("pattern_digest");
  manifest.sparsertc = reader.text_or_empty("sparsertc");
  manifest.assembler = reader.text_or_empty("assembler");
  manifest.half_terms = reader.number32_or("half_terms", 0);
  manifest.precision = reader.text_or_empty("precision");
  manifest.nonfinite = reader.text_or_empty("nonfinite");
  manifest.max_registers = reader.number32_or("max_registers", 0);
  for (size_t i = 0; i < reader.array("entries").size(); ++i)
    manifest.entries.push_back(read_entry(reader.element("entries", i), manifest));
  return manifest;
}

} // namespace sparsertc
