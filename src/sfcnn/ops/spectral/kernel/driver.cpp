// How one call is cut into jobs and dealt to threads, and the C interface.
//
// Nothing here depends on the number of threads but who does which job: jobs, the totals they add to and their order
// in them are the same for any number, and so are the bits of the result.
#include <cstring>

#include "machine.h"
#include "pages.h"

namespace sfcnn {

namespace {

// Memory to work in, from `pages.h` if there is much of it.
class Memory {
    Block block{};

   public:
    explicit Memory(std::size_t bytes = 0) {
        if (bytes && !(block = take_block(bytes)).start) throw std::bad_alloc();
    }
    Memory(Memory&& other) noexcept : block(other.block) { other.block = {}; }
    Memory& operator=(Memory&& other) noexcept { return std::swap(block, other.block), *this; }
    ~Memory() { give_back(block); }
    void* get() const { return block.start; }
    char* bytes() const { return static_cast<char*>(block.start); }
};

constexpr std::size_t preferred_bytes = std::size_t(31) << 20, largest_bytes = std::size_t(32) << 20;
constexpr int wanted_jobs = 4, most_totals = 8;
constexpr std::size_t totals_bytes = std::size_t(64) << 20;

// Images in blocks that fill the lanes, by tiles if they are few, and the tile in bands of rows and of columns.
//
// In the backward pass a band adds to the gradient of s − 1 rows of the next one, and the last to those of the first
// band of the tile below. With bands of at least s − 1 rows, and an even number of them where there are tiles below,
// even bands do not meet, and neither do odd ones: they can be worked on at the same time. Columns likewise. Even bands
// come first, and clear the gradient of their own and the next band before they add to it.
struct Arrangement {
    Tiling tiling;
    int bands[2];  // of rows, of columns
    double cost;   // of all blocks, in cycles of one of `wanted_jobs` threads
    std::size_t bytes;
};

struct Call {
    const Problem& problem;
    const Kernel& kernel;
    Memory memory;
    const void* plan;
    std::vector<Job> jobs[4];  // those of a phase do not meet
    std::size_t bytes = 0;     // of a workspace
    int half;

    Call(const Problem& p, const Kernel& k, bool backward) : problem(p), kernel(k), memory(k.plan(p, nullptr)) {
        k.plan(p, memory.get());
        plan = memory.get();
        half = p.orientations / 2 + 1;
        arrange_batch(backward);
    }

    // Blocks of as many images as cost least, and the images that are left over in a block of their own.
    void arrange_batch(bool backward) {
        const int batch = problem.batch, most = std::max(1, std::min(batch, kernel.lanes / std::max(1, problem.tiles)));
        Arrangement best{}, rest{};
        double least = -1;
        for (int images = 1; images <= most; images++) {
            const int left = batch % images;
            const Arrangement block = arrange(images, batch / images, backward);
            const Arrangement last = left ? arrange(left, 1, backward) : Arrangement{};
            const double cost = block.cost + last.cost;
            if (least < 0 || cost < least) best = block, rest = last, least = cost;
        }
        bytes = std::max(best.bytes, rest.bytes);
        for (int image = 0; image < batch; image += best.tiling.images) {
            const int images = std::min(best.tiling.images, batch - image);
            add_jobs(images < best.tiling.images ? rest : best, image, images);
        }
    }

    Arrangement arrange(int images, int blocks, bool backward) const {
        const Problem& p = problem;
        const int height = p.height + 2 * p.margin - p.kernel_size + 1, width = p.width + 2 * p.margin - p.kernel_size + 1;
        Arrangement best{};
        best.cost = -1;
        const int tiles = p.tiles == 1 ? 1 : kernel.lanes / images;
        for (int rows = 1; rows <= tiles; rows++) {
            const int columns = tiles / rows;
            Arrangement a{{images, rows, columns, (height + rows - 1) / rows, (width + columns - 1) / columns}, {1, 1}, 0, 0};
            cut(a, blocks, backward);
            if (best.cost < 0 || a.cost < best.cost) best = a;
        }
        return best;
    }

