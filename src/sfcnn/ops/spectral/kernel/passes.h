// The passes over features between convolutions: batch norm with ReLU, and the maximum over 2×2 pixels.
//
// Batch norm of a channel takes its mean μ, variance and ι = 1 / √(var + eps) over images and pixels; then, with ReLU,
//
//     z = a x + b,   a = weight ι,   b = bias − a μ,        y = max(0, z).
//
// The backward pass computes z anew from x rather than keep y. With the gradient h = [z > 0] g of z and N numbers,
//
//     ∂bias = Σ h,   ∂weight = ι Σ h (x − μ),               ∂x = a (h − Σ h / N − (x − μ) ι² Σ h (x − μ) / N).
//
// A channel is one task: its numbers are summed in one order, and mostly still in a cache when they are needed again.
#pragma once
#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

// Up to a vector of numbers from anywhere, with `fill` behind those there are.
template <class Real> inline Vector<Real> read(const Real* from, Size count, Real fill = 0) {
    Vector<Real> x = Vector<Real>{} + fill;
    __builtin_memcpy(&x, from, count * sizeof(Real));
    return x;
}
template <class Real> inline void write(Real* to, Size count, Vector<Real> x) {
    __builtin_memcpy(to, &x, count * sizeof(Real));
}

// Visits numbers 0 … count − 1 by whole vectors and what is left over.
template <class Real, class Visit> inline void by_vectors(Size count, Visit visit) {
    Size i = 0;
    for (; i + vector<Real> <= count; i += vector<Real>) visit(i, Size(vector<Real>));
    if (i < count) visit(i, count - i);
}

template <class Real> inline double total(Vector<Real> x) {
    double sum = 0;
    for (int i = 0; i < vector<Real>; i++) sum += x[i];
    return sum;
}

// The numbers of a channel in blocks that stay in the nearest cache: visits each by its first number and their count.
template <class Visit> inline void by_blocks(const Normalization& n, int channel, Visit visit) {
    constexpr Size block = 2048;
    for (Size image = 0; image < n.batch; image++)
        for (Size i = 0; i < n.pixels; i += block)
            visit((image * n.channels + channel) * n.pixels + i, n.pixels - i < block ? n.pixels - i : block);
}

// How many numbers, their mean and Σ (x − mean)²; those of two sets make up those of both.
struct Moments {
    double count, mean, squares;
    void add(const Moments& other) {
        const double both = count + other.count, apart = other.mean - mean;
        mean += apart * other.count / both;
        squares += other.squares + apart * apart * count * other.count / both;
        count = both;
    }
};

// Of one block: about a rough mean first, which costs no digits however far it is from zero.
template <class Real> Moments moments(const Real* x, Size count) {
    Vector<Real> sum{}, rest{}, squares{};
    by_vectors<Real>(count, [&](Size i, Size n) { sum += read(x + i, n); });
    const Real centre = static_cast<Real>(total<Real>(sum) / count);
    by_vectors<Real>(count, [&](Size i, Size n) {
        const Vector<Real> apart = read(x + i, n, centre) - centre;
        rest += apart, squares += apart * apart;
    });
    const double shift = total<Real>(rest) / count;
    return {double(count), centre + shift, total<Real>(squares) - count * shift * shift};
}

// z = a x + b of a channel, from what the forward pass has left.
template <class Real> struct Affine {
    Real mean, inverse, a, b;
    Affine(const Normalization& n, int channel)
        : mean(static_cast<const Real*>(n.mean)[channel]), inverse(static_cast<const Real*>(n.inverse)[channel]),
          a(static_cast<const Real*>(n.weight)[channel] * inverse),
          b(static_cast<Real>(static_cast<const Real*>(n.bias)[channel] - double(mean) * a)) {}
    Vector<Real> operator()(Vector<Real> x) const { return x * a + b; }
    Vector<Real> adjoint(Vector<Real> g, Vector<Real> x) const {  // h; where z is NaN, so is what comes of it
        return (*this)(x) <= Real(0) ? Vector<Real>{} : g;
    }
};

