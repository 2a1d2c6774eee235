/* sparsertc.h in plain C: it compiles there, and structs have the sizes they have in C++. */
#include "runtime/include/sparsertc.h"

size_t c_size_of_plan_info(void);
size_t c_size_of_arguments(void);
size_t c_size_of_execution_status(void);
size_t c_size_of_values(void);

size_t c_size_of_plan_info(void) {
  return sizeof(sparsertc_plan_info);
}
size_t c_size_of_arguments(void) {
  return sizeof(sparsertc_arguments);
}
size_t c_size_of_execution_status(void) {
  return sizeof(sparsertc_execution_status);
}
size_t c_size_of_values(void) {
  return sizeof(sparsertc_values);
}

size_t c_size_of_network_info(void);
size_t c_size_of_layer_info(void);
size_t c_size_of_network_arguments(void);

size_t c_size_of_network_info(void) {
  return sizeof(sparsertc_network_info);
}
size_t c_size_of_layer_info(void) {
  return sizeof(sparsertc_layer_info);
}
size_t c_size_of_network_arguments(void) {
  return sizeof(sparsertc_network_arguments);
}

size_t c_size_of_lu_info(void);
size_t c_size_of_lu_structure(void);
size_t c_size_of_lu_workspace(void);
size_t c_size_of_lu_matrix(void);
size_t c_size_of_lu_system(void);
size_t c_size_of_lu_factor_status(void);
size_t c_size_of_lu_assessment(void);
size_t c_size_of_lu_refinement(void);
size_t c_size_of_lu_batch_matrices(void);
size_t c_size_of_lu_batch_systems(void);

size_t c_size_of_lu_info(void) {
  return sizeof(sparsertc_lu_info);
}
size_t c_size_of_lu_structure(void) {
  return sizeof(sparsertc_lu_structure);
}
size_t c_size_of_lu_workspace(void) {
  return sizeof(sparsertc_lu_workspace);
}
size_t c_size_of_lu_matrix(void) {
  return sizeof(sparsertc_lu_matrix);
}
size_t c_size_of_lu_system(void) {
  return sizeof(sparsertc_lu_system);
}
size_t c_size_of_lu_factor_status(void) {
  return sizeof(sparsertc_lu_factor_status);
}
size_t c_size_of_lu_assessment(void) {
  return sizeof(sparsertc_lu_assessment);
}
size_t c_size_of_lu_refinement(void) {
  return sizeof(sparsertc_lu_refinement);
}
size_t c_size_of_lu_batch_matrices(void) {
  return sizeof(sparsertc_lu_batch_matrices);
}
size_t c_size_of_lu_batch_systems(void) {
  return sizeof(sparsertc_lu_batch_systems);
}