    // Bands that keep the workspace small and make jobs for several threads; columns only if rows are not enough.
    void cut(Arrangement& a, int blocks, bool backward) const {
        const int reach = std::max(1, problem.kernel_size - 1);
        const int extent[2] = {a.tiling.height, a.tiling.width}, tiles[2] = {a.tiling.tile_rows, a.tiling.tile_columns};
        for (int axis = 0; axis < 2; axis++) {
            const int most = std::max(1, extent[axis] / reach), step = tiles[axis] > 1 ? 2 : 1;
            auto enough = [&] {
                return size(a, backward) <= preferred_bytes && (axis > 0 || blocks * a.bands[0] >= wanted_jobs);
            };
            while (!enough() && (a.bands[axis] == 1 ? step : a.bands[axis] + step) <= most)
                a.bands[axis] = a.bands[axis] == 1 && step == 2 ? 2 : a.bands[axis] + step;
        }
        a.bytes = size(a, backward);
        const double rows = double(extent[0]) / a.bands[0], columns = double(extent[1]) / a.bands[1];
        // Cycles for a strip of one slab: to mix and respond, and to read it and transform it with its frame.
        const double inner = 1.5 * problem.atoms * problem.out_channels + 6.0 * problem.kernel_size * problem.kernel_size;
        const double outer = problem.orientations + 40.0;
        a.cost = rounds(a, blocks, backward) * (rows * columns * inner + (rows + reach) * (columns + reach) * outer);
        if (a.bytes > largest_bytes) a.cost *= 1e6;
    }

    // Jobs that the thread with most of them has, one after the other.
    static double rounds(const Arrangement& a, int blocks, bool backward) {
        auto shared = [&](int jobs) { return (jobs + wanted_jobs - 1) / wanted_jobs; };
        if (!backward) return shared(blocks * a.bands[0] * a.bands[1]);
        double sum = 0;
        for (int rows : {(a.bands[0] + 1) / 2, a.bands[0] / 2})
            for (int columns : {(a.bands[1] + 1) / 2, a.bands[1] / 2}) sum += shared(blocks * rows * columns);
        return sum;
    }

    std::size_t size(const Arrangement& a, bool backward) const {
        const int rows = (a.tiling.height + a.bands[0] - 1) / a.bands[0];
        return kernel.workspace(plan, rows, (a.tiling.width + a.bands[1] - 1) / a.bands[1], backward);
    }

    void add_jobs(const Arrangement& a, int first_image, int images) {
        const int height = a.tiling.height, width = a.tiling.width;
        for (int i = 0; i < a.bands[0]; i++)
            for (int j = 0; j < a.bands[1]; j++) {
                const int row = height * i / a.bands[0], column = width * j / a.bands[1];
                const int rows = height * (i + 1) / a.bands[0] - row, columns = width * (j + 1) / a.bands[1] - column;
                const bool first = i % 2 == 0 && j % 2 == 0;
                const int clear_rows = first ? height * std::min(i + 2, a.bands[0]) / a.bands[0] - row : 0;
                const int clear_columns = first ? width * std::min(j + 2, a.bands[1]) / a.bands[1] - column : 0;
                jobs[i % 2 + j % 2 * 2].push_back(
                    {a.tiling, first_image, images, row, rows, column, columns, clear_rows, clear_columns});
            }
    }

    std::vector<Memory> workspaces() const { return std::vector<Memory>(std::max(1, problem.threads)); }
    void* workspace(std::vector<Memory>& all, int worker) const {
        if (!all[worker].get()) all[worker] = Memory(bytes);
        return all[worker].get();
    }

    Memory pack(const void* weights, bool adjoint) const {
        Memory packed(kernel.weights(plan) * problem.real_bytes);
        parallel(problem.threads, half, [&](int m, int) { kernel.pack(plan, weights, m, adjoint, packed.get()); });
        return packed;
    }

    void forward(const void* features, const void* weights, void* result) const {
        const std::size_t maps = std::size_t(problem.batch) * problem.out_channels * problem.orientations;
        const int reach = 2 * problem.margin - problem.kernel_size + 1;
        prefer_huge_pages(result, maps * (problem.height + reach) * (problem.width + reach) * problem.real_bytes);
        const Memory packed = pack(weights, false);
        std::vector<Job> all;
        for (const std::vector<Job>& phase : jobs) all.insert(all.end(), phase.begin(), phase.end());
        std::vector<Memory> work = workspaces();
        parallel(problem.threads, static_cast<int>(all.size()), [&](int task, int worker) {
            kernel.forward(plan, all[task], features, packed.get(), result, workspace(work, worker));
        });
    }

