# The libraries the project stands on. Rooms link `fmt::fmt`, `ZLIB::ZLIB`, `CLI11::CLI11`,
# `nlohmann_json::nlohmann_json`, `Threads::Threads` and, for LLVM, `sparsertc_llvm`.

if(SPARSERTC_STATIC)
  set(ZLIB_USE_STATIC_LIBS ON)
endif()

find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 REQUIRED CONFIG)
find_package(nlohmann_json 3.10 REQUIRED CONFIG)

if(SPARSERTC_STATIC)
  # Debian ships no static libfmt; its header-only form is the same code, compiled into the program.
  find_path(SPARSERTC_FMT_INCLUDE fmt/format.h REQUIRED)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_include_directories(fmt::fmt SYSTEM INTERFACE "${SPARSERTC_FMT_INCLUDE}")
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
else()
  find_package(fmt 9 REQUIRED CONFIG)
endif()

# Eigen's sparse product is one of the CPU benchmark's rivals, where present. (OpenBLAS, the other
# one, is opened at run time.)
find_package(Eigen3 3.3 QUIET CONFIG)

find_package(LLVM 22.1 REQUIRED CONFIG)
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_INSTALL_PREFIX}")

set(sparsertc_llvm_components Core Support NVPTX X86 OrcJIT Passes native)

add_library(sparsertc_llvm INTERFACE)
target_include_directories(sparsertc_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(sparsertc_llvm INTERFACE ${llvm_definitions})
if(SPARSERTC_STATIC)
  include(static_llvm)
  sparsertc_link_static_llvm(sparsertc_llvm ${sparsertc_llvm_components})
else()
  # One shared library with all components: links in an instant.
  target_link_libraries(sparsertc_llvm INTERFACE LLVM)
endif()

include(orderings)
