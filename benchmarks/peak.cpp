// The most multiply-adds that this processor does in a second: chains of them that do not wait for each other, on so
// many threads. Prints billions of float32 multiply-adds per second, the best of several tries.
//
//     c++ -O3 -march=native -pthread peak.cpp -o peak && ./peak 2
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int bytes = 64;
#elif defined(__AVX__)
constexpr int bytes = 32;
#else
constexpr int bytes = 16;
#endif
typedef float Vector __attribute__((vector_size(bytes)));
constexpr int chains = 12, rounds = 20000000;

float chain(float factor) {
    Vector sum[chains];
    for (int i = 0; i < chains; i++) sum[i] = Vector{} + i * factor;  // all different, else one chain would do for all
    const Vector x = Vector{} + factor, y = Vector{} + 0.5f;
    for (int round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (Vector& number : sum) number = number * x + y;
    }
    Vector total{};
    for (const Vector& number : sum) total += number;
    return total[0];
}

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 1;
    double best = 0;
    volatile float kept = 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> team;
        for (int i = 0; i < threads; i++) team.emplace_back([&] { kept = chain(0.5f); });
        for (std::thread& thread : team) thread.join();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        const double rate = double(threads) * rounds * chains * (bytes / 4) / seconds.count() / 1e9;
        if (rate > best) best = rate;
    }
    std::printf("%.2f\n", best);
}
