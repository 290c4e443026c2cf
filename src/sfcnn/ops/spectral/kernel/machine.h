// The machine: which instructions it has, and how work is dealt to its threads.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "problem.h"

namespace sfcnn {

#define SFCNN_DECLARE(isa) namespace isa { extern const Kernel single_kernel, double_kernel; }
SFCNN_DECLARE(plain)
#if defined(SFCNN_X86)
SFCNN_DECLARE(avx2)
SFCNN_DECLARE(avx512)
#endif

struct InstructionSet {
    const char* name;
    const Kernel *single_kernel, *double_kernel;
    bool present;
    const Kernel& kernel(int real_bytes) const { return real_bytes == 4 ? *single_kernel : *double_kernel; }
};

// From the plainest to the best.
inline std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> sets{{"plain", &plain::single_kernel, &plain::double_kernel, true}};
#if defined(SFCNN_X86)
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    sets.push_back({"avx2", &avx2::single_kernel, &avx2::double_kernel, fma});
    sets.push_back({"avx512", &avx512::single_kernel, &avx512::double_kernel, wide});
#endif
    return sets;
}

inline const InstructionSet* find_set(int number) {
    static const std::vector<InstructionSet> sets = instruction_sets();
    if (number < 0)
        for (number = static_cast<int>(sets.size()) - 1; !sets[number].present;) number--;
    return number < static_cast<int>(sets.size()) && sets[number].present ? &sets[number] : nullptr;
}

// The threads of PyTorch's OpenMP: `GOMP_parallel` of the library that PyTorch has loaded, or null.
//
// They wait for work by spinning. Threads of our own would have to share the processors with them, which costs up to a
// quarter of a call. They do not outlive a fork, so that only the process that they were found in may use them.
using Team = void (*)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
inline std::atomic<Team> team{nullptr};
inline std::atomic<pid_t> team_process{0};

// Work that is done once by each of some threads, which are numbered from 0.
inline void by_threads(int threads, const std::function<void(int worker)>& work) {
    struct Shared {
        const std::function<void(int)>& work;
        std::atomic<int> workers;
    } shared{work, {0}};
    const Team found = team;
    if (found && threads > 1 && team_process == getpid()) {
        const auto run = [](void* data) { static_cast<Shared*>(data)->work(static_cast<Shared*>(data)->workers++); };
        return found(run, &shared, static_cast<unsigned>(threads), 0);
    }
    std::vector<std::thread> helpers;
    try {
        for (int worker = 1; worker < threads; worker++) helpers.emplace_back(work, worker);
    } catch (const std::system_error&) {  // no more threads to be had: those there are do it all
    }
    work(0);
    for (std::thread& helper : helpers) helper.join();  // the threads end with the call: nothing is left to a fork
}

// All tasks, by as many threads; each call knows its worker.
inline void parallel(int threads, int tasks, const std::function<void(int task, int worker)>& run) {
    std::atomic<int> next{0};
    std::atomic<bool> failed{false};
    by_threads(std::min(threads, tasks), [&](int worker) {
        try {
            for (int task = next++; task < tasks; task = next++) run(task, worker);
        } catch (...) {
            failed = true;
        }
    });
    if (failed) throw std::bad_alloc();
}

}  // namespace sfcnn

#define SFCNN_EXPORT extern "C" __attribute__((visibility("default")))