    void backward(const void* gradient, const void* features, const void* weights, void* features_gradient,
                  void* kernel_gradient) const {
        const std::size_t maps = std::size_t(problem.batch) * problem.channels * problem.orientations;
        prefer_huge_pages(features_gradient, maps * problem.height * problem.width * problem.real_bytes);
        const Memory packed = pack(weights, true);
        std::size_t longest = 1;
        for (const std::vector<Job>& phase : jobs) longest = std::max(longest, phase.size());
        const std::size_t total = kernel_gradient ? kernel.totals(plan) * problem.real_bytes : 0;
        const int bound = total ? static_cast<int>(std::max<std::size_t>(2, totals_bytes / total)) : 1 << 20;
        const int count = std::min({static_cast<int>(longest), bound, total ? most_totals : 1 << 20});
        const Memory totals(total * count);
        std::vector<Memory> work = workspaces();
        for (int phase = 0; phase < 4; phase++)
            parallel(problem.threads, phase && jobs[phase].empty() ? 0 : count, [&](int task, int worker) {
                char* sum = total ? totals.bytes() + total * task : nullptr;
                if (sum && phase == 0) std::memset(sum, 0, total);
                for (std::size_t job = task; job < jobs[phase].size(); job += count)
                    kernel.backward(plan, jobs[phase][job], gradient, features, packed.get(), features_gradient, sum,
                                    workspace(work, worker));
            });
        if (kernel_gradient)
            parallel(problem.threads, half,
                     [&](int m, int) { kernel.collect(plan, totals.get(), count, m, kernel_gradient); });
    }
};

// Runs `act` on the call that a problem asks for: 0 if all went well, 1 if memory ran out, 2 without such instructions.
int run(const Problem& problem, bool backward, const std::function<void(const Call&)>& act) {
    const InstructionSet* set = find_set(problem.instruction_set);
    if (!set) return 2;
    try {
        act(Call(problem, set->kernel(problem.real_bytes), backward));
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace sfcnn

// The name of an instruction set by its number, or of the best one for -1; null if the machine does not have it.
SFCNN_EXPORT const char* sfcnn_instruction_set(int number) {
    const sfcnn::InstructionSet* set = sfcnn::find_set(number);
    return set ? set->name : nullptr;
}

// Bytes that each thread needs for a problem beside its arguments, -1 if more than it may take.
SFCNN_EXPORT int64_t sfcnn_spectral_workspace(const sfcnn::Problem* problem, int backward) {
    int64_t bytes = -1;
    sfcnn::run(*problem, backward, [&](const sfcnn::Call& call) {
        if (call.bytes <= sfcnn::largest_bytes) bytes = static_cast<int64_t>(call.bytes);
    });
    return bytes;
}

// The threads to use, see `Team`; null for threads of our own.
SFCNN_EXPORT void sfcnn_use_team(void* found) {
    sfcnn::team_process = getpid();
    sfcnn::team = reinterpret_cast<sfcnn::Team>(found);
}

// Asks for huge pages for memory that has not been written to yet.
SFCNN_EXPORT void sfcnn_prefer_huge_pages(void* start, std::size_t bytes) { sfcnn::prefer_huge_pages(start, bytes); }

// Features (B, C, Λ, H, W) and kernel (half, Ĉ, 2·C·Q) → result (B, Ĉ, Λ, H', W').
SFCNN_EXPORT int sfcnn_spectral_forward(const sfcnn::Problem* problem, const void* features, const void* kernel,
                                        void* result) {
    return sfcnn::run(*problem, false, [&](const sfcnn::Call& call) { call.forward(features, kernel, result); });
}

// Writes the gradient of the features, and that of the kernel unless it is null.
SFCNN_EXPORT int sfcnn_spectral_backward(const sfcnn::Problem* problem, const void* gradient, const void* features,
                                         const void* kernel, void* features_gradient, void* kernel_gradient) {
    return sfcnn::run(*problem, true, [&](const sfcnn::Call& call) {
        call.backward(gradient, features, kernel, features_gradient, kernel_gradient);
    });
}
