// Huge pages for large blocks of memory.
//
// The system hands out memory at its first use, a page at a time. Results of some megabytes are written once and soon
// freed, so that pages of 4 kB cost up to a tenth of a training step of a network with few channels and large maps.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif

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

}  // namespace sfcnn
