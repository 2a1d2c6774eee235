# Fill-reducing orders: AMD and COLAMD of SuiteSparse (3-clause BSD) and METIS (Apache 2.0). Debian
# ships no package files for them. `sparsertc_orderings` is what fill_order.cpp links.

find_path(SPARSERTC_SUITESPARSE_INCLUDE colamd.h PATH_SUFFIXES suitesparse)
find_path(SPARSERTC_METIS_INCLUDE metis.h)
set(suitesparse_names amd colamd suitesparseconfig)
if(SPARSERTC_STATIC)
  list(TRANSFORM suitesparse_names REPLACE "(.+)" "lib\\1.a")
endif()
add_library(sparsertc_orderings INTERFACE)
foreach(name ${suitesparse_names} metis)
  find_library(SPARSERTC_LIBRARY_${name} ${name})
  if(NOT SPARSERTC_LIBRARY_${name} OR NOT SPARSERTC_SUITESPARSE_INCLUDE OR NOT SPARSERTC_METIS_INCLUDE)
    message(FATAL_ERROR "${name} of SuiteSparse and METIS not found (Debian: libsuitesparse-dev, "
                        "libmetis-dev); `bash tools/setup.sh` installs them")
  endif()
  target_link_libraries(sparsertc_orderings INTERFACE ${SPARSERTC_LIBRARY_${name}})
endforeach()
target_include_directories(
  sparsertc_orderings SYSTEM INTERFACE "${SPARSERTC_SUITESPARSE_INCLUDE}" "${SPARSERTC_METIS_INCLUDE}")

# METIS comes as a shared library only: a portable program finds it in its own folder.
if(SPARSERTC_STATIC)
  set(CMAKE_BUILD_RPATH "$ORIGIN")
  file(REAL_PATH "${SPARSERTC_LIBRARY_metis}" metis_file)
  string(REGEX MATCH "libmetis\\.so\\.[0-9]+" metis_soname "${metis_file}")
  configure_file("${metis_file}" "${CMAKE_BINARY_DIR}/tools/${metis_soname}" COPYONLY)
endif()
