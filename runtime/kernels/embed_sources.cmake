# Writes OUTPUT, a C++ file with the texts of SOURCES (paths, separated by `|`) as string literals:
#
#   cmake -DOUTPUT=sources.cpp -DSOURCES=a.cu|b.cuh -P embed_sources.cmake
string(REPLACE "|" ";" sources "${SOURCES}")
set(text "// Made by embed_sources.cmake.\n#include \"runtime/kernels/kernel_sources.h\"\n\n")
string(APPEND text "namespace sparsertc::kernels {\n\nstd::span<const KernelSource> kernel_sources() {\n")
string(APPEND text "  static constexpr KernelSource sources[] = {\n")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME)
  file(READ "${source}" content)
  string(APPEND text "{\"${name}\", R\"cuda_text(${content})cuda_text\"},\n")
endforeach()
string(APPEND text "  };\n  return sources;\n}\n\n} // namespace sparsertc::kernels\n")
file(WRITE "${OUTPUT}" "${text}")
