// What Python, the driver and the code of each instruction set tell each other. Plain data, no code.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sfcnn {

// One spectral group convolution. Tables are those of `tables.py`, where their meaning is defined; Λ is `orientations`.
struct Problem {
    int32_t real_bytes;       // 4 for float, 8 for double
    int32_t instruction_set;  // position among those of the driver, -1 for the best the machine has
    int32_t tiles;            // 0 for free choice, 1 if images are never cut, else the least tiles to cut an image into
    int32_t threads;
    int32_t batch, channels, out_channels, orientations, height, width, kernel_size, margin;
    int32_t atoms, harmonics;
    const int32_t* rings;        // (harmonics): atoms of each angular frequency k
    const int32_t* parts;        // (harmonics): 1 for k = 0, else 2, the real and the imaginary part
    const int32_t* classes;      // (harmonics, 2): symmetry class of each part
    const int32_t* feeds;        // (Λ, harmonics): 2m + column part that the responses of a slab feed
    const double* coefficients;  // (atoms, s²): the atoms in components of the symmetry classes
    const double* spectrum;      // F (Λ, Λ): orientations → slabs
    const void *scale, *shift;   // (Ĉ) each: outputs become max(0, scale · y + shift); null for outputs as they are
};

// How images fill the lanes: some images, each cut into rows × columns tiles, one tile to a lane.
struct Tiling {
    int32_t images, tile_rows, tile_columns;
    int32_t height, width;  // outputs of a tile
};

// A piece of work: the same rectangle of outputs in the tile of every lane.
struct Job {
    Tiling tiling;
    int32_t first_image, images;
    int32_t row, rows, column, columns;
    int32_t clear_rows, clear_columns;  // backward: from the same corner on, where it is the first to add a gradient
};

// Batch norm and ReLU of features (B, C, pixels); Λ, H and W are one here.
struct Normalization {
    int32_t real_bytes, instruction_set, threads;  // as above
    int32_t batch, channels;
    int64_t pixels;
    double eps;
    const void *weight, *bias;        // (C)
    void *mean, *inverse, *variance;  // (C): of the batch; `inverse` is 1 / √(var + eps), `variance` the unbiased one
};

// The maximum over 2×2 pixels, or the blurred one, of so many maps.
struct Halving {
    int32_t real_bytes, instruction_set, threads;  // as above
    int32_t height, width;
    int64_t maps;
};

// Memory that the blurred maximum needs beside its arguments: so many rows, with room at both ends for a vector.
constexpr int blur_rows = 9, blur_room = 32;

// Passes over memory between convolutions, by one channel or some maps at a time.
struct Passes {
    void (*normalize)(const Normalization&, int channel, const void* features, void* result);
    void (*normalize_adjoint)(const Normalization&, int channel, const void* gradient, const void* features,
                              void* features_gradient, void* weight_gradient, void* bias_gradient);
    void (*halve)(const Halving&, int64_t first, int64_t last, const void* features, void* result, uint8_t* corners);
    void (*halve_adjoint)(const Halving&, int64_t first, int64_t last, const void* gradient, const uint8_t* corners,
                          void* features_gradient);
    void (*blur)(const Halving&, int64_t first, int64_t last, const void* features, void* result, uint8_t* corners,
                 void* memory);
    void (*blur_adjoint)(const Halving&, int64_t first, int64_t last, const void* gradient, const uint8_t* corners,
                         void* features_gradient, void* memory);
};

// The code of one instruction set in one precision. A plan is made from the problem and read by all threads.
struct Kernel {
    int32_t lanes;
    std::size_t (*plan)(const Problem&, void* memory);  // bytes; written to memory unless it is null
    std::size_t (*workspace)(const void* plan, int rows, int columns, bool backward);  // bytes for jobs of that size
    std::size_t (*weights)(const void* plan);                                          // numbers
    std::size_t (*totals)(const void* plan);                                           // numbers
    void (*pack)(const void* plan, const void* kernel, int m, bool adjoint, void* weights);
    void (*forward)(const void* plan, const Job&, const void* features, const void* weights, void* result, void* work);
    void (*backward)(const void* plan, const Job&, const void* gradient, const void* features, const void* weights,
                     void* features_gradient, void* total, void* work);
    void (*collect)(const void* plan, const void* totals, int count, int m, void* kernel_gradient);
    Passes passes;
};

}  // namespace sfcnn
