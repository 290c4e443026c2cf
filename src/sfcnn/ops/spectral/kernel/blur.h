// The blurred maximum: over 2×2 pixels at every position, blurred, at every second position; and its adjoint.
//
//     M[r][c] = max of x[r … r + 1][c … c + 1]                               (H − 1, W − 1)
//     y[i][j] = Σ_st v_s h_t M[2i − 1 + s][2j − 1 + t],   s, t = 0 … 3       (H // 2, W // 2)
//
// The taps v and h are (2, 4, 2, 0)/8 along an even side and (1, 3, 3, 1)/8 along an odd one. Beyond the border, M has
// its outermost values. For the adjoint, the corner of each maximum is kept in a byte: 0 1 / 2 3.
//
// Maps go through row by row. Rows are copied to scratch memory with room at both ends, so that whole vectors can be
// used and no column is special.
#pragma once
#include <type_traits>

#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

template <class Real> struct Blur {
    using V = Vector<Real>;
    using Whole = decltype(V{} > V{});  // integers of the same size
    typedef uint8_t Bytes __attribute__((vector_size(vector<Real>)));
    using Integer = typename std::conditional<sizeof(Real) == 4, int32_t, int64_t>::type;

    static constexpr Size room = blur_room;  // numbers before and behind a row

    Size height, width, step;  // of the input; numbers from one row of scratch memory to the next
    Real* scratch;
    Real vertical[4], horizontal[4];

    Blur(const Halving& p, void* memory)
        : height(p.height), width(p.width), step(p.width + 2 * room), scratch(static_cast<Real*>(memory)) {
        taps(height, vertical), taps(width, horizontal);
        __builtin_memset(memory, 0, blur_rows * step * sizeof(Real));
    }

    static void taps(Size side, Real* found) {
        const double even[4] = {0.25, 0.5, 0.25, 0}, odd[4] = {0.125, 0.375, 0.375, 0.125};
        for (int t = 0; t < 4; t++) found[t] = static_cast<Real>((side % 2 ? odd : even)[t]);
    }
    Real* row(Size number) const { return scratch + number * step + room; }

    // Vectors from and to anywhere; handed over by reference, since how vectors are passed depends on the machine.
    template <class From, class To> static void read(const From* from, To& x) { __builtin_memcpy(&x, from, sizeof(To)); }
    template <class From, class To> static void write(To* to, const From& x) { __builtin_memcpy(to, &x, sizeof(From)); }

    // The larger of two, NaN if one of them is, and what belongs to it.
    static void meet(V& most, Whole& where, const V& x, const Whole& there) {
        const Whole more = (x > most) | (x != x);
        most = more ? x : most, where = more ? there : where;
    }

    // M[r] from two rows of the input; `to` has room for whole vectors. Writes corners unless they are null.
    void maxima(const Real* above, Real* to, uint8_t* corners) const {
        Real *top = row(0), *bottom = row(1), *column = row(2), *from = row(3);
        __builtin_memcpy(top, above, width * sizeof(Real)), __builtin_memcpy(bottom, above + width, width * sizeof(Real));
        for (Size i = 0; i < width; i += vector<Real>) {
            V most, other;
            Whole where = {};
            read(top + i, most), read(bottom + i, other);
            meet(most, where, other, Whole{} + 2);
            write(column + i, most), write(from + i, where);
        }
        for (Size i = 0; i < width - 1; i += vector<Real>) {
            V most, other;
            Whole where, there;
            read(column + i, most), read(column + i + 1, other), read(from + i, where), read(from + i + 1, there);
            meet(most, where, other, there + 1);
            write(to + i, most);
            if (!corners) continue;
            const Bytes bytes = __builtin_convertvector(where, Bytes);
            const Size count = width - 1 - i;
            __builtin_memcpy(corners + i, &bytes, count < vector<Real> ? count : vector<Real>);
        }
    }

    // y from a map; corners (H − 1, W − 1), or null if nobody asks for them.
    void forward(const Real* features, Real* result, uint8_t* corners) const {
        Real* sum = row(8);
        for (Size i = 0, known = 0; i < height / 2; i++, result += width / 2) {
            const Size last = least(2 * i + 2, height - 2);
            for (; known <= last; known++)  // rows 4 … 7 take turns
                maxima(features + known * width, row(4 + known % 4), corners ? corners + known * (width - 1) : nullptr);
            const Real* rows[4];
            for (Size s = 0; s < 4; s++) rows[s] = row(4 + within(2 * i - 1 + s, height - 2) % 4);
            for (Size c = 0; c < width - 1; c += vector<Real>) {
                V total = {}, x;
                for (int s = 0; s < 4; s++) read(rows[s] + c, x), total += vertical[s] * x;
                write(sum + c, total);
            }
            sum[-1] = sum[0], sum[width - 1] = sum[width] = sum[width - 2];
            const Real *x = sum - 1, *h = horizontal;
            for (Size j = 0; j < width / 2; j++)
                result[j] = h[0] * x[2 * j] + h[1] * x[2 * j + 1] + h[2] * x[2 * j + 2] + h[3] * x[2 * j + 3];
        }
    }

    // ∂M[·] of one row of y, before it is spread over rows of M: `to` has zeros outside 0 … W − 2.
    void widen(const Real* gradient, Real* to) const {
        const Size outputs = width / 2;
        Real *g = row(0), *wide = row(1);
        __builtin_memcpy(g, gradient, outputs * sizeof(Real));
        g[-1] = g[outputs] = 0;
        for (Size q = 0; q <= outputs; q++) {
            wide[2 * q] = horizontal[0] * g[q] + horizontal[2] * g[q - 1];
            wide[2 * q + 1] = horizontal[1] * g[q] + horizontal[3] * g[q - 1];
        }
        if (width % 2) wide[width + 1] = 0;
        wide[1] += wide[0], wide[width - 1] += wide[width] + wide[width + 1];
        __builtin_memcpy(to, wide + 1, (width - 1) * sizeof(Real));
    }

    // ∂x of a map, every pixel of it.
    void adjoint(const Real* gradient, const uint8_t* corners, Real* features_gradient) const {
        const Size outputs = height / 2;
        for (Size r = 0, known = 0; r < height; r++) {
            Real *here = row(4 + r % 2), *above = row(4 + (r + 1) % 2);  // ∂M[r], ∂M[r − 1]
            Real *corner = row(6 + r % 2), *corner_above = row(6 + (r + 1) % 2);
            if (r < height - 1) {
                const Size last = least((r + 1) / 2, outputs - 1);
                for (; known <= last; known++) widen(gradient + known * (width / 2), row(2 + known % 2));
                for (Size c = 0; c < width - 1; c += vector<Real>) write(here + c, V{});
                for (Size i = r < 2 ? 0 : (r - 1) / 2; i <= last; i++) {
                    Real weight = 0;
                    for (Size s = 0; s < 4; s++) weight += within(2 * i - 1 + s, height - 2) == r ? vertical[s] : Real(0);
                    const Real* wide = row(2 + i % 2);
                    for (Size c = 0; c < width - 1; c += vector<Real>) {
                        V x, total;
                        read(wide + c, x), read(here + c, total), write(here + c, total + weight * x);
                    }
                }
                here[-1] = here[width - 1] = 0;
                Integer* __restrict numbers = reinterpret_cast<Integer*>(corner);
                const uint8_t* bytes = corners + r * (width - 1);
                for (Size c = 0; c < width - 1; c++) numbers[c] = bytes[c];
            } else
                for (Size c = -1; c < width; c++) here[c] = 0;
            if (r == 0)
                for (Size c = -1; c < width; c++) above[c] = 0;
            gather(here, corner, above, corner_above, features_gradient + r * width);
        }
    }

   private:
    static Size least(Size a, Size b) { return a < b ? a : b; }
    static Size within(Size r, Size last) { return r < 0 ? 0 : least(r, last); }

    // One row of ∂x: what the four maxima around each pixel hand back to it.
    void gather(const Real* here, const Real* corner, const Real* above, const Real* corner_above, Real* to) const {
        Real* found = row(8);
        auto add = [](V& total, const Real* numbers, const Real* corners, int which) {
            V x;
            Whole at;
            read(numbers, x), read(corners, at);
            total += at == which ? x : V{};
        };
        for (Size c = 0; c < width; c += vector<Real>) {
            V total = {};
            add(total, here + c, corner + c, 0), add(total, here + c - 1, corner + c - 1, 1);
            add(total, above + c, corner_above + c, 2), add(total, above + c - 1, corner_above + c - 1, 3);
            write(found + c, total);
        }
        __builtin_memcpy(to, found, width * sizeof(Real));
    }
};

