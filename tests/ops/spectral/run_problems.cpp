// Runs the kernel without Python, for machines and checks that PyTorch is not built for: run_problems PROBLEM RESULT …
//
// A file is a row of blocks, each an int64 with its number of bytes and then these. A problem has the integers of
// `struct Problem`, its seven tables, features, kernel and gradient of the result; a result has the result itself and
// the gradients of features and kernel.
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

static bool run(const char* from, const char* to) {
    std::ifstream file(from, std::ios::binary);
    file.exceptions(std::ios::failbit);
    const Block integers = read(file);
    std::vector<Block> tables;
    for (int i = 0; i < 7; i++) tables.push_back(read(file));
    const Block features = read(file), kernel = read(file), gradient = read(file);

    sfcnn::Problem problem{};
    std::memcpy(&problem, integers.data(), integers.size());
    const int32_t** whole[] = {&problem.rings, &problem.parts, &problem.classes, &problem.feeds};
    const double** real[] = {&problem.coefficients, &problem.spectrum, &problem.synthesis};
    for (int i = 0; i < 4; i++) *whole[i] = reinterpret_cast<const int32_t*>(tables[i].data());
    for (int i = 0; i < 3; i++) *real[i] = reinterpret_cast<const double*>(tables[4 + i].data());

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
