// What is the same for all jobs of a call: sizes, where everything lies in memory, and small packed matrices.
//
// Each response A(n) feeds exactly one frequency m, so responses are stored by m, in the order of the kernel's columns:
//
//     responses of a group:  m, harmonic, column part, channel, atom of the harmonic      (rows of a group)
//     Y of a group:          m, part (real, imaginary), output channel
//
// and mixing is one product of plain matrices for each m. Frequencies m = −m have one column part and no imaginary part.
#pragma once
#include "microkernels.h"
#include "symmetry.h"

namespace sfcnn {
namespace SFCNN_ISA {

using Size = std::ptrdiff_t;

// Hands out pieces of one block of memory, or only counts them if there is none.
struct Arena {
    char* memory;
    std::size_t used = 0;
    explicit Arena(void* start) : memory(static_cast<char*>(start)) {}
    template <class T> T* take(Size count) {
        char* piece = memory ? memory + used : nullptr;
        used += (count * sizeof(T) + strip_bytes - 1) / strip_bytes * strip_bytes;
        return reinterpret_cast<T*>(piece);
    }
};

// Strips that are worked on together share every weight that is read: enough of them hide the time that takes.
constexpr int max_groups = 12 / group;
constexpr int block_rows = 48;  // about as many atoms times channels have their responses held at once

template <class Real> struct Plan {
    Problem problem;
    Classes classes;
    int half, out_height, out_width;
    int block;  // input channels whose responses are held at once

    int *row, *component, *vectors;  // (half + 1): response rows per channel, components and strips of Y before m
    int* place;                      // (Λ, harmonics): response rows per channel before those of a slab
    int* slot;                       // (harmonics, 2): first of the atoms of a part, sorted by class
    int class_slot[7];               // first atom of each class
    Size *weight, *total;            // (half + 1): numbers in the packed weights and in their gradient before m
    Real *spectrum, *spectrum_adjoint, *synthesis, *synthesis_adjoint;
    Real *atoms, *paired_atoms;  // components of its class → each part of a harmonic, as rows and for pairs of slabs
    Size* atom;                  // (harmonics, 2): where the part starts in both
    Real* atoms_adjoint[6];      // atoms of a class → its components

    explicit Plan(const Problem& p) : problem(p), classes(p.kernel_size / 2) {}

    int class_size(int number) const { return classes.first(number + 1) - classes.first(number); }
    int harmonic_size(int h) const { return problem.rings[h] * problem.parts[h]; }
    bool mirrored(int m) const { return 2 * m % problem.orientations != 0; }
    int rows(int m) const { return row[m + 1] - row[m]; }                                        // per channel
    int outs(int m) const { return (component[m + 1] - component[m]) * problem.out_channels; }  // rows of Y(m)
    int all_rows() const { return problem.orientations * problem.atoms; }                        // per channel
    int all_outs() const { return problem.orientations * problem.out_channels; }
    int channels_from(int first) const {  // of the block that starts there
        return problem.channels - first < block ? problem.channels - first : block;
    }

    void lay_out(Arena& memory) {
        const int L = problem.orientations, H = problem.harmonics, Q = problem.atoms;
        half = L / 2 + 1;
        out_height = problem.height + 2 * problem.margin - problem.kernel_size + 1;
        out_width = problem.width + 2 * problem.margin - problem.kernel_size + 1;
        const Split even(problem.channels, block_rows / Q > 1 ? block_rows / Q : 1);
        block = even.size + (even.larger > 0);
        row = memory.take<int>(half + 1), component = memory.take<int>(half + 1), vectors = memory.take<int>(half + 1);
        place = memory.take<int>(L * H), slot = memory.take<int>(2 * H);
        weight = memory.take<Size>(half + 1), total = memory.take<Size>(half + 1);
        for (Real** matrix : {&spectrum, &spectrum_adjoint, &synthesis, &synthesis_adjoint})
            *matrix = memory.take<Real>(L * L);
        atom = memory.take<Size>(2 * H);
        atoms = memory.take<Real>(Q * classes.end), paired_atoms = memory.take<Real>(Q * classes.end);
        Real* coefficients = memory.take<Real>(Q * classes.end);
        if (!memory.memory) return;
        order_rows();
        pack_matrices(coefficients);
    }

    void order_rows() {
        const int L = problem.orientations, H = problem.harmonics;
        row[0] = component[0] = vectors[0] = 0, weight[0] = total[0] = 0;
        for (int i = 0; i < 2 * H; i++) slot[i] = 0;  // k = 0 has no imaginary part to give one to
        for (int m = 0; m < half; m++) {
            const int parts = mirrored(m) ? 2 : 1;
            row[m + 1] = row[m] + parts * problem.atoms;
            component[m + 1] = component[m] + parts;
            const int strips = (outs(m) + lanes<Real> - 1) / lanes<Real>;
            vectors[m + 1] = vectors[m] + strips;
            weight[m + 1] = weight[m] + Size(outs(m)) * rows(m) * problem.channels;
            total[m + 1] = total[m] + Size(strips) * lanes<Real> * rows(m) * problem.channels;
        }
        for (int slab = 0; slab < L; slab++)
            for (int h = 0; h < H; h++) {
                const int m = problem.feeds[slab * H + h] / 2, part = problem.feeds[slab * H + h] % 2;
                place[slab * H + h] = row[m] + first_row(m, h, part);
            }
    }

    // Response rows per channel of frequency m before those of a harmonic and column part.
    int first_row(int m, int h, int part) const {
        int first = part * harmonic_size(h);
        for (int before = 0; before < h; before++) first += (mirrored(m) ? 2 : 1) * harmonic_size(before);
        return first;
    }
    // The kernel's columns per channel before those of a harmonic and column part.
    int first_column(int h, int part) const {
        int first = part * harmonic_size(h);
        for (int before = 0; before < h; before++) first += 2 * harmonic_size(before);
        return first;
    }

    void pack_matrices(Real* coefficients) {
        const Problem& p = problem;
        const int L = p.orientations, components = classes.end;
        pack(L, L, [&](int i, int k) { return p.spectrum[i * L + k]; }, spectrum);
        pack(L, L, [&](int i, int k) { return p.spectrum[k * L + i]; }, spectrum_adjoint);
        pack(L, L, [&](int i, int k) { return p.synthesis[i * L + k]; }, synthesis);
        pack(L, L, [&](int i, int k) { return p.synthesis[k * L + i]; }, synthesis_adjoint);
        Size used = 0;
        for (int h = 0, row = 0; h < p.harmonics; h++)
            for (int part = 0; part < p.parts[h]; part++, row += p.rings[h]) {
                const int number = p.classes[2 * h + part], size = class_size(number);
                const double* first = p.coefficients + Size(row) * components + classes.first(number);
                auto at = [&](int i, int k) { return first[Size(i) * components + k]; };
                pack(p.rings[h], size, at, atoms + used);
                pack(p.rings[h], size, at, paired_atoms + used, max_pairs);
                atom[2 * h + part] = used, used += p.rings[h] * size;
            }
        int next = 0;
        for (int number = 0; number < 6; number++) {
            int count = 0;  // atoms of this class
            const double* rows[512];
            for (int h = 0, row = 0; h < p.harmonics; h++)
                for (int part = 0; part < p.parts[h]; part++, row += p.rings[h])
                    if (p.classes[2 * h + part] == number) {
                        slot[2 * h + part] = next + count;
                        for (int ring = 0; ring < p.rings[h]; ring++)
                            rows[count++] = p.coefficients + Size(row + ring) * components + classes.first(number);
                    }
            class_slot[number] = next, atoms_adjoint[number] = coefficients + Size(next) * components;
            pack(class_size(number), count, [&](int i, int k) { return rows[k][i]; }, atoms_adjoint[number]);
            next += count;
        }
        class_slot[6] = next;
    }
};

// Where a job keeps its numbers. Slabs have a frame of s // 2 pixels, or as much as margin and neighbours fill it with.
template <class Real> struct Workspace {
    int strips, padded_strips;  // outputs of a job, and rounded up to groups
    Size line, slab;            // numbers in a line of pixels of a slab, and in a slab
    Real *slabs, *slab_gradients, *outputs, *responses, *mixed, *turned, *components, *window_atoms, *column;

    Workspace(const Plan<Real>& plan, int rows, int columns, bool backward, Arena memory, std::size_t* bytes = nullptr) {
        const Problem& p = plan.problem;
        const int s = p.kernel_size, W = width<Real>;
        strips = rows * columns;
        padded_strips = (strips + group - 1) / group * group;
        line = Size(columns + s - 1) * lanes<Real>;
        slab = ((rows + s - 1) * line + W - 1) / W * W;
        slabs = memory.template take<Real>(slab * p.channels * p.orientations);
        slab_gradients = memory.template take<Real>(backward ? slab * p.channels * p.orientations : 0);
        outputs = memory.template take<Real>(Size(padded_strips) * lanes<Real> * plan.all_outs());
        responses = memory.template take<Real>(Size(max_groups) * W * plan.all_rows() * plan.block);
        mixed = memory.template take<Real>(Size(max_groups) * W * plan.all_outs());
        const Size turned_rows = Size(p.orientations + 2) * (p.out_channels + lanes<Real>);
        turned = memory.template take<Real>(backward ? max_groups * W * turned_rows : 0);
        components = memory.template take<Real>(2 * Size(W) * s * s);
        window_atoms = memory.template take<Real>(Size(W) * 2 * p.atoms);
        column = memory.template take<Real>(Size(W) * p.orientations);
        if (bytes) *bytes = memory.used;
    }
};

// The strips that are worked on together: the first, and where their windows have their centres in a slab.
struct Strips {
    int first, groups;
    Size centre[max_groups * group];
    template <class Real> Strips(const Workspace<Real>& w, int columns, int radius, int first) : first(first) {
        const int left = w.strips - first;
        groups = left < max_groups * group ? (left + group - 1) / group : max_groups;
        for (int i = 0; i < groups * group; i++) {  // strips beyond the last see what the last sees
            const int strip = i < left ? first + i : w.strips - 1;
            centre[i] = (strip / columns + radius) * w.line + (strip % columns + radius) * lanes<Real>;
        }
    }
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