template <class Real> void normalize(const Normalization& n, int channel, const void* features, void* result) {
    const Real* x = static_cast<const Real*>(features);
    Real* y = static_cast<Real*>(result);
    Moments all{};
    by_blocks(n, channel, [&](Size first, Size count) { all.add(moments(x + first, count)); });
    static_cast<Real*>(n.mean)[channel] = all.mean;
    static_cast<Real*>(n.inverse)[channel] = 1 / __builtin_sqrt(all.squares / all.count + n.eps);
    static_cast<Real*>(n.variance)[channel] = all.squares / (all.count - 1);
    const Affine<Real> affine(n, channel);
    by_blocks(n, channel, [&](Size first, Size count) {
        by_vectors<Real>(count, [&](Size i, Size some) {
            const Vector<Real> z = affine(read(x + first + i, some));
            write<Real>(y + first + i, some, z < Real(0) ? Vector<Real>{} : z);  // NaN stays NaN
        });
    });
}

template <class Real>
void normalize_adjoint(const Normalization& n, int channel, const void* gradient, const void* features,
                       void* features_gradient, void* weight_gradient, void* bias_gradient) {
    const Real *g = static_cast<const Real*>(gradient), *x = static_cast<const Real*>(features);
    Real* dx = static_cast<Real*>(features_gradient);
    const Affine<Real> affine(n, channel);
    const double inverse = affine.inverse, numbers = double(n.batch) * n.pixels;
    double sum = 0, product = 0;  // Σ h, Σ h (x − μ)
    by_blocks(n, channel, [&](Size first, Size count) {
        Vector<Real> sums{}, products{};
        by_vectors<Real>(count, [&](Size i, Size some) {
            const Vector<Real> at = read(x + first + i, some), h = affine.adjoint(read(g + first + i, some), at);
            sums += h, products += h * (at - affine.mean);
        });
        sum += total<Real>(sums), product += total<Real>(products);
    });
    static_cast<Real*>(bias_gradient)[channel] = sum;
    static_cast<Real*>(weight_gradient)[channel] = inverse * product;
    const Real mean = sum / numbers, slope = inverse * inverse * product / numbers;
    by_blocks(n, channel, [&](Size first, Size count) {
        by_vectors<Real>(count, [&](Size i, Size some) {
            const Vector<Real> at = read(x + first + i, some), h = affine.adjoint(read(g + first + i, some), at);
            write<Real>(dx + first + i, some, affine.a * (h - mean - (at - affine.mean) * slope));
        });
    });
}

// Eight pairs of pixels of a row, as vectors whatever the instruction set: a row of 14 pairs is two overlapping eights.
template <class Real> struct Eight;
template <> struct Eight<float> { typedef float type __attribute__((vector_size(32))); };
template <> struct Eight<double> { typedef double type __attribute__((vector_size(64))); };
typedef uint8_t EightBytes __attribute__((vector_size(8)));

// Handed over by reference: how vectors are passed depends on the instruction set.
template <class V, class T> inline void read_eight(const T* from, V& x) { __builtin_memcpy(&x, from, sizeof(V)); }

