// Mixing, one product of real matrices after the other (see plan.h), and its two adjoints.
//
// The kernel (half, Ĉ, 2·C·Q) is packed by product and block of input channels.
#pragma once
#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

template <class Real> struct Mixing {
    const Plan<Real>& plan;
    static constexpr int W = width<Real>, L = lanes<Real>;

    // The kernel of frequency m → weights of its products, for `mix`, or transposed for `mix_adjoint`.
    void pack(const Real* kernel, int m, bool adjoint, Real* weights) const {
        const int outs = plan.problem.out_channels;
        const Size columns = 2 * Size(plan.problem.channels) * plan.problem.atoms;
        kernel += outs * columns * m;
        for (int first = 0; first < plan.problem.channels; first += plan.block) {
            const Columns from(plan, m, first);
            for (int p = plan.product[m]; p < plan.product[m + 1]; p++) {
                auto at = [&, kind = p - plan.product[m]](int o, int row) {
                    const Real* numbers = kernel + o * columns;
                    if (kind == 0) return numbers[from.a[row]];
                    if (kind == 1) return numbers[from.b[row]];
                    return numbers[from.a[row]] - from.sign[row] * numbers[from.b[row]];
                };
                Real* to = weights + weights_of(p, first);
                if (adjoint) SFCNN_ISA::pack(from.rows, outs, [&](int row, int o) { return at(o, row); }, to);
                else SFCNN_ISA::pack(outs, from.rows, at, to);
            }
        }
    }

    // Responses of a block of channels → products, to which all but the first block add.
    void mix(int first, int groups, const Real* weights, const Real* responses, Real* mixed) const {
        const int outs = plan.problem.out_channels, rows = rows_from(first);
        for (int p = 0; p < plan.products; p++)
            for (int g = 0; g < groups; g++) {
                const Real *a = weights + weights_of(p, first), *b = responses + Size(g * plan.products + p) * rows * W;
                Real* c = mixed + Size(g * plan.products + p) * outs * W;
                if (first) multiply<true>(outs, rows, a, b, W, c, W);
                else multiply<false>(outs, rows, a, b, W, c, W);
            }
    }

    // The gradient of a product → that of its responses, which it overwrites.
    void mix_adjoint(int p, int first, int groups, const Real* weights, const Real* mixed, Real* responses) const {
        const int outs = plan.problem.out_channels, rows = rows_from(first);
        for (int g = 0; g < groups; g++)
            multiply<false>(rows, outs, weights + weights_of(p, first), mixed + Size(g * plan.products + p) * outs * W, W,
                            responses + Size(g * plan.products + p) * rows * W, W);
    }

    // The gradients of the products, turned so that outputs are neighbours: by product, tile of outputs, group and lane.
    void turn(int groups, const Real* mixed, Real* turned) const {
        const int outs = plan.problem.out_channels;
        const Split tiles(plan.strips(), group);
        for (int p = 0; p < plan.products; p++)
            for (int tile = 0; tile < tiles.blocks; tile++) {
                const int start = tiles.first(tile) * L, size = tiles.count(tile) * L;
                for (int g = 0; g < groups; g++, turned += size * W) {
                    const Real* rows = mixed + (Size(g * plan.products + p) * outs + start) * W;
                    for (int o = 0; o < size; o++)
                        for (int l = 0; l < W; l++) turned[l * size + o] = start + o < outs ? rows[o * W + l] : Real(0);
                }
            }
    }

    // Adds responses · gradient of a product to the total (rows of responses, outputs) of its weights' gradient.
    void correlate(int p, int first, int groups, const Real* responses, const Real* turned, Real* total) const {
        const int rows = rows_from(first), strips = plan.strips();
        const bool half_full = 2 * plan.problem.out_channels <= (2 * strips - 1) * L;  // the last strip
        const Split tiles(strips, group), blocks(rows, max_rows);
        turned += Size(p) * strips * L * groups * W;
        total += p * plan.totals() + Size(strips) * L * plan.problem.atoms * first;
        for (int tile = 0; tile < tiles.blocks; tile++)
            for (int block = 0; block < blocks.blocks; block++) {
                const int row = blocks.first(block), halves = 2 * tiles.count(tile) - (half_full && tile + 1 == tiles.blocks);
                const Real* a = responses + (Size(p) * rows + row) * W;
                const Real* b = turned + Size(tiles.first(tile)) * L * groups * W;
                Real* c = total + Size(row) * strips * L + tiles.first(tile) * L;
                correlate_rows<Real>.at[(blocks.count(block) - 1) * 2 * group + halves - 1](
                    groups, a, Size(plan.products) * rows * W, b, c, Size(strips) * L);
            }
    }

    // The sum of all totals, in their order → the gradient (half, Ĉ, 2·C·Q) for frequency m.
    void collect(const Real* totals, int count, int m, Real* gradient) const {
        const int outs = plan.problem.out_channels, kinds = plan.product[m + 1] - plan.product[m];
        const Size columns = 2 * Size(plan.problem.channels) * plan.problem.atoms, step = Size(plan.strips()) * L;
        gradient += outs * columns * m;
        for (Size i = 0; i < outs * columns; i++) gradient[i] = 0;
        for (int first = 0; first < plan.problem.channels; first += plan.block) {
            const Columns to(plan, m, first);
            const Real* from = totals + plan.product[m] * plan.totals() + step * plan.problem.atoms * first;
            for (int row = 0; row < to.rows; row++)
                for (int o = 0; o < outs; o++) {
                    Real sum[3] = {};
                    for (int t = 0; t < count; t++)
                        for (int kind = 0; kind < kinds; kind++)
                            sum[kind] += from[(Size(t) * plan.products + kind) * plan.totals() + row * step + o];
                    gradient[o * columns + to.a[row]] = sum[0] + sum[2];
                    if (kinds > 1) gradient[o * columns + to.b[row]] = sum[1] - to.sign[row] * sum[2];
                }
        }
    }

   private:
    int rows_from(int first) const { return plan.channels_from(first) * plan.problem.atoms; }
    Size weights_of(int p, int first) const {
        return p * plan.weights() + Size(plan.problem.out_channels) * plan.problem.atoms * first;
    }

    // Where the kernel's columns have a and b for the rows of a block of channels, and σ.
    struct Columns {
        static constexpr int most = block_rows > most_atoms ? block_rows : most_atoms;
        int rows = 0;
        int a[most], b[most];
        Real sign[most];
        Columns(const Plan<Real>& plan, int m, int first) {
            const Problem& p = plan.problem;
            const int channels = plan.channels_from(first);
            const bool mirrored = plan.mirrored(m);
            for (int h = 0, before = 0; h < p.harmonics; before += 2 * p.channels * plan.harmonic_size(h), h++)
                for (int part = 0; part < p.parts[h]; part++)
                    for (int c = first; c < first + channels; c++)
                        for (int ring = 0; ring < p.rings[h]; ring++, rows++) {
                            auto column = [&](int column_part, int stored_part) {
                                const int channel = column_part * p.channels + c;
                                return before + (channel * p.parts[h] + stored_part) * p.rings[h] + ring;
                            };
                            const bool pair = p.parts[h] == 2;
                            a[rows] = mirrored && pair ? column(part, 0) : column(0, part);
                            b[rows] = pair ? column(part, 1) : column(1, 0);
                            sign[rows] = plan.sign[(m * p.harmonics + h) * 2 + part];
                        }
        }
    };
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
