// The eightfold symmetry of the square grid: a window is split into components that do not mix under it.
//
// Reflections and quarter turns of the square permute the pixels (y, x) of a window in orbits: the centre, the axes
// {(0, ±a), (±a, 0)}, the diagonals {(±a, ±a)} and eight pixels {(±b, ±a), (±a, ±b)} for 0 < a < b. Sums and
// differences over an orbit give components that belong to one of six classes:
//
//     even in x and y          A1 unchanged by x ↔ y,  B1 changes sign
//     odd in x and y           B2 unchanged by x ↔ y,  A2 changes sign
//     odd in x, even in y      Ex                      (and Ey the other way round)
//
// The atoms τ(r) cos kφ and τ(r) sin kφ lie in one class each (by k modulo 4), so that a response needs the components
// of that class alone: for a 7×7 window and 18 atoms, 172 multiplications and 99 additions instead of 882 of both.
#pragma once
#include <utility>

#include "vectors.h"

namespace sfcnn {
namespace SFCNN_ISA {

// The first component of each class in a window of radius R. `tables.py` has the same order.
struct Classes {
    int radius, a1, a2, b1, b2, ex, ey, end;
    explicit Classes(int R) : radius(R) {
        const int octets = R * (R - 1) / 2;
        a1 = 0, a2 = a1 + 1 + 2 * R + octets, b1 = a2 + octets, b2 = b1 + R + octets;
        ex = b2 + R + octets, ey = ex + 2 * R + 2 * octets, end = ey + 2 * R + 2 * octets;
    }
    int first(int number) const { return (&a1)[number]; }
};

// One vector of a window, around its centre → the same lanes of its components, `width` numbers apart. The radius is
// known to the compiler up to `known_radius`, and 0 stands for any.
constexpr int known_radius = 4;
template <class Real, int radius>
void split_window(int any_radius, const Real* centre, std::ptrdiff_t line, Real* components) {
    using Vec = Vector<Real>;
    const Classes k(radius ? radius : any_radius);
    const int R = k.radius;
    auto at = [=](int y, int x) { return load(centre + y * line + x * lanes<Real>); };
    auto put = [=](int i, Vec value) { store(components + i * width<Real>, value); };
    put(k.a1, at(0, 0));
#pragma GCC unroll 8
    for (int a = 1; a <= R; a++) {
        const Vec east = at(0, a), west = at(0, -a), south = at(a, 0), north = at(-a, 0);
        const Vec x = east + west, y = south + north;
        put(k.a1 + a, x + y), put(k.b1 + a - 1, x - y);
        put(k.ex + a - 1, east - west), put(k.ey + a - 1, south - north);
    }
    // Four pixels (±y, ±x), split by parity: even in both, odd in both, odd in x, odd in y.
    struct Parities { Vec even, odd, x, y; };
    auto parities = [=](int y, int x) {
        const Vec pp = at(y, x), pm = at(y, -x), mp = at(-y, x), mm = at(-y, -x);
        const Vec sum_below = pp + pm, sum_above = mp + mm, below = pp - pm, above = mp - mm;
        return Parities{sum_below + sum_above, below - above, below + above, sum_below - sum_above};
    };
#pragma GCC unroll 8
    for (int a = 1; a <= R; a++) {
        const Parities p = parities(a, a);
        put(k.a1 + R + a, p.even), put(k.b2 + a - 1, p.odd), put(k.ex + R + a - 1, p.x), put(k.ey + R + a - 1, p.y);
    }
#pragma GCC unroll 8
    for (int a = 1, i = 0; a <= R; a++)
#pragma GCC unroll 8
        for (int b = a + 1; b <= R; b++, i++) {
            const Parities p = parities(b, a), q = parities(a, b);
            put(k.a1 + 2 * R + 1 + i, p.even + q.even), put(k.b1 + R + i, p.even - q.even);
            put(k.b2 + R + i, p.odd + q.odd), put(k.a2 + i, p.odd - q.odd);
            put(k.ex + 2 * R + 2 * i, p.x), put(k.ex + 2 * R + 2 * i + 1, q.x);
            put(k.ey + 2 * R + 2 * i, p.y), put(k.ey + 2 * R + 2 * i + 1, q.y);
        }
}

// The adjoint: adds what the components stand for to the window.
template <class Real, int radius>
void join_window(int any_radius, const Real* components, Real* centre, std::ptrdiff_t line) {
    using Vec = Vector<Real>;
    const Classes k(radius ? radius : any_radius);
    const int R = k.radius;
    auto add = [=](int y, int x, Vec value) {
        Real* to = centre + y * line + x * lanes<Real>;
        store(to, load(to) + value);
    };
    auto get = [=](int i) { return load(components + i * width<Real>); };
    add(0, 0, get(k.a1));
#pragma GCC unroll 8
    for (int a = 1; a <= R; a++) {
        const Vec both = get(k.a1 + a), turned = get(k.b1 + a - 1), x = both + turned, y = both - turned;
        const Vec east = get(k.ex + a - 1), south = get(k.ey + a - 1);
        add(0, a, x + east), add(0, -a, x - east), add(a, 0, y + south), add(-a, 0, y - south);
    }
    auto parities = [=](int y, int x, Vec even, Vec odd, Vec odd_x, Vec odd_y) {
        const Vec sum_below = even + odd_y, sum_above = even - odd_y, below = odd_x + odd, above = odd_x - odd;
        add(y, x, sum_below + below), add(y, -x, sum_below - below);
        add(-y, x, sum_above + above), add(-y, -x, sum_above - above);
    };
#pragma GCC unroll 8
    for (int a = 1; a <= R; a++)
        parities(a, a, get(k.a1 + R + a), get(k.b2 + a - 1), get(k.ex + R + a - 1), get(k.ey + R + a - 1));
#pragma GCC unroll 8
    for (int a = 1, i = 0; a <= R; a++)
#pragma GCC unroll 8
        for (int b = a + 1; b <= R; b++, i++) {
            const Vec even = get(k.a1 + 2 * R + 1 + i), turned = get(k.b1 + R + i);
            const Vec odd = get(k.b2 + R + i), twisted = get(k.a2 + i);
            parities(b, a, even + turned, odd + twisted, get(k.ex + 2 * R + 2 * i), get(k.ey + 2 * R + 2 * i));
            parities(a, b, even - turned, odd - twisted, get(k.ex + 2 * R + 2 * i + 1), get(k.ey + 2 * R + 2 * i + 1));
        }
}

// Both by radius.
template <class Real, int... R> constexpr auto split_table(std::integer_sequence<int, R...>) {
    struct Table { void (*at[sizeof...(R)])(int, const Real*, std::ptrdiff_t, Real*); };
    return Table{{split_window<Real, R>...}};
}
template <class Real, int... R> constexpr auto join_table(std::integer_sequence<int, R...>) {
    struct Table { void (*at[sizeof...(R)])(int, const Real*, Real*, std::ptrdiff_t); };
    return Table{{join_window<Real, R>...}};
}
using Radii = std::make_integer_sequence<int, known_radius + 1>;
template <class Real> constexpr auto split_windows = split_table<Real>(Radii());
template <class Real> constexpr auto join_windows = join_table<Real>(Radii());

}  // namespace SFCNN_ISA
}  // namespace sfcnn