// The even and the odd ones of sixteen numbers, and back. GCC had no shuffles of constant order before version 12.
#if defined(__clang__) || __GNUC__ >= 12
template <class V> inline void part(const V& a, const V& b, V& even, V& odd) {
    even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
template <class V> inline void interleave(const V& even, const V& odd, V* both) {
    both[0] = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
    both[1] = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
template <class V> inline void part(const V& a, const V& b, V& even, V& odd) {
    for (int i = 0; i < 4; i++) even[i] = a[2 * i], even[4 + i] = b[2 * i], odd[i] = a[2 * i + 1], odd[4 + i] = b[2 * i + 1];
}
template <class V> inline void interleave(const V& even, const V& odd, V* both) {
    for (int i = 0; i < 8; i++) both[i / 4][i % 4 * 2] = even[i], both[i / 4][i % 4 * 2 + 1] = odd[i];
}
#endif

// Visits all pairs of a row by eights, of which the last may overlap the one before; false if there are fewer than eight.
template <class Visit> inline bool by_eights(Size count, Visit visit) {
    if (count < 8) return false;
    for (Size i = 0; i + 8 <= count; i += 8) visit(i);
    if (count % 8) visit(count - 8);
    return true;
}

// The maximum over 2×2 pixels and which of the corners 0 1 / 2 3 it is: the first of equal ones, the last NaN.
template <class Number, class Corner> struct Maximum {
    Number most;
    Corner where;
    void meet(const Number& x, int corner) {
        const auto more = (x > most) | (x != x);
        most = more ? x : most, where = more ? Corner{} + corner : where;
    }
};

template <class Real>
void halve(const Halving& p, int64_t first, int64_t last, const void* features, void* result, uint8_t* corners) {
    using V = typename Eight<Real>::type;
    using Whole = decltype(V{} > V{});  // whole numbers of the same size
    const Size height = p.height / 2, width = p.width / 2;
    for (Size row = first * height; row < last * height; row++) {
        const Real* above = static_cast<const Real*>(features) + (row / height * p.height + row % height * 2) * p.width;
        const Real* below = above + p.width;
        Real* to = static_cast<Real*>(result) + row * width;
        uint8_t* corner = corners + row * width;
        const bool done = by_eights(width, [&](Size i) {
            V a, b, c, d;
            read_eight(above + 2 * i, a), read_eight(above + 2 * i + 8, b);
            read_eight(below + 2 * i, c), read_eight(below + 2 * i + 8, d);
            V even, odd;
            part(a, b, even, odd);
            Maximum<V, Whole> found{even, Whole{}};
            found.meet(odd, 1), part(c, d, even, odd), found.meet(even, 2), found.meet(odd, 3);
            const EightBytes where = __builtin_convertvector(found.where, EightBytes);
            __builtin_memcpy(to + i, &found.most, sizeof(V)), __builtin_memcpy(corner + i, &where, sizeof where);
        });
        for (Size i = 0; i < width && !done; i++) {
            Maximum<Real, int> found{above[2 * i], 0};
            found.meet(above[2 * i + 1], 1), found.meet(below[2 * i], 2), found.meet(below[2 * i + 1], 3);
            to[i] = found.most, corner[i] = static_cast<uint8_t>(found.where);
        }
    }
}

// Every pixel is written: the gradient at the corner of the maximum, zero at the others and beyond the last pair.
template <class Real>
void halve_adjoint(const Halving& p, int64_t first, int64_t last, const void* gradient, const uint8_t* corners,
                   void* features_gradient) {
    using V = typename Eight<Real>::type;
    using Whole = decltype(V{} > V{});
    const Size height = p.height / 2, width = p.width / 2;
    for (Size map = first; map < last; map++)
        for (Size row = 0; row < p.height; row++) {
            Real* to = static_cast<Real*>(features_gradient) + (map * p.height + row) * p.width;
            const Size pairs = row < 2 * height ? width : 0, from = (map * height + row / 2) * width;
            const Real* g = static_cast<const Real*>(gradient) + from;
            const uint8_t* corner = corners + from;
            const int left = row % 2 * 2, right = left + 1;
            const bool done = by_eights(pairs, [&](Size i) {
                V numbers;
                EightBytes bytes;
                read_eight(g + i, numbers), read_eight(corner + i, bytes);
                const Whole where = __builtin_convertvector(bytes, Whole);
                const V a = where == left ? numbers : V{}, b = where == right ? numbers : V{};
                V both[2];
                interleave(a, b, both);
                __builtin_memcpy(to + 2 * i, both, sizeof both);
            });
            for (Size i = 0; i < pairs && !done; i++) {
                to[2 * i] = corner[i] == left ? g[i] : Real(0);
                to[2 * i + 1] = corner[i] == right ? g[i] : Real(0);
            }
            for (Size i = 2 * pairs; i < p.width; i++) to[i] = 0;
        }
}

}  // namespace SFCNN_ISA
}  // namespace sfcnn
