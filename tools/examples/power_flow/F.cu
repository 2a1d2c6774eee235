// AC power flow: equation i is the balance of active power at a bus whose angle is unknown, or that
// of reactive power at one whose magnitude is unknown, too. The parameters are described in
// README.md; an unknown's number is -1 where the voltage is given.

template <class T>
__device__ T angle_at(long long bus, Unknowns<T> x, const Parameters& p) {
  const long long unknown = p.angle_unknown[bus];
  return unknown < 0 ? T(p.angle[bus]) : x[unknown];
}

template <class T>
__device__ T magnitude_at(long long bus, Unknowns<T> x, const Parameters& p) {
  const long long unknown = p.magnitude_unknown[bus];
  return unknown < 0 ? T(p.magnitude[bus]) : x[unknown];
}

template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const long long angles = p.size_angle_bus;
  const bool active = i < angles;
  const long long bus = active ? p.angle_bus[i] : p.magnitude_bus[i - angles];
  const T angle = angle_at(bus, x, p);
  T sum = T(0);
  for (long long e = p.row_start[bus]; e < p.row_start[bus + 1]; ++e) {
    const long long other = p.neighbour[e];
    const T difference = angle - angle_at(other, x, p);
    const T cosine = cos(difference), sine = sin(difference);
    const double g = p.conductance[e], b = p.susceptance[e];
    sum += magnitude_at(other, x, p) * (active ? g * cosine + b * sine : g * sine - b * cosine);
  }
  f = magnitude_at(bus, x, p) * sum - (active ? p.active[bus] : p.reactive[bus]);
}
