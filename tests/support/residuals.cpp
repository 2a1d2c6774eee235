#include "tests/support/residuals.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace sparsertc::test {
namespace {

Pattern from_rows(const std::vector<std::set<uint32_t>>& rows) {
  Pattern pattern;
  pattern.rows = pattern.columns = static_cast<uint32_t>(rows.size());
  for (const std::set<uint32_t>& row : rows) {
    pattern.column_index.insert(pattern.column_index.end(), row.begin(), row.end());
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return pattern;
}

/// Around 1, none like another.
std::vector<double> start(uint64_t n) {
  std::vector<double> x(n);
  for (uint64_t i = 0; i < n; ++i)
    x[i] = 1 + 0.37 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  return x;
}

} // namespace

ResidualCase brusselator(uint32_t side) {
  constexpr double a = 1, b = 3.4, d = 0.8;
  ResidualCase made;
  made.name = "brusselator";
  made.source = {"brusselator.cu", R"(// Unknowns 2 k and 2 k + 1 are the species at point k.
template <class T> __device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const int side = p.side[0], point = i / 2, kind = i % 2;
  const int row = point / side, column = point % side;
  const int north = (row + side - 1) % side * side + column;
  const int south = (row + 1) % side * side + column;
  const int west = row * side + (column + side - 1) % side;
  const int east = row * side + (column + 1) % side;
  const T u = x[2 * point], v = x[2 * point + 1];
  const T around = x[2 * north + kind] + x[2 * south + kind] + x[2 * west + kind] +
                   x[2 * east + kind] - 4 * x[i];
  const double a = p.constants[0], b = p.constants[1], d = p.constants[2];
  f = d * around + (kind == 0 ? a + u * u * v - (b + 1) * u : b * u - u * u * v);
}
)"};
  made.parameters.arrays.push_back({"side", std::vector<int64_t>{side}, false});
  made.parameters.arrays.push_back({"constants", std::vector<double>{a, b, d}, false});
  made.x0 = start(uint64_t{2} * side * side);
  const auto neighbours = [side](uint32_t i) {
    const uint32_t point = i / 2, kind = i % 2, row = point / side, column = point % side;
    std::vector<uint32_t> found;
    for (const uint32_t other :
         {(row + side - 1) % side * side + column, (row + 1) % side * side + column,
          row * side + (column + side - 1) % side, row * side + (column + 1) % side})
      found.push_back(2 * other + kind);
    return found;
  };
  std::vector<std::set<uint32_t>> rows(2 * side * side);
  for (uint32_t i = 0; i < rows.size(); ++i) {
    for (const uint32_t j : neighbours(i))
      rows[i].insert(j);
    rows[i].insert({i / 2 * 2, i / 2 * 2 + 1});
  }
  made.pattern = from_rows(rows);
  made.derivative = [neighbours](const std::vector<double>& x, uint32_t i, uint32_t j) {
    const double u = x[i / 2 * 2], v = x[i / 2 * 2 + 1];
    double sum = 0;
    for (const uint32_t other : neighbours(i))
      sum += other == j ? d : 0;
    if (j == i)
      sum -= 4 * d;
    if (j == i / 2 * 2)
      sum += i % 2 == 0 ? 2 * u * v - (b + 1) : b - 2 * u * v;
    if (j == i / 2 * 2 + 1)
      sum += i % 2 == 0 ? u * u : -u * u;
    return sum;
  };
  return made;
}

ResidualCase dense_squares(uint32_t n) {
  ResidualCase made;
  made.name = "dense";
  made.source = {"dense.cu", R"(template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const long long n = x.size();
  f = T(0);
  for (long long j = 0; j < n; ++j)
    f += p.a[i * n + j] * x[j] * x[j];
}
)"};
  std::vector<double> a(uint64_t{n} * n);
  for (uint64_t k = 0; k < a.size(); ++k)
    a[k] = 0.5 + static_cast<double>(k % 7);
  made.parameters.arrays.push_back({"a", a, false});
  made.x0 = start(n);
  std::vector<std::set<uint32_t>> rows(n);
  for (auto& row : rows)
    for (uint32_t j = 0; j < n; ++j)
      row.insert(j);
  made.pattern = from_rows(rows);
  made.derivative = [a, n](const std::vector<double>& x, uint32_t i, uint32_t j) {
    return 2 * a[uint64_t{i} * n + j] * x[j];
  };
  return made;
}

