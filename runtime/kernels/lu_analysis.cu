// The kernels of the analysis of sparse LU, as one program.
#include "kahn.cuh"

/// What a thread does while it waits for another.
#ifndef SPARSERTC_SPIN
#define SPARSERTC_SPIN
#endif

#include "fill2.cu"
#include "kahn.cu"
#include "scan.cu"
