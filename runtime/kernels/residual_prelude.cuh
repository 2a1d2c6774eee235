// What CUDA C++ has and C++ has not, so that the host's compiler reads a residual, too. Stands at
// the beginning of its program; on the GPU there is nothing to do.
#ifndef __CUDACC__
#include <math.h>
#include <stdlib.h>

#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__

inline double max(double a, double b) {
  return fmax(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline long long max(long long a, long long b) {
  return a > b ? a : b;
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline float min(float a, float b) {
  return fminf(a, b);
}
inline int min(int a, int b) {
  return a < b ? a : b;
}
inline long long min(long long a, long long b) {
  return a < b ? a : b;
}
inline void sincos(float a, float* sine, float* cosine) {
  *sine = sinf(a);
  *cosine = cosf(a);
}
#endif
