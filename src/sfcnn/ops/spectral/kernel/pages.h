// Huge pages for large blocks of memory, and blocks that are kept for the next call.
//
// The system hands out memory at its first use, a page at a time, and clears it. Results of some megabytes are written
// once and soon freed, so that pages of 4 kB cost up to a tenth of a training step of a network with few channels and
// large maps. What calls work in is kept between them: clearing it anew would cost as much again.
#pragma once
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sfcnn {

constexpr std::size_t huge_page = std::size_t(2) << 20;

// Asks for huge pages where whole ones fit into a block. A hint: nothing depends on the answer.
inline void prefer_huge_pages(void* start, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(start);
    const std::uintptr_t first = (address + huge_page - 1) / huge_page * huge_page;
    const std::uintptr_t last = (address + bytes) / huge_page * huge_page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)start, (void)bytes;
#endif
}

// A piece of memory: a large one starts at a huge page, others at a strip of 64 bytes.
struct Block {
    void* start;
    std::size_t bytes;
};

// Large blocks that nobody uses now; each holds its own size meanwhile.
constexpr int kept_blocks = 8;
constexpr std::size_t largest_kept = std::size_t(64) << 20;
inline std::atomic<void*> kept[kept_blocks];

inline std::size_t kept_size(void* block) { return *static_cast<std::size_t*>(block); }

// Keeps a block in the first place, and moves the others on; the oldest one is freed if there are too many.
inline void keep(void* block) {
    for (std::atomic<void*>& place : kept)
        if (!(block = place.exchange(block))) return;
    free(block);
}

// At least so many bytes, with any contents; null if there is no memory.
inline Block take_block(std::size_t bytes) {
    if (bytes < huge_page) return {aligned_alloc(64, (bytes + 63) / 64 * 64), bytes};
    for (std::atomic<void*>& place : kept)
        if (void* block = place.exchange(nullptr)) {
            if (kept_size(block) >= bytes) return {block, kept_size(block)};
            void* empty = nullptr;
            if (!place.compare_exchange_strong(empty, block)) free(block);
        }
    std::size_t size = huge_page;  // a power of two, which fits most later calls; pages that are not used do not exist
    while (size < bytes) size *= 2;
    void* block = aligned_alloc(huge_page, size);
    if (block) prefer_huge_pages(block, size);
    return {block, size};
}

inline void give_back(Block block) {
    if (block.bytes >= huge_page && block.bytes <= largest_kept) {
        *static_cast<std::size_t*>(block.start) = block.bytes;
        keep(block.start);
    } else {
        free(block.start);
    }
}

}  // namespace sfcnn
