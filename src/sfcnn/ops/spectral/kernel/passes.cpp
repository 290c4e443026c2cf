// The C interface of the passes between convolutions: 0 if all went well, 1 if memory ran out, 2 without instructions.
#include "machine.h"
#include "pages.h"

namespace sfcnn {
namespace {

// Threads that are worth their start for so many numbers.
int worthwhile(int threads, double numbers) {
    return static_cast<int>(std::max(1.0, std::min<double>(threads, numbers / (1 << 16))));
}

template <class Problem> int run(const Problem& problem, const std::function<void(const Passes&)>& act) {
    const InstructionSet* set = find_set(problem.instruction_set);
    if (!set) return 2;
    try {
        act(set->kernel(problem.real_bytes).passes);
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

std::size_t bytes(const Normalization& n) { return std::size_t(n.batch) * n.channels * n.pixels * n.real_bytes; }
std::size_t bytes(const Halving& p) { return std::size_t(p.maps) * p.height * p.width * p.real_bytes; }

int by_channel(const Normalization& n, const std::function<void(const Passes&, int channel)>& act) {
    const int threads = worthwhile(n.threads, double(n.batch) * n.channels * n.pixels);
    return run(n, [&](const Passes& passes) {
        parallel(threads, n.channels, [&](int channel, int) { act(passes, channel); });
    });
}

int by_maps(const Halving& p, const std::function<void(const Passes&, int64_t first, int64_t last)>& act) {
    const int threads = worthwhile(p.threads, double(p.maps) * p.height * p.width);
    const int tasks = threads == 1 ? 1 : 4 * threads;
    return run(p, [&](const Passes& passes) {
        parallel(threads, tasks, [&](int task, int) { act(passes, p.maps * task / tasks, p.maps * (task + 1) / tasks); });
    });
}

// Room for the rows of the blurred maximum, of which every task has its own.
std::vector<char> blur_memory(const Halving& p) {
    return std::vector<char>(std::size_t(blur_rows) * (p.width + 2 * blur_room) * p.real_bytes);
}

}  // namespace
}  // namespace sfcnn

// Features → max(0, batch norm), both (B, C, pixels); fills mean, inverse and variance.
SFCNN_EXPORT int sfcnn_normalize_forward(const sfcnn::Normalization* n, const void* features, void* result) {
    sfcnn::prefer_huge_pages(result, sfcnn::bytes(*n));
    return sfcnn::by_channel(*n, [&](const sfcnn::Passes& passes, int channel) {
        passes.normalize(*n, channel, features, result);
    });
}

// Fills the gradients of features, weight and bias, from the mean and inverse of the forward pass.
SFCNN_EXPORT int sfcnn_normalize_backward(const sfcnn::Normalization* n, const void* gradient, const void* features,
                                          void* features_gradient, void* weight_gradient, void* bias_gradient) {
    sfcnn::prefer_huge_pages(features_gradient, sfcnn::bytes(*n));
    return sfcnn::by_channel(*n, [&](const sfcnn::Passes& passes, int channel) {
        passes.normalize_adjoint(*n, channel, gradient, features, features_gradient, weight_gradient, bias_gradient);
    });
}

// Features (maps, H, W) → result and corners (maps, H // 2, W // 2).
SFCNN_EXPORT int sfcnn_halve_forward(const sfcnn::Halving* p, const void* features, void* result, uint8_t* corners) {
    sfcnn::prefer_huge_pages(result, sfcnn::bytes(*p) / 4);
    return sfcnn::by_maps(*p, [&](const sfcnn::Passes& passes, int64_t first, int64_t last) {
        passes.halve(*p, first, last, features, result, corners);
    });
}

// Gradient and corners (maps, H // 2, W // 2) → gradient of the features (maps, H, W), all of it.
SFCNN_EXPORT int sfcnn_halve_backward(const sfcnn::Halving* p, const void* gradient, const uint8_t* corners,
                                      void* features_gradient) {
    sfcnn::prefer_huge_pages(features_gradient, sfcnn::bytes(*p));
    return sfcnn::by_maps(*p, [&](const sfcnn::Passes& passes, int64_t first, int64_t last) {
        passes.halve_adjoint(*p, first, last, gradient, corners, features_gradient);
    });
}

// Features (maps, H, W) → result (maps, H // 2, W // 2) and, unless it is null, corners (maps, H − 1, W − 1).
SFCNN_EXPORT int sfcnn_blur_forward(const sfcnn::Halving* p, const void* features, void* result, uint8_t* corners) {
    sfcnn::prefer_huge_pages(result, sfcnn::bytes(*p) / 4);
    return sfcnn::by_maps(*p, [&](const sfcnn::Passes& passes, int64_t first, int64_t last) {
        passes.blur(*p, first, last, features, result, corners, sfcnn::blur_memory(*p).data());
    });
}

// Gradient (maps, H // 2, W // 2) and corners (maps, H − 1, W − 1) → gradient of the features (maps, H, W), all of it.
SFCNN_EXPORT int sfcnn_blur_backward(const sfcnn::Halving* p, const void* gradient, const uint8_t* corners,
                                     void* features_gradient) {
    sfcnn::prefer_huge_pages(features_gradient, sfcnn::bytes(*p));
    return sfcnn::by_maps(*p, [&](const sfcnn::Passes& passes, int64_t first, int64_t last) {
        passes.blur_adjoint(*p, first, last, gradient, corners, features_gradient, sfcnn::blur_memory(*p).data());
    });
}
