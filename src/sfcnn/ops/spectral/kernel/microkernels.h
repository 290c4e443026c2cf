// The two products that nearly all time goes into. Rows are one group wide; sums are kept in registers.
#pragma once
#include <utility>

#include "vectors.h"

namespace sfcnn {
namespace SFCNN_ISA {

// C_i = Σ_k A_ki B_k, or C_i += …, for i < M: numbers A times rows B_k.
template <class Real, int M, bool add>
void multiply_block(int K, const Real* a, const Real* b, std::ptrdiff_t b_step, Real* c, std::ptrdiff_t c_step) {
    constexpr int V = width<Real> / vector<Real>;
    Vector<Real> sum[M][V];
#pragma GCC unroll 32
    for (int i = 0; i < M; i++)
#pragma GCC unroll 32
        for (int v = 0; v < V; v++) sum[i][v] = add ? load(c + i * c_step + v * vector<Real>) : Vector<Real>{};
    for (int k = 0; k < K; k++, a += M, b += b_step) {
        Vector<Real> x[V];
#pragma GCC unroll 32
        for (int v = 0; v < V; v++) x[v] = load(b + v * vector<Real>);
#pragma GCC unroll 32
        for (int i = 0; i < M; i++)
#pragma GCC unroll 32
            for (int v = 0; v < V; v++) sum[i][v] += a[i] * x[v];
    }
#pragma GCC unroll 32
    for (int i = 0; i < M; i++)
#pragma GCC unroll 32
        for (int v = 0; v < V; v++) store(c + i * c_step + v * vector<Real>, sum[i][v]);
}

// P_i = Σ_k A_ki X_k and Q_i = Σ_k B_ki V_k for i < M: rows P − Q and P + Q.
template <class Real, int M>
void combine_block(int K_a, const Real* a, const Real* x, int K_b, const Real* b, const Real* v, Real* minus, Real* plus) {
    constexpr int V = width<Real> / vector<Real>, W = width<Real>;
    Vector<Real> p[M][V] = {}, q[M][V] = {};
    for (int k = 0; k < K_a; k++, a += M, x += W)
#pragma GCC unroll 32
        for (int j = 0; j < V; j++) {
            const Vector<Real> row = load(x + j * vector<Real>);
#pragma GCC unroll 32
            for (int i = 0; i < M; i++) p[i][j] += a[i] * row;
        }
    for (int k = 0; k < K_b; k++, b += M, v += W)
#pragma GCC unroll 32
        for (int j = 0; j < V; j++) {
            const Vector<Real> row = load(v + j * vector<Real>);
#pragma GCC unroll 32
            for (int i = 0; i < M; i++) q[i][j] += b[i] * row;
        }
#pragma GCC unroll 32
    for (int i = 0; i < M; i++)
#pragma GCC unroll 32
        for (int j = 0; j < V; j++) {
            store(minus + i * W + j * vector<Real>, p[i][j] - q[i][j]);
            store(plus + i * W + j * vector<Real>, p[i][j] + q[i][j]);
        }
}

// C_io += Σ_l A_il B_lo for i < M and N halves of strips of o: rows A_i of one group, in each of `groups` groups.
template <class Real, int M, int N>
void correlate_block(int groups, const Real* a, std::ptrdiff_t a_step, const Real* b, Real* c, std::ptrdiff_t c_step) {
    constexpr int numbers = N * lanes<Real> / 2, V = numbers / vector<Real>;
    constexpr bool rest = numbers % vector<Real> != 0;  // half a vector
    Vector<Real> sum[M][V + 1] = {};
    HalfVector<Real> last[M] = {};
    for (int g = 0; g < groups; g++, a += a_step)
        for (int l = 0; l < width<Real>; l++, b += (N + 1) / 2 * lanes<Real>) {
            Vector<Real> x[V + 1];
            HalfVector<Real> y = {};
#pragma GCC unroll 32
            for (int v = 0; v < V; v++) x[v] = load(b + v * vector<Real>);
            if (rest) y = *reinterpret_cast<const HalfVector<Real>*>(b + V * vector<Real>);
#pragma GCC unroll 32
            for (int i = 0; i < M; i++) {
#pragma GCC unroll 32
                for (int v = 0; v < V; v++) sum[i][v] += a[i * width<Real> + l] * x[v];
                if (rest) last[i] += a[i * width<Real> + l] * y;
            }
        }
#pragma GCC unroll 32
    for (int i = 0; i < M; i++) {
        Real* to = c + i * c_step;
#pragma GCC unroll 32
        for (int v = 0; v < V; v++) store(to + v * vector<Real>, load(to + v * vector<Real>) + sum[i][v]);
        if (rest) *reinterpret_cast<HalfVector<Real>*>(to + V * vector<Real>) += last[i];
    }
}

// All numbers of rows: tables of the functions above, by M - 1, and the last by (M - 1) 2 group + N - 1.
template <class Real, bool add, int... I>
constexpr auto multiply_table(std::integer_sequence<int, I...>) {
    using Function = void (*)(int, const Real*, const Real*, std::ptrdiff_t, Real*, std::ptrdiff_t);
    struct Table { Function at[sizeof...(I)]; };
    return Table{{multiply_block<Real, I + 1, add>...}};
}
template <class Real, int... I> constexpr auto combine_table(std::integer_sequence<int, I...>) {
    using Function = void (*)(int, const Real*, const Real*, int, const Real*, const Real*, Real*, Real*);
    struct Table { Function at[sizeof...(I)]; };
    return Table{{combine_block<Real, I + 1>...}};
}
template <class Real, int... I> constexpr auto correlate_table(std::integer_sequence<int, I...>) {
    using Function = void (*)(int, const Real*, std::ptrdiff_t, const Real*, Real*, std::ptrdiff_t);
    struct Table { Function at[sizeof...(I)]; };
    return Table{{correlate_block<Real, I / (2 * group) + 1, I % (2 * group) + 1>...}};
}
template <class Real, bool add>
constexpr auto multiply_rows = multiply_table<Real, add>(std::make_integer_sequence<int, max_rows>());
constexpr int max_pairs = max_rows / 2;
template <class Real>
constexpr auto combine_rows = combine_table<Real>(std::make_integer_sequence<int, max_pairs>());
template <class Real>
constexpr auto correlate_rows = correlate_table<Real>(std::make_integer_sequence<int, max_rows * 2 * group>());

// A matrix with all its rows, packed for `multiply`: blocks of rows, in each of them column by column.
template <class Real, class At> void pack(int rows, int columns, At at, Real* packed, int most = max_rows) {
    const Split split(rows, most);
    for (int block = 0; block < split.blocks; block++)
        for (int k = 0; k < columns; k++)
            for (int i = 0; i < split.count(block); i++) *packed++ = static_cast<Real>(at(split.first(block) + i, k));
}

// C = A B, or C += A B, for a packed matrix A (rows, K).
template <bool add, class Real>
inline void multiply(int rows, int K, const Real* packed, const Real* b, std::ptrdiff_t b_step, Real* c,
                     std::ptrdiff_t c_step) {
    const Split split(rows, max_rows);
    for (int block = 0; block < split.blocks; block++) {
        const int first = split.first(block);
        multiply_rows<Real, add>.at[split.count(block) - 1](K, packed + static_cast<std::ptrdiff_t>(first) * K, b,
                                                           b_step, c + first * c_step, c_step);
    }
}

// P = A X and Q = B V for matrices of as many rows, packed in blocks of at most `max_pairs` rows.
template <class Real>
inline void combine(int rows, int K_a, const Real* a, const Real* x, int K_b, const Real* b, const Real* v, Real* minus,
                    Real* plus) {
    const Split split(rows, max_pairs);
    for (int block = 0; block < split.blocks; block++) {
        const int first = split.first(block);
        combine_rows<Real>.at[split.count(block) - 1](K_a, a + first * K_a, x, K_b, b + first * K_b, v,
                                                      minus + first * width<Real>, plus + first * width<Real>);
    }
}

}  // namespace SFCNN_ISA
}  // namespace sfcnn
