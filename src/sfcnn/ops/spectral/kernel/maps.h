// The outer steps: from pixels to slabs of their spectrum over orientations, from Y back to pixels, and the adjoints.
#pragma once
#include <cstring>

#include "orientations.h"

namespace sfcnn {
namespace SFCNN_ISA {

// The rectangle of a map that a lane holds: its image, where it starts, and which of its pixels lie in the map.
struct Rectangle {
    int image, top, left;
    int first_row, last_row, first_column, last_column;  // last: one beyond
    Rectangle(const Job& job, int lane, int frame, int margin, int height, int width, bool clear = false) {
        const Tiling& t = job.tiling;
        const int tiles = t.tile_rows * t.tile_columns, tile = lane % tiles;
        image = lane / tiles < job.images ? job.first_image + lane / tiles : -1;
        top = tile / t.tile_columns * t.height + job.row - margin;
        left = tile % t.tile_columns * t.width + job.column - margin;
        int rows = job.rows + frame, columns = job.columns + frame;
        if (clear) {  // the last tile has the rest of the map
            const bool bottom = tile / t.tile_columns == t.tile_rows - 1 && job.row + job.clear_rows == t.height;
            const bool right = tile % t.tile_columns == t.tile_columns - 1 && job.column + job.clear_columns == t.width;
            rows = bottom ? height - top : job.clear_rows, columns = right ? width - left : job.clear_columns;
        }
        first_row = top < 0 ? -top : 0, last_row = height - top < rows ? height - top : rows;
        first_column = left < 0 ? -left : 0, last_column = width - left < columns ? width - left : columns;
        if (image < 0) last_row = first_row;
    }
};

// Squares of numbers that are turned in registers: `side` lanes by `side` pixels of 16 bytes.
template <class Real> struct SquareOf;
template <> struct SquareOf<float> { typedef float Row __attribute__((vector_size(16), aligned(4), may_alias)); };
template <> struct SquareOf<double> { typedef double Row __attribute__((vector_size(16), aligned(8), may_alias)); };

inline void transpose(SquareOf<float>::Row* r) {
    using Row = SquareOf<float>::Row;
    auto low = [](Row a, Row b) { return Row{a[0], b[0], a[1], b[1]}; };
    auto high = [](Row a, Row b) { return Row{a[2], b[2], a[3], b[3]}; };
    const Row p = low(r[0], r[2]), q = high(r[0], r[2]), s = low(r[1], r[3]), t = high(r[1], r[3]);
    r[0] = low(p, s), r[1] = high(p, s), r[2] = low(q, t), r[3] = high(q, t);
}
inline void transpose(SquareOf<double>::Row* r) {
    using Row = SquareOf<double>::Row;
    const Row p{r[0][0], r[1][0]}, q{r[0][1], r[1][1]};
    r[0] = p, r[1] = q;
}

// One map of every lane's image and lanes of strips, `line` numbers from row to row, and how numbers go between them.
template <class Real> struct Exchange {
    using Row = typename SquareOf<Real>::Row;
    static constexpr int side = 16 / sizeof(Real), L = lanes<Real>;
    const Rectangle* where;
    Size image;  // numbers from image to image
    Size next;   // and to the next map
    int width;   // of the map

    // Map → strips. What is outside must be zero before.
    void gather(const Real* map, Real* strips, Size line) const {
        visit(
            [&](int lane, int y, int x) { strips[y * line + x * L + lane] = *pixel(map, lane, y, x); },
            [&](int lane, int y, int x) {
                Row square[side];
                for (int i = 0; i < side; i++) {
                    const Real* from = pixel(map, lane + i, y, x);
                    square[i] = *reinterpret_cast<const Row*>(from);
                    __builtin_prefetch(from + next);
                }
                transpose(square);
                for (int i = 0; i < side; i++) *reinterpret_cast<Row*>(strips + y * line + (x + i) * L + lane) = square[i];
            });
    }

    // Zeros in the map.
    void clear(Real* map) const {
        for (int lane = 0; lane < L; lane++) {
            const Rectangle& r = where[lane];
            const Size columns = r.last_column - r.first_column;
            for (int y = r.first_row; y < r.last_row && columns > 0; y++)
                std::memset(pixel(map, lane, y, r.first_column), 0, columns * sizeof(Real));
        }
    }

    // Strips → map, or added to it.
    template <bool add> void scatter(const Real* strips, Size line, Real* map) const {
        visit(
            [&](int lane, int y, int x) {
                Real& to = *pixel(map, lane, y, x);
                to = (add ? to : Real(0)) + strips[y * line + x * L + lane];
            },
            [&](int lane, int y, int x) {
                Row square[side];
                for (int i = 0; i < side; i++)
                    square[i] = *reinterpret_cast<const Row*>(strips + y * line + (x + i) * L + lane);
                transpose(square);
                for (int i = 0; i < side; i++) {
                    Row& to = *reinterpret_cast<Row*>(pixel(map, lane + i, y, x));
                    to = add ? to + square[i] : square[i];
                }
            });
    }

   private:
    template <class Number> Number* pixel(Number* map, int lane, int y, int x) const {
        const Rectangle& r = where[lane];
        return map + r.image * image + Size(r.top + y) * width + r.left + x;
    }

    // All pixels of all lanes, by squares where neighbouring lanes have them all, else one by one.
    template <class One, class Square> void visit(One one, Square square) const {
        for (int lane = 0; lane < L; lane += side) {
            int top = 0, bottom = 1 << 30, left = 0, right = 1 << 30;  // what all lanes of a square have
            for (int i = lane; i < lane + side; i++) {
                const Rectangle& r = where[i];
                if (r.first_row > top) top = r.first_row;
                if (r.last_row < bottom) bottom = r.last_row;
                if (r.first_column > left) left = r.first_column;
                if (r.last_column < right) right = r.last_column;
            }
            if (right - left < side) bottom = top;
            const int squares = bottom > top ? left + (right - left) / side * side : left;
            for (int y = top; y < bottom; y++)
                for (int x = left; x < squares; x += side) square(lane, y, x);
            for (int i = lane; i < lane + side; i++) {
                const Rectangle& r = where[i];
                for (int y = r.first_row; y < r.last_row; y++) {
                    const bool inside = y >= top && y < bottom;
                    for (int x = r.first_column; x < (inside ? left : r.last_column); x++) one(i, y, x);
                    if (inside)
                        for (int x = squares; x < r.last_column; x++) one(i, y, x);
                }
            }
        }
    }
};

// The same for all lanes of a job. `Maps` are features (channels Λ maps) or outputs (output channels Λ maps) of a batch.
template <class Real> struct Maps {
    static constexpr int L = lanes<Real>;
    alignas(Rectangle) unsigned char memory[L * sizeof(Rectangle)];
    int count, height, width;
    Maps(const Job& job, int maps, int height, int width, int frame, int margin, bool clear = false)
        : count(maps), height(height), width(width) {
        for (int lane = 0; lane < L; lane++)
            reinterpret_cast<Rectangle*>(memory)[lane] = Rectangle(job, lane, frame, margin, height, width, clear);
    }
    const Rectangle* where() const { return reinterpret_cast<const Rectangle*>(memory); }
    Size pixels() const { return Size(height) * width; }
    Exchange<Real> exchange() const { return {where(), count * pixels(), pixels(), width}; }
};

// Features → slabs X_n, V_n of all channels: Z = F ζ.
template <class Real> void analyse(const Plan<Real>& plan, const Job& job, const Real* features, const Workspace<Real>& w) {
    const Problem& p = plan.problem;
    const Fourier<Real> fourier(plan, w);
    const Maps<Real> maps(job, p.channels * p.orientations, p.height, p.width, p.kernel_size - 1, p.margin);
    for (int c = 0; c < p.channels; c++) {
        Real* slabs = w.slabs + c * p.orientations * w.slab;
        std::memset(slabs, 0, p.orientations * w.slab * sizeof(Real));
        for (int a = 0; a < p.orientations; a++)
            maps.exchange().gather(features + (c * p.orientations + a) * maps.pixels(), slabs + a * w.slab, w.line);
        for (Size at = 0; at < w.slab; at += width<Real>) fourier.analyse(slabs + at, w.slab);
    }
}

// The gradient of the slabs → added to that of the features, which is cleared just before.
template <class Real>
void analyse_adjoint(const Plan<Real>& plan, const Job& job, const Workspace<Real>& w, Real* features_gradient) {
    const Problem& p = plan.problem;
    const Fourier<Real> fourier(plan, w);
    const Maps<Real> maps(job, p.channels * p.orientations, p.height, p.width, p.kernel_size - 1, p.margin);
    const Maps<Real> first(job, p.channels * p.orientations, p.height, p.width, 0, p.margin, true);
    for (int c = 0; c < p.channels; c++) {
        Real* slabs = w.slab_gradients + c * p.orientations * w.slab;
        for (Size at = 0; at < w.slab; at += width<Real>) fourier.analyse_adjoint(slabs + at, w.slab);
        for (int a = 0; a < p.orientations; a++) {
            Real* map = features_gradient + (c * p.orientations + a) * maps.pixels();
            if (job.clear_rows) first.exchange().clear(map);
            maps.exchange().template scatter<true>(slabs + a * w.slab, w.line, map);
        }
    }
}

// The products of some strips → their outputs.
template <class Real> void synthesize(const Plan<Real>& plan, const Strips& strips, const Workspace<Real>& w) {
    const Fourier<Real> fourier(plan, w);
    const int L = plan.problem.orientations, outs = plan.problem.out_channels, W = width<Real>;
    const Size map = Size(w.padded_strips) * lanes<Real>;
    for (int g = 0; g < strips.groups; g++)
        for (int o = 0; o < outs; o++)
            fourier.synthesize(w.mixed + (Size(g) * plan.products * outs + o) * W, Size(outs) * W,
                               w.outputs + o * L * map + strips.first * lanes<Real> + g * W, map);
}

template <class Real> void synthesize_adjoint(const Plan<Real>& plan, const Strips& strips, const Workspace<Real>& w) {
    const Fourier<Real> fourier(plan, w);
    const int L = plan.problem.orientations, outs = plan.problem.out_channels, W = width<Real>;
    const Size map = Size(w.padded_strips) * lanes<Real>;
    for (int g = 0; g < strips.groups; g++)
        for (int o = 0; o < outs; o++)
            fourier.synthesize_adjoint(w.outputs + o * L * map + strips.first * lanes<Real> + g * W, map,
                                       w.mixed + (Size(g) * plan.products * outs + o) * W, Size(outs) * W);
}

// max(0, scale · y + shift) in place. NaN stays NaN.
template <class Real> void rectify(Real scale, Real shift, Real* numbers, Size count) {
    for (Size i = 0; i < count; i += vector<Real>) {
        const Vector<Real> y = load(numbers + i) * scale + shift;
        store(numbers + i, y < Real(0) ? Vector<Real>{} : y);
    }
}

template <class Real> void write_result(const Plan<Real>& plan, const Job& job, const Workspace<Real>& w, Real* result) {
    const Problem& p = plan.problem;
    const Maps<Real> maps(job, p.out_channels * p.orientations, plan.out_height, plan.out_width, 0, 0);
    const Size map = Size(w.padded_strips) * lanes<Real>;
    const Real *scale = static_cast<const Real*>(p.scale), *shift = static_cast<const Real*>(p.shift);
    for (int i = 0; i < maps.count; i++) {
        Real* outputs = w.outputs + i * map;
        if (scale) rectify(scale[i / p.orientations], shift[i / p.orientations], outputs, map);
        maps.exchange().template scatter<false>(outputs, Size(job.columns) * lanes<Real>, result + i * maps.pixels());
    }
}

template <class Real> void read_gradient(const Plan<Real>& plan, const Job& job, const Real* gradient, const Workspace<Real>& w) {
    const Problem& p = plan.problem;
    const Maps<Real> maps(job, p.out_channels * p.orientations, plan.out_height, plan.out_width, 0, 0);
    const Size map = Size(w.padded_strips) * lanes<Real>;
    std::memset(w.outputs, 0, maps.count * map * sizeof(Real));
    for (int i = 0; i < maps.count; i++)
        maps.exchange().gather(gradient + i * maps.pixels(), w.outputs + i * map, Size(job.columns) * lanes<Real>);
}

}  // namespace SFCNN_ISA
}  // namespace sfcnn
