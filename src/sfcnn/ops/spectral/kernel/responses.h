// Responses of the slabs to the atoms, A_q(n) = Z(n) ∗ ψ_q, for some strips and a block of channels; and the adjoint.
//
// Windows are split into components of the grid's symmetry, components are multiplied class by class, and the products
// of X_n and V_n with the parts of ψ = a + ib are put together to
//
//     slab X_n:  A(n)  = (Xa − Vb) + i (Xb + Va)      stored as (real, imaginary)
//     slab V_n:  A(−n) = (Xa + Vb) + i (Xb − Va)      stored as (imaginary, real)
#pragma once
#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

template <class Real> struct Responses {
    const Plan<Real>& plan;
    const Workspace<Real>& work;
    const Strips& strips;
    int channels;  // in the block

    static constexpr int W = width<Real>;

    // All rows of one channel of the block, from its slabs.
    void respond(int channel, const Real* slabs) const {
        const Problem& p = plan.problem;
        Real *x = work.components, *v = x + plan.classes.end * W;
        for (int n = 0; n < plan.half; n++) {
            const bool pair = plan.mirrored(n);
            for (int g = 0; g < strips.groups; g++) {
                split(slabs + n * work.slab, g, x);
                if (pair) split(slabs + (n + plan.half - 1) * work.slab, g, v);
                for (int h = 0; h < p.harmonics; h++) {
                    prefetch(slabs, n + 1, g * p.harmonics + h);
                    const Rows of_x = rows(g, n, h, channel);
                    if (p.parts[h] == 1 || !pair) {
                        respond(h, 0, x, of_x.first);
                        if (p.parts[h] == 2) respond(h, 1, x, of_x.second);
                        else if (pair) respond(h, 0, v, of_x.second);  // V_n feeds the same products
                    } else {
                        const Rows of_v = rows(g, n + plan.half - 1, h, channel);
                        respond(h, x, 0, v, of_x.first, of_v.second);  // Xa ∓ Vb
                        respond(h, x, 1, v, of_v.first, of_x.second);  // Xb ∓ Va
                        of_v.add();
                    }
                    of_x.add();
                }
            }
        }
    }

    // The gradient of these rows → added to that of the slabs.
    void respond_adjoint(int channel, Real* slabs) const {
        const Problem& p = plan.problem;
        Real *x = work.window_atoms, *v = x + p.atoms * W;
        for (int n = 0; n < plan.half; n++) {
            const bool pair = plan.mirrored(n);
            for (int g = 0; g < strips.groups; g++) {
                for (int h = 0; h < p.harmonics; h++) {
                    Real *xa = x + plan.slot[2 * h] * W, *xb = x + plan.slot[2 * h + 1] * W;
                    Real *va = v + plan.slot[2 * h] * W, *vb = v + plan.slot[2 * h + 1] * W;
                    const Rows of_x = rows(g, n, h, channel);
                    const int size = p.rings[h] * W;
                    if (p.parts[h] == 1 || !pair)
                        for (int i = 0; i < size; i += vector<Real>) {
                            const Pair numbers = of_x.gradient(i);
                            store(xa + i, numbers.first);
                            if (p.parts[h] == 2) store(xb + i, numbers.second);
                            else if (pair) store(va + i, numbers.second);
                        }
                    else {
                        const Rows of_v = rows(g, n + plan.half - 1, h, channel);
                        for (int i = 0; i < size; i += vector<Real>) {
                            const Pair at_x = of_x.gradient(i), at_v = of_v.gradient(i);
                            store(xa + i, at_x.first + at_v.second), store(vb + i, at_v.second - at_x.first);
                            store(xb + i, at_x.second + at_v.first), store(va + i, at_x.second - at_v.first);
                        }
                    }
                }
                project_adjoint(x, g, slabs + n * work.slab);
                if (pair) project_adjoint(v, g, slabs + (n + plan.half - 1) * work.slab);
            }
        }
    }

   private:
    struct Pair { Vector<Real> first, second; };

    // The rows of both stored parts x and y of the responses of a slab and harmonic, and of x + σ y if these are wanted.
    struct Rows {
        Real *first, *second, *sum;
        Real sign;
        int size;

        void add() const {
            if (sum)
                for (int i = 0; i < size; i += vector<Real>) store(sum + i, load(first + i) + sign * load(second + i));
        }
        Pair gradient(int i) const {
            if (!sum) return {load(first + i), second ? load(second + i) : Vector<Real>{}};
            const Vector<Real> of_sum = load(sum + i);
            return {load(first + i) + of_sum, load(second + i) + sign * of_sum};
        }
    };

    Rows rows(int g, int slab, int h, int channel) const {
        const Problem& p = plan.problem;
        const int feed = p.feeds[slab * p.harmonics + h], m = feed / 2, part = feed % 2, rings = p.rings[h];
        auto at = [&](int product, int part) {
            const Size row = (Size(g) * plan.products + plan.product[m] + product) * p.atoms + plan.first_atom[h];
            return work.responses + (row * channels + (part * channels + channel) * rings) * W;
        };
        const bool two = p.parts[h] == 2;
        if (!plan.mirrored(m)) return {at(0, 0), two ? at(0, 1) : nullptr, nullptr, Real(1), rings * W};
        const int place = two ? part : 0;  // for k = 0 the column parts are the stored parts
        return {at(0, place), at(1, place), at(2, place), plan.sign[(m * p.harmonics + h) * 2 + part], rings * W};
    }

    // Asks for a share of the windows of X_n and V_n, before they are needed. They come from all over the slabs, where
    // the processor does not expect it.
    void prefetch(const Real* slabs, int n, int share) const {
        const int R = plan.classes.radius, shares = strips.groups * plan.problem.harmonics, lines = 2 * (2 * R + 1);
        for (int line = share * lines / shares; line < (share + 1) * lines / shares; line++) {
            const Real* slab = slabs + (line % 2 ? n + plan.half - 1 : n) * work.slab;
            const Real* row = slab + strips.centre[0] + (line / 2 - R) * work.line;
            for (int x = -R; x < strips.groups * group + R; x++) __builtin_prefetch(row + x * lanes<Real>);
        }
    }

    // The windows of a group in one slab → their components.
    void split(const Real* slab, int g, Real* components) const {
        const int R = plan.classes.radius;
        const auto split_window = split_windows<Real>.at[R <= known_radius ? R : 0];
        for (int i = 0; i < group; i++)
            for (int v = 0; v < lanes<Real>; v += vector<Real>)
                split_window(R, slab + strips.centre[g * group + i] + v, work.line, components + i * lanes<Real> + v);
    }

    const Real* of_class(int h, int part, const Real* components) const {
        return components + plan.classes.first(plan.problem.classes[2 * h + part]) * W;
    }
    int size(int h, int part) const { return plan.class_size(plan.problem.classes[2 * h + part]); }

    // One part of a harmonic: its products with the components of one slab.
    void respond(int h, int part, const Real* components, Real* to) const {
        multiply<false>(plan.problem.rings[h], size(h, part), plan.atoms + plan.atom[2 * h + part],
                        of_class(h, part, components), W, to, W);
    }
    // One part times X and the other times V: their difference and their sum.
    void respond(int h, const Real* x, int part, const Real* v, Real* minus, Real* plus) const {
        combine(plan.problem.rings[h], size(h, part), plan.paired_atoms + plan.atom[2 * h + part], of_class(h, part, x),
                size(h, 1 - part), plan.paired_atoms + plan.atom[2 * h + 1 - part], of_class(h, 1 - part, v), minus, plus);
    }

    void project_adjoint(const Real* atoms, int g, Real* slab) const {
        for (int number = 0; number < 6; number++) {
            const int first = plan.classes.first(number), size = plan.classes.first(number + 1) - first;
            const int slot = plan.class_slot[number], count = plan.class_slot[number + 1] - slot;
            multiply<false>(size, count, plan.atoms_adjoint[number], atoms + slot * W, W, work.components + first * W, W);
        }
        const int R = plan.classes.radius;
        const auto join_window = join_windows<Real>.at[R <= known_radius ? R : 0];
        for (int i = 0; i < group; i++)
            for (int v = 0; v < lanes<Real>; v += vector<Real>)
                join_window(R, work.components + i * lanes<Real> + v, slab + strips.centre[g * group + i] + v, work.line);
    }
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
