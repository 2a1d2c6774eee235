# How every target of the project is compiled: the interface target `sparsertc_options`.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SPARSERTC_CCACHE ccache)
  mark_as_advanced(SPARSERTC_CCACHE)
  if(SPARSERTC_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SPARSERTC_CCACHE}")
  endif()
endif()

add_library(sparsertc_options INTERFACE)
target_compile_features(sparsertc_options INTERFACE cxx_std_20)
target_include_directories(sparsertc_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(
  sparsertc_options
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>
            # A product and a sum are two roundings unless the code says fma: results must not
            # depend on what the compiler fuses.
            -ffp-contract=off)
target_compile_definitions(sparsertc_options INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

if(SPARSERTC_WERROR)
  target_compile_options(sparsertc_options INTERFACE -Werror)
endif()

if(SPARSERTC_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SPARSERTC_FUZZ needs Clang (libFuzzer); use the preset `fuzz` or "
                      "-DCMAKE_CXX_COMPILER=clang++-14")
endif()

if(SPARSERTC_SANITIZE OR SPARSERTC_FUZZ)
  set(sanitizers -fsanitize=address,undefined -fno-omit-frame-pointer
                 -fno-sanitize-recover=undefined)
  target_compile_options(sparsertc_options INTERFACE ${sanitizers})
  target_link_options(sparsertc_options INTERFACE ${sanitizers})
endif()
if(SPARSERTC_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's own documentation: with sanitizers this warning has false positives (in <regex>, say).
  target_compile_options(sparsertc_options
                         INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(SPARSERTC_FUZZ)
  target_compile_options(sparsertc_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(SPARSERTC_STATIC)
  target_link_options(sparsertc_options INTERFACE -static-libstdc++ -static-libgcc
                      -Wl,--gc-sections -Wl,--as-needed)
  target_compile_options(sparsertc_options INTERFACE -ffunction-sections -fdata-sections)
endif()
