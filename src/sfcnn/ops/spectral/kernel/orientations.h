// The Fourier transform over orientations and its inverse, folded by the symmetry φ → −φ.
//
// Cosines are even and sines are odd, so that sums and differences of opposite orientations are all they need:
//
//     c_a = ζ_a + ζ_−a,  s_a = ζ_a − ζ_−a:      X_n = Σ_a cos(2πna/Λ) c_a for 0 ≤ a ≤ Λ/2,
//                                               V_n = −Σ_a sin(2πna/Λ) s_a for 0 < a < Λ/2
//
// with c_a = ζ_a where a = −a. Both matrices are symmetric, and together have half the numbers of one for all
// orientations. The inverse multiplies Re Y and Im Y by the same two matrices and unfolds: y_±a = C_a ± S_a.
#pragma once
#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

// For one group of strips. Sums and differences, or even and odd parts, are rows of a column of Λ rows, even ones first.
template <class Real> struct Fourier {
    static constexpr int W = width<Real>;
    using Vec = Vector<Real>;
    const Plan<Real>& plan;
    Real *column, *other;  // both Λ rows
    int count, even, odd;
    Fourier(const Plan<Real>& plan, const Workspace<Real>& w)
        : plan(plan), column(w.column), other(w.column + plan.problem.orientations * W),
          count(plan.problem.orientations), even(plan.half), odd(count - even) {}

    // Orientations, `step` numbers apart → slabs, in place.
    void analyse(Real* rows, Size step) const {
        fold(rows, step, column);
        apply(column, W, rows, step);
    }
    void analyse_adjoint(Real* rows, Size step) const {
        apply(rows, step, column, W);
        unfold(column, rows, step);
    }

    // Products of one output channel → its orientations: Re Y = P1 + P2 and Im Y = P3 − P1 + P2, each as often as m and
    // −m occur, over Λ.
    void synthesize(const Real* products, Size product_step, Real* rows, Size step) const {
        for (int m = 0; m < even; m++) {
            const Real* p = products + plan.product[m] * product_step;
            const Real weight = this->weight(m);
            for (int i = 0; i < W; i += vector<Real>) {
                const Vec first = load(p + i);
                if (!plan.mirrored(m)) {
                    store(column + m * W + i, weight * first);
                    continue;
                }
                const Vec second = load(p + product_step + i), third = load(p + 2 * product_step + i);
                store(column + m * W + i, weight * (first + second));
                store(column + imaginary(m) * W + i, weight * (third - first + second));
            }
        }
        apply(column, W, other, W);
        unfold(other, rows, step);
    }
    void synthesize_adjoint(const Real* rows, Size step, Real* products, Size product_step) const {
        fold(rows, step, column);
        apply(column, W, other, W);
        for (int m = 0; m < even; m++) {
            Real* p = products + plan.product[m] * product_step;
            const Real weight = this->weight(m);
            for (int i = 0; i < W; i += vector<Real>) {
                const Vec real = weight * load(other + m * W + i);
                if (!plan.mirrored(m)) {
                    store(p + i, real);
                    continue;
                }
                const Vec imaginary = weight * load(other + this->imaginary(m) * W + i);
                store(p + i, real - imaginary), store(p + product_step + i, real + imaginary);
                store(p + 2 * product_step + i, imaginary);
            }
        }
    }

   private:
    int imaginary(int m) const { return even + m - 1; }
    Real weight(int m) const { return Real(plan.mirrored(m) ? 2 : 1) / count; }

    void apply(const Real* from, Size from_step, Real* to, Size to_step) const {
        multiply<false>(even, even, plan.cosines, from, from_step, to, to_step);
        multiply<false>(odd, odd, plan.sines, from + even * from_step, from_step, to + even * to_step, to_step);
    }
    void fold(const Real* rows, Size step, Real* to) const {
        for (int a = 0; a < even; a++)
            for (int i = 0; i < W; i += vector<Real>) {
                const Vec row = load(rows + a * step + i);
                if (!plan.mirrored(a)) {
                    store(to + a * W + i, row);
                    continue;
                }
                const Vec opposite = load(rows + (count - a) * step + i);
                store(to + a * W + i, row + opposite), store(to + imaginary(a) * W + i, row - opposite);
            }
    }
    void unfold(const Real* from, Real* rows, Size step) const {
        for (int a = 0; a < even; a++)
            for (int i = 0; i < W; i += vector<Real>) {
                const Vec sum = load(from + a * W + i);
                if (!plan.mirrored(a)) {
                    store(rows + a * step + i, sum);
                    continue;
                }
                const Vec difference = load(from + imaginary(a) * W + i);
                store(rows + a * step + i, sum + difference), store(rows + (count - a) * step + i, sum - difference);
            }
    }
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
