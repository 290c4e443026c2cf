// What is the same for all jobs of a call: sizes, where everything lies in memory, and small packed matrices.
//
// Each response A(n) feeds exactly one frequency m. The kernel has numbers a and b for its first and second stored part,
// x and y, and mixing is Re Y = Σ (a x + b y), Im Y = Σ σ (a y − b x) with signs σ: a product of complex matrices, which
// takes three real ones,
//
//     P1 = Σ a x,   P2 = Σ b y,   P3 = Σ (a − σ b)(x + σ y),      Re Y = P1 + P2,   Im Y = P3 − P1 + P2,
//
// and a single one, of all parts, where m = −m and Y is real. All products have as many rows:
//
//     responses of a group:  product, harmonic, part, channel, ring      (the column part, or the stored one if m = −m)
//     results of a group:    product, output channel
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
constexpr int most_atoms = 512;  // `compiled.py` asks for no more

template <class Real> struct Plan {
    Problem problem;
    Classes classes;
    int half, out_height, out_width;
    int block;  // input channels whose responses are held at once

    int products;
    int* product;                    // (half + 1): products before those of frequency m
    int* first_atom;                 // (harmonics): rows per channel before those of a harmonic
    Real* sign;                      // (half, harmonics, 2): σ of a frequency, harmonic and column part
    int* slot;                       // (harmonics, 2): first of the atoms of a part, sorted by class
    int class_slot[7];               // first atom of each class
    Real *cosines, *sines;           // of the transform over orientations, see orientations.h
    Real *atoms, *paired_atoms;  // components of its class → each part of a harmonic, as rows and for pairs of slabs
    Size* atom;                  // (harmonics, 2): where the part starts in both
    Real* atoms_adjoint[6];      // atoms of a class → its components

    explicit Plan(const Problem& p) : problem(p), classes(p.kernel_size / 2) {}

    int class_size(int number) const { return classes.first(number + 1) - classes.first(number); }
    int harmonic_size(int h) const { return problem.rings[h] * problem.parts[h]; }
    bool mirrored(int m) const { return 2 * m % problem.orientations != 0; }
    int strips() const { return (problem.out_channels + lanes<Real> - 1) / lanes<Real>; }  // of outputs of a product
    Size weights() const { return Size(problem.out_channels) * problem.channels * problem.atoms; }   // of a product
    Size totals() const { return Size(strips()) * lanes<Real> * problem.channels * problem.atoms; }  // of their gradient
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
        products = 2 * L - half;  // three for each of the Λ − half frequencies with m ≠ −m, one for the others
        product = memory.take<int>(half + 1), first_atom = memory.take<int>(H), slot = memory.take<int>(2 * H);
        sign = memory.take<Real>(2 * half * H);
        cosines = memory.take<Real>(half * half), sines = memory.take<Real>((L - half) * (L - half));
        atom = memory.take<Size>(2 * H);
        atoms = memory.take<Real>(Q * classes.end), paired_atoms = memory.take<Real>(Q * classes.end);
        Real* coefficients = memory.take<Real>(Q * classes.end);
        if (!memory.memory) return;
        order_rows();
        pack_matrices(coefficients);
    }

    void order_rows() {
        const int L = problem.orientations, H = problem.harmonics;
        product[0] = 0;
        for (int m = 0; m < half; m++) product[m + 1] = product[m] + (mirrored(m) ? 3 : 1);
        for (int i = 0; i < 2 * H; i++) slot[i] = 0;  // k = 0 has no imaginary part to give one to
        for (int h = 0, atoms = 0; h < H; h++) first_atom[h] = atoms, atoms += harmonic_size(h);
        for (int i = 0; i < 2 * half * H; i++) sign[i] = 1;
        for (int slab = 0; slab < L; slab++)  // V_n holds A(−n) with its parts exchanged, column part 1 its conjugate
            for (int h = 0; h < H; h++) {
                const int feed = problem.feeds[slab * H + h], part = feed % 2;
                if (problem.parts[h] == 2) sign[(feed / 2 * H + h) * 2 + part] = (slab >= half) == (part == 1) ? 1 : -1;
            }
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
        pack(half, half, [&](int n, int a) { return p.spectrum[n * L + a]; }, cosines);
        pack(L - half, L - half, [&](int n, int a) { return p.spectrum[(half + n) * L + a + 1]; }, sines);
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
            const double* rows[most_atoms];
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
        outputs = memory.template take<Real>(Size(padded_strips) * lanes<Real> * p.out_channels * p.orientations);
        responses = memory.template take<Real>(Size(max_groups) * W * plan.products * p.atoms * plan.block);
        mixed = memory.template take<Real>(Size(max_groups) * W * plan.products * p.out_channels);
        const Size turned_rows = Size(plan.products) * plan.strips() * lanes<Real>;
        turned = memory.template take<Real>(backward ? max_groups * W * turned_rows : 0);
        components = memory.template take<Real>(2 * Size(W) * s * s);
        window_atoms = memory.template take<Real>(Size(W) * 2 * p.atoms);
        column = memory.template take<Real>(2 * Size(W) * p.orientations);
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
