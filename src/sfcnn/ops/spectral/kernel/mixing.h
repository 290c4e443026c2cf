// Mixing, Y(m) = Σ kernel(m) · responses(m), one matrix product for each frequency m, and its two adjoints.
//
// The kernel (half, 2Ĉ, 2·C·Q) is packed by frequency and block of input channels.
#pragma once
#include "plan.h"

namespace sfcnn {
namespace SFCNN_ISA {

template <class Real> struct Mixing {
    const Plan<Real>& plan;
    static constexpr int W = width<Real>, L = lanes<Real>;

    // The kernel of frequency m → weights of all blocks of channels, for `mix`, or transposed for `mix_adjoint`.
    void pack(const Real* kernel, int m, bool adjoint, Real* weights) const {
        const Size columns = 2 * Size(plan.problem.channels) * plan.problem.atoms;
        kernel += 2 * Size(plan.problem.out_channels) * columns * m;
        const int outs = plan.outs(m);
        for (int first = 0; first < plan.problem.channels; first += plan.block) {
            const int channels = plan.channels_from(first), rows = channels * plan.rows(m);
            Real* to = weights + plan.weight[m] + Size(outs) * plan.rows(m) * first;
            for_runs(m, first, channels, [&](int row, Size column, int length) {
                if (!adjoint) {
                    const Split split(outs, max_rows);
                    for (int block = 0; block < split.blocks; block++) {
                        const int o = split.first(block), count = split.count(block);
                        for (int i = 0; i < count; i++)
                            for (int r = 0; r < length; r++)
                                to[Size(o) * rows + (row + r) * count + i] = kernel[(o + i) * columns + column + r];
                    }
                } else {
                    const Split split(rows, max_rows);
                    for (int block = 0; block < split.blocks; block++) {
                        const int start = split.first(block), count = split.count(block);
                        const int from = start > row ? start : row;
                        const int until = start + count < row + length ? start + count : row + length;
                        for (int o = 0; from < until && o < outs; o++)
                            for (int r = from; r < until; r++)
                                to[Size(start) * outs + o * count + r - start] = kernel[o * columns + column + r - row];
                    }
                }
            });
        }
    }

    // Responses of a block of channels → Y, to which all but the first block add.
    void mix(int first, int groups, const Real* weights, const Real* responses, Real* mixed) const {
        const int channels = plan.channels_from(first);
        for (int m = 0; m < plan.half; m++)
            for (int g = 0; g < groups; g++) {
                const int rows = channels * plan.rows(m), outs = plan.outs(m);
                const Real* a = weights + plan.weight[m] + Size(outs) * plan.rows(m) * first;
                const Real* b = responses + (Size(g) * plan.all_rows() + plan.row[m]) * channels * W;
                Real* c = mixed + (Size(g) * plan.all_outs() + plan.component[m] * plan.problem.out_channels) * W;
                if (first) multiply<true>(outs, rows, a, b, W, c, W);
                else multiply<false>(outs, rows, a, b, W, c, W);
            }
    }

    // The gradient of Y(m) → that of the responses, which it overwrites.
    void mix_adjoint(int m, int first, int groups, const Real* weights, const Real* mixed, Real* responses) const {
        const int channels = plan.channels_from(first), rows = channels * plan.rows(m), outs = plan.outs(m);
        for (int g = 0; g < groups; g++) {
            const Real* a = weights + plan.weight[m] + Size(outs) * plan.rows(m) * first;
            const Real* b = mixed + (Size(g) * plan.all_outs() + plan.component[m] * plan.problem.out_channels) * W;
            Real* c = responses + (Size(g) * plan.all_rows() + plan.row[m]) * channels * W;
            multiply<false>(rows, outs, a, b, W, c, W);
        }
    }

    // The gradient of Y, turned so that outputs are neighbours: by frequency, tiles of outputs, groups and lanes.
    void turn(int groups, const Real* mixed, Real* turned) const {
        for (int m = 0; m < plan.half; m++) {
            const int outs = plan.outs(m);
            const Split tiles((outs + L - 1) / L, group);
            for (int tile = 0; tile < tiles.blocks; tile++) {
                const int start = tiles.first(tile) * L, size = tiles.count(tile) * L;
                for (int g = 0; g < groups; g++, turned += size * W) {
                    const Real* rows =
                        mixed + (Size(g) * plan.all_outs() + plan.component[m] * plan.problem.out_channels + start) * W;
                    for (int o = 0; o < size; o++)
                        for (int l = 0; l < W; l++) turned[l * size + o] = start + o < outs ? rows[o * W + l] : Real(0);
                }
            }
        }
    }

    // Adds responses · gradient of Y(m) to the total (rows of responses, outputs) of the kernel's gradient.
    void correlate(int m, int first, int groups, const Real* responses, const Real* turned, Real* total) const {
        const int channels = plan.channels_from(first), rows = channels * plan.rows(m);
        const int strips = plan.vectors[m + 1] - plan.vectors[m];
        const Split tiles(strips, group), blocks(rows, max_rows);
        turned += Size(plan.vectors[m]) * L * groups * W;
        total += plan.total[m] + Size(strips) * L * plan.rows(m) * first;
        for (int tile = 0; tile < tiles.blocks; tile++)
            for (int block = 0; block < blocks.blocks; block++) {
                const int row = blocks.first(block);
                const Real* a = responses + (Size(plan.row[m]) * channels + row) * W;
                const Real* b = turned + Size(tiles.first(tile)) * L * groups * W;
                Real* c = total + Size(row) * strips * L + tiles.first(tile) * L;
                correlate_rows<Real>.at[(blocks.count(block) - 1) * group + tiles.count(tile) - 1](
                    groups, a, Size(plan.all_rows()) * channels * W, b, c, Size(strips) * L);
            }
    }

    // The sum of all totals, in their order → the gradient (half, 2Ĉ, 2·C·Q) for frequency m.
    void collect(const Real* totals, int count, int m, Real* gradient) const {
        const Size columns = 2 * Size(plan.problem.channels) * plan.problem.atoms;
        const int outs = plan.outs(m), all_outs = 2 * plan.problem.out_channels;
        const Size step = Size(plan.vectors[m + 1] - plan.vectors[m]) * L;
        gradient += all_outs * columns * m;
        for (Size i = 0; i < all_outs * columns; i++) gradient[i] = 0;
        for (int first = 0; first < plan.problem.channels; first += plan.block) {
            const Real* from = totals + plan.total[m] + step * plan.rows(m) * first;
            for_runs(m, first, plan.channels_from(first), [&](int row, Size column, int length) {
                for (int o = 0; o < outs; o++)
                    for (int r = 0; r < length; r++) {
                        Real sum = 0;
                        for (int t = 0; t < count; t++) sum += from[t * plan.total[plan.half] + (row + r) * step + o];
                        gradient[o * columns + column + r] = sum;
                    }
            });
        }
    }

   private:
    // Runs of rows of a block that are neighbours among the kernel's columns too: act(row, column, length).
    template <class Act> void for_runs(int m, int first, int channels, Act act) const {
        for (int h = 0; h < plan.problem.harmonics; h++)
            for (int part = 0; part < (plan.mirrored(m) ? 2 : 1); part++) {
                const int size = plan.harmonic_size(h);
                const Size column = Size(plan.problem.channels) * plan.first_column(h, part) + Size(first) * size;
                act(channels * plan.first_row(m, h, part), column, channels * size);
            }
    }
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