ResidualCase branches(uint32_t n) {
  ResidualCase made;
  made.name = "branches";
  made.source = {"branches.cu",
                 R"(// Reads x[i - 1] only where the unknown is below 1; x[0] decides and
// is no dependency; floor has no derivative.
template <class T> __device__ void residual(Row i, Unknowns<T> x, const Parameters&, T& f) {
  f = max(x[i], T(0.25)) + floor(x[(i + 2) % x.size()]);
  if (x[i] < 1)
    f += min(fabs(x[(i + x.size() - 1) % x.size()]), 5.0);
  if (x[0] > 1e6)
    f = 0;
}
)"};
  made.x0 = start(n);
  std::vector<std::set<uint32_t>> rows(n);
  for (uint32_t i = 0; i < n; ++i) {
    rows[i].insert(i);
    if (made.x0[i] < 1)
      rows[i].insert((i + n - 1) % n);
  }
  made.pattern = from_rows(rows);
  made.derivative = [](const std::vector<double>& x, uint32_t i, uint32_t j) {
    if (j == i)
      return x[i] > 0.25 ? 1.0 : 0.0;
    return x[i] < 1 ? (x[j] > 0 ? 1.0 : -1.0) : 0.0;
  };
  return made;
}

ResidualCase chain_of_flows(uint32_t n) {
  ResidualCase made;
  made.name = "chain";
  made.by_row = false;
  made.source = {"chain.cu", R"(template <class T>
__device__ T flow(const T& a, const T& b) {
  return sqrt(1 + (a - b) * (a - b));
}
template <class T> __device__ void residual(Unknowns<T> x, const Parameters& p, Residuals<T> f) {
  f[0] = p.inflow[0] * x[0];
  for (long long i = 0; i + 1 < x.size(); ++i) {
    const T out = flow(x[i], x[i + 1]);
    f[i] -= out;
    f[i + 1] += out;
  }
}
)"};
  made.parameters.arrays.push_back({"inflow", std::vector<double>{0.75}, false});
  made.x0 = start(n);
  std::vector<std::set<uint32_t>> rows(n);
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i == 0 ? 0 : i - 1; j <= std::min(i + 1, n - 1); ++j)
      rows[i].insert(j);
  made.pattern = from_rows(rows);
  made.derivative = [n](const std::vector<double>& x, uint32_t i, uint32_t j) {
    // By the first argument; by the second it is the negative.
    const auto slope = [&](uint32_t k) {
      const double difference = x[k] - x[k + 1];
      return difference / std::sqrt(1 + difference * difference);
    };
    double sum = i == 0 && j == 0 ? 0.75 : 0;
    if (i + 1 < n)
      sum -= j == i ? slope(i) : j == i + 1 ? -slope(i) : 0;
    if (i > 0)
      sum += j == i - 1 ? slope(i - 1) : j == i ? -slope(i - 1) : 0;
    return sum;
  };
  return made;
}

ResidualCase weighted_graph(uint32_t n) {
  ResidualCase made;
  made.name = "graph";
  made.source = {"graph.cu", R"(template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  f = x[i] + sum_over(p.first[i], p.first[i + 1], [&](long long e) {
    return p.weight[e] * sin(x[i] - x[p.other[e]]);
  });
}
)"};
  std::vector<int64_t> first = {0}, other;
  std::vector<double> weight;
  std::vector<std::set<uint32_t>> rows(n);
  for (uint32_t i = 0; i < n; ++i) {
    rows[i].insert(i);
    for (uint32_t k = 0; k < 1 + i * i % 21; ++k) {
      const uint32_t j = (i + 1 + 3 * k) % n;
      if (j == i)
        continue;
      rows[i].insert(j);
      other.push_back(j);
      weight.push_back(0.25 + 0.5 * static_cast<double>(k % 3));
    }
    first.push_back(static_cast<int64_t>(other.size()));
  }
  made.parameters.arrays.push_back({"first", first, false});
  made.parameters.arrays.push_back({"other", other, false});
  made.parameters.arrays.push_back({"weight", weight, false});
  made.x0 = start(n);
  made.pattern = from_rows(rows);
  made.derivative = [first, other, weight](const std::vector<double>& x, uint32_t i, uint32_t j) {
    double sum = i == j ? 1 : 0;
    for (auto e = static_cast<size_t>(first[i]); e < static_cast<size_t>(first[i + 1]); ++e) {
      const double slope = weight[e] * std::cos(x[i] - x[static_cast<size_t>(other[e])]);
      sum += i == j ? slope : static_cast<uint32_t>(other[e]) == j ? -slope : 0;
    }
    return sum;
  };
  return made;
}