// Some maps (H, W) → (H // 2, W // 2) and corners (H − 1, W − 1), which may be null.
template <class Real>
void blur(const Halving& p, int64_t first, int64_t last, const void* features, void* result, uint8_t* corners, void* memory) {
    const Blur<Real> pool(p, memory);
    const Size pixels = pool.height * pool.width, outputs = (pool.height / 2) * (pool.width / 2);
    const Size maxima = (pool.height - 1) * (pool.width - 1);
    for (Size map = first; map < last; map++)
        pool.forward(static_cast<const Real*>(features) + map * pixels, static_cast<Real*>(result) + map * outputs,
                     corners ? corners + map * maxima : nullptr);
}

template <class Real>
void blur_adjoint(const Halving& p, int64_t first, int64_t last, const void* gradient, const uint8_t* corners,
                  void* features_gradient, void* memory) {
    const Blur<Real> pool(p, memory);
    const Size pixels = pool.height * pool.width, outputs = (pool.height / 2) * (pool.width / 2);
    const Size maxima = (pool.height - 1) * (pool.width - 1);
    for (Size map = first; map < last; map++)
        pool.adjoint(static_cast<const Real*>(gradient) + map * outputs, corners + map * maxima,
                     static_cast<Real*>(features_gradient) + map * pixels);
}

}  // namespace SFCNN_ISA
}  // namespace sfcnn
