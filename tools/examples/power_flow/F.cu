// AC power flow: equation i is the balance of active power at a bus whose angle is unknown, or that
// of reactive power at one whose magnitude is unknown, too. README.md describes the parameters.
//
// With admittances in polar form, y at the angle phase, a neighbour takes from bus k
//
//   active    V_k V_m y cos(angle_k - angle_m - phase)
//   reactive  V_k V_m y sin(angle_k - angle_m - phase)

// An unknown's number is -1 where the voltage is given.
template <class T>
__device__ T angle_at(long long unknown, long long bus, Unknowns<T> x, const Parameters& p) {
  return unknown < 0 ? T(p.angle[bus]) : x[unknown];
}

template <class T>
__device__ T magnitude_at(long long unknown, long long bus, Unknowns<T> x, const Parameters& p) {
  return unknown < 0 ? T(p.magnitude[bus]) : x[unknown];
}

template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const long long angles = p.size_angle_bus;
  const bool active = i < angles;
  const long long bus = active ? p.angle_bus[i] : p.magnitude_bus[i - angles];
  // The sine is the cosine a quarter turn earlier.
  const double turn = active ? 0.0 : 1.5707963267948966;
  const T angle = x[p.angle_unknown[bus]];
  const T magnitude = magnitude_at(p.magnitude_unknown[bus], bus, x, p);
  const T own = magnitude * (active ? p.own_conductance[bus] : -p.own_susceptance[bus]);
  const T others = sum_over(p.row_start[bus], p.row_start[bus + 1], [&](long long e) {
    const long long other = p.neighbour[e];
    const T across = angle - angle_at(p.neighbour_angle[e], other, x, p) - (p.phase[e] + turn);
    return magnitude_at(p.neighbour_magnitude[e], other, x, p) * (p.admittance[e] * cos(across));
  });
  f = magnitude * (own + others) - (active ? p.active[bus] : p.reactive[bus]);
}
