// Runs the kernel without Python, for machines and checks that PyTorch is not built for: run_problems PROBLEM RESULT …
//
// A file is a row of blocks, each an int64 with its number of bytes and then these. A problem has the integers of
// `struct Problem`, its six tables, features, kernel and gradient of the result; a result has the result itself and
// the gradients of features and kernel, and the same of the passes between convolutions: each is applied to the features,
// if their maps have at least 2×2 pixels, and its result is taken as the gradient of the result.
#include <cstring>
#include <fstream>
#include <iostream>
#include <vector>

#include "problem.h"

extern "C" {
int64_t sfcnn_spectral_workspace(const sfcnn::Problem*, int backward);
int sfcnn_spectral_forward(const sfcnn::Problem*, const void* features, const void* kernel, void* result);
int sfcnn_spectral_backward(const sfcnn::Problem*, const void* gradient, const void* features, const void* kernel,
                            void* features_gradient, void* kernel_gradient);
int sfcnn_normalize_forward(const sfcnn::Normalization*, const void* features, void* result);
int sfcnn_normalize_backward(const sfcnn::Normalization*, const void* gradient, const void* features,
                             void* features_gradient, void* weight_gradient, void* bias_gradient);
int sfcnn_halve_forward(const sfcnn::Halving*, const void* features, void* result, uint8_t* corners);
int sfcnn_halve_backward(const sfcnn::Halving*, const void* gradient, const uint8_t* corners, void* features_gradient);
int sfcnn_blur_forward(const sfcnn::Halving*, const void* features, void* result, uint8_t* corners);
int sfcnn_blur_backward(const sfcnn::Halving*, const void* gradient, const uint8_t* corners, void* features_gradient);
}

using Block = std::vector<char>;

static Block read(std::istream& file) {
    int64_t size = 0;
    file.read(reinterpret_cast<char*>(&size), sizeof size);
    Block block(size);
    file.read(block.data(), size);
    return block;
}

static void write(std::ostream& file, const Block& block) {
    const int64_t size = block.size();
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file.write(block.data(), size);
}

template <class Real> static std::vector<Block> pass(const sfcnn::Problem& p, const Block& features) {
    const int64_t pixels = int64_t(p.height) * p.width, maps = int64_t(p.batch) * p.channels * p.orientations;
    const int64_t halved = maps * (p.height / 2) * (p.width / 2) * sizeof(Real);
    const std::vector<Real> ones(p.channels, 1), zeros(p.channels, 0);
    std::vector<Real> numbers(5 * p.channels);
    Real* of = numbers.data();
    const sfcnn::Normalization norm{p.real_bytes, p.instruction_set, p.threads,    p.batch, p.channels, p.orientations * pixels,
                                    1e-5,         ones.data(),       zeros.data(), of,      of + p.channels, of + 2 * p.channels};
    const sfcnn::Halving half{p.real_bytes, p.instruction_set, p.threads, p.height, p.width, maps};
    std::vector<Block> found;
    for (int64_t size : {int64_t(features.size()), halved, halved})
        found.emplace_back(size, '\xff'), found.emplace_back(features.size(), '\xff');
    std::vector<uint8_t> few(halved / sizeof(Real)), many(maps * (p.height - 1) * (p.width - 1));
    const int failed =
        sfcnn_normalize_forward(&norm, features.data(), found[0].data()) |
        sfcnn_normalize_backward(&norm, found[0].data(), features.data(), found[1].data(), of + 3 * p.channels,
                                 of + 4 * p.channels) |
        sfcnn_halve_forward(&half, features.data(), found[2].data(), few.data()) |
        sfcnn_halve_backward(&half, found[2].data(), few.data(), found[3].data()) |
        sfcnn_blur_forward(&half, features.data(), found[4].data(), many.data()) |
        sfcnn_blur_backward(&half, found[4].data(), many.data(), found[5].data());
    return failed ? std::vector<Block>() : found;
}

static bool run(const char* from, const char* to) {
    std::ifstream file(from, std::ios::binary);
    file.exceptions(std::ios::failbit);
    const Block integers = read(file);
    std::vector<Block> tables;
    for (int i = 0; i < 6; i++) tables.push_back(read(file));
    const Block features = read(file), kernel = read(file), gradient = read(file);

    sfcnn::Problem problem{};
    std::memcpy(&problem, integers.data(), integers.size());
    const int32_t** whole[] = {&problem.rings, &problem.parts, &problem.classes, &problem.feeds};
    const double** real[] = {&problem.coefficients, &problem.spectrum};
    for (int i = 0; i < 4; i++) *whole[i] = reinterpret_cast<const int32_t*>(tables[i].data());
    for (int i = 0; i < 2; i++) *real[i] = reinterpret_cast<const double*>(tables[4 + i].data());

    // Rooms filled with NaN: what has to be written is written.
    Block result(gradient.size(), '\xff'), kernel_gradient(kernel.size(), '\xff');
    Block features_gradient(features.size(), '\xff');
    if (sfcnn_spectral_workspace(&problem, 0) < 0 || sfcnn_spectral_workspace(&problem, 1) < 0) return false;
    if (sfcnn_spectral_forward(&problem, features.data(), kernel.data(), result.data())) return false;
    if (sfcnn_spectral_backward(&problem, gradient.data(), features.data(), kernel.data(), features_gradient.data(),
                                kernel_gradient.data()))
        return false;
    std::ofstream out(to, std::ios::binary);
    for (const Block* block : {&result, &features_gradient, &kernel_gradient}) write(out, *block);
    if (problem.height > 1 && problem.width > 1) {
        const auto found = problem.real_bytes == 4 ? pass<float>(problem, features) : pass<double>(problem, features);
        if (found.empty()) return false;
        for (const Block& block : found) write(out, block);
    }
    return out.good();
}

int main(int count, char** names) {
    for (int i = 1; i + 1 < count; i += 2)
        if (!run(names[i], names[i + 1])) {
            std::cerr << "the kernel does not compute " << names[i] << "\n";
            return 1;
        }
    return 0;
}
