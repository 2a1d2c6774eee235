/* sparsertc_compiler.h in plain C. */
#include "tools/library/sparsertc_compiler.h"

size_t c_size_of_matrix(void);

size_t c_size_of_matrix(void) {
  return sizeof(sparsertc_matrix);
}

size_t c_size_of_lu_choices(void);

size_t c_size_of_lu_choices(void) {
  return sizeof(sparsertc_lu_choices);
}