ResidualCase mixed_graph(uint32_t n) {
  ResidualCase made;
  made.name = "mixed";
  made.source = {"mixed.cu", R"(template <class T>
__device__ T at(long long unknown, long long edge, Unknowns<T> x, const Parameters& p) {
  return unknown < 0 ? T(p.given[edge]) : x[unknown];
}

template <class T>
__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) {
  const long long next = p.next[i];
  const T factor = next < 0 ? T(p.factor[i]) : x[next];
  const T sum = sum_over(p.first[i], p.first[i + 1], [&](long long e) {
    return p.weight[e] * x[i] * at(p.other[e], e, x, p);
  });
  f = factor * sum + p.after[i] * x[i] + double(p.large[i] - 5000000000);
}
)"};
  std::vector<int64_t> first = {0}, other, next, large;
  std::vector<double> weight, given, factor, after;
  std::vector<std::set<uint32_t>> rows(n);
  for (uint32_t i = 0; i < n; ++i) {
    rows[i].insert(i);
    next.push_back(i % 3 == 0 ? -1 : static_cast<int64_t>((i + 1) % n));
    if (i % 3 != 0)
      rows[i].insert((i + 1) % n);
    factor.push_back(0.5 + i % 4);
    after.push_back(0.25 * (i % 5));
    large.push_back(5000000000 + i);
    for (uint32_t k = 0; k < i * i % 13; ++k) {
      const uint32_t j = (i + 3 + 2 * k) % n;
      const bool is_given = j == i || (i + k) % 4 == 0;
      if (!is_given)
        rows[i].insert(j);
      other.push_back(is_given ? -1 : static_cast<int64_t>(j));
      given.push_back(1.5 - 0.25 * static_cast<double>(k % 7));
      weight.push_back(0.25 + 0.5 * static_cast<double>(k % 3));
    }
    first.push_back(static_cast<int64_t>(other.size()));
  }
  for (const auto& [name, values] : {std::pair("first", first), std::pair("other", other),
                                     std::pair("next", next), std::pair("large", large)})
    made.parameters.arrays.push_back({name, values, false});
  for (const auto& [name, values] : {std::pair("weight", weight), std::pair("given", given),
                                     std::pair("factor", factor), std::pair("after", after)})
    made.parameters.arrays.push_back({name, values, false});
  made.x0 = start(n);
  made.pattern = from_rows(rows);
  made.derivative = [=](const std::vector<double>& x, uint32_t i, uint32_t j) {
    const double f = next[i] < 0 ? factor[i] : x[static_cast<size_t>(next[i])];
    double sum = 0, by_j = 0;
    for (auto e = static_cast<size_t>(first[i]); e < static_cast<size_t>(first[i + 1]); ++e) {
      const double at = other[e] < 0 ? given[e] : x[static_cast<size_t>(other[e])];
      sum += weight[e] * x[i] * at;
      by_j += (i == j ? weight[e] * at : 0) + (other[e] == j ? weight[e] * x[i] : 0);
    }
    return f * by_j + (next[i] == j ? sum : 0) + (i == j ? after[i] : 0);
  };
  return made;
}

std::vector<ResidualCase> residual_cases() {
  return {brusselator(5),     dense_squares(11), branches(70),
          weighted_graph(40), mixed_graph(45),   chain_of_flows(150)};
}

} // namespace sparsertc::test
