# LLVM as static libraries, for the program that is carried to other machines.

# sparsertc_link_static_llvm(target component...): links the components and what they stand on into
# `target`. Of LLVM's own dependencies the components here need zlib and zstd (compressed sections),
# which are taken as archives; Z3, libxml2 and curses belong to parts that are not linked.
function(sparsertc_link_static_llvm target)
  find_library(SPARSERTC_ZSTD_ARCHIVE libzstd.a)
  if(NOT SPARSERTC_ZSTD_ARCHIVE)
    message(FATAL_ERROR "SPARSERTC_STATIC needs libzstd.a (Debian: libzstd-dev), which LLVM's "
                        "archives refer to; `bash tools/setup.sh` installs it")
  endif()

  get_target_property(dependencies LLVMSupport INTERFACE_LINK_LIBRARIES)
  list(FILTER dependencies EXCLUDE REGEX "libz3")
  list(TRANSFORM dependencies REPLACE "^zstd::.*$" "${SPARSERTC_ZSTD_ARCHIVE}")
  set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "${dependencies}")

  llvm_map_components_to_libnames(libraries ${ARGN})
  list(REMOVE_DUPLICATES libraries)
  target_link_libraries(${target} INTERFACE ${libraries})
endfunction()
