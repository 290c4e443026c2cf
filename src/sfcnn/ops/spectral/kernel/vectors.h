// The vectors of an instruction set, and how many of them a microkernel keeps in registers.
//
// Everything is computed for `lanes` independent places at once. Their numbers fill a *strip* of 64 bytes, whatever
// the width of a vector. Microkernels take a *group* of neighbouring strips, as many as the registers allow.
#pragma once
#include "problem.h"

namespace sfcnn {
namespace SFCNN_ISA {

#if defined(__AVX512F__)  // 32 registers of 64 bytes
constexpr int vector_bytes = 64, group = 3, max_rows = 9;
#elif defined(__AVX2__)  // 16 of 32
constexpr int vector_bytes = 32, group = 1, max_rows = 6;
#elif defined(__aarch64__)  // 32 of 16
constexpr int vector_bytes = 16, group = 1, max_rows = 6;
#else  // 16 of 16
constexpr int vector_bytes = 16, group = 1, max_rows = 3;
#endif

constexpr int strip_bytes = 64;
template <class Real> constexpr int lanes = strip_bytes / sizeof(Real);
template <class Real> constexpr int width = group * lanes<Real>;          // numbers in a group
template <class Real> constexpr int vector = vector_bytes / sizeof(Real);  // numbers in a vector

template <class Real, int parts = 1> struct VectorOf;
template <> struct VectorOf<float> { typedef float type __attribute__((vector_size(vector_bytes), may_alias)); };
template <> struct VectorOf<double> { typedef double type __attribute__((vector_size(vector_bytes), may_alias)); };
template <> struct VectorOf<float, 2> { typedef float type __attribute__((vector_size(vector_bytes / 2), may_alias)); };
template <> struct VectorOf<double, 2> { typedef double type __attribute__((vector_size(vector_bytes / 2), may_alias)); };
template <class Real> using Vector = typename VectorOf<Real>::type;
template <class Real> using HalfVector = typename VectorOf<Real, 2>::type;

template <class Real> inline Vector<Real> load(const Real* from) { return *reinterpret_cast<const Vector<Real>*>(from); }
template <class Real> inline void store(Real* to, Vector<Real> x) { *reinterpret_cast<Vector<Real>*>(to) = x; }

// n things dealt to as few blocks as hold at most `most` each, of nearly equal sizes.
struct Split {
    int blocks, size, larger;  // the first `larger` blocks have one thing more
    Split(int n, int most) : blocks((n + most - 1) / most), size(blocks ? n / blocks : 0), larger(blocks ? n % blocks : 0) {}
    int first(int block) const { return block * size + (block < larger ? block : larger); }
    int count(int block) const { return size + (block < larger); }
};

}  // namespace SFCNN_ISA
}  // namespace sfcnn
