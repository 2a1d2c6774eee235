// One step of the Brusselator in two dimensions by backward Euler: x - previous - dt * g(x) = 0, on
// side x side cells with periodic edges. Unknown 2 c is u, 2 c + 1 is v of cell c.
//
//   u' = alpha * laplace(u) + a + u u v - (b + 1) u
//   v' = alpha * laplace(v) + b u - u u v

template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const long long side = p.side[0];
  const long long species = i % 2, cell = i / 2;
  const long long row = cell / side, column = cell % side;
  const long long up = (row + side - 1) % side * side + column;
  const long long down = (row + 1) % side * side + column;
  const long long left = row * side + (column + side - 1) % side;
  const long long right = row * side + (column + 1) % side;
  const T own = x[i], u = x[2 * cell], v = x[2 * cell + 1];
  const T around =
      x[2 * up + species] + x[2 * down + species] + x[2 * left + species] + x[2 * right + species];
  const T consumed = u * u * v;
  const T reaction = species == 0 ? p.a[0] + consumed - (p.b[0] + 1) * u : p.b[0] * u - consumed;
  // The cells' width is 1 / side.
  const double diffusion = p.alpha[0] * static_cast<double>(side * side);
  f = own - p.previous[i] - p.dt[0] * (diffusion * (around - 4.0 * own) + reaction);
}
