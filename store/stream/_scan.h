/* Loops over subject ids. They look at sixteen at a time without a branch, which compilers turn into vector compares. */

#ifndef JETRAFT_SCAN_H
#define JETRAFT_SCAN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#define JETRAFT_SCAN static __attribute__((optimize("O3"), noinline))
#else
#define JETRAFT_SCAN static
#endif
/* Position of the first value that equals `wanted`, `count` when there is none. */
JETRAFT_SCAN size_t jetraft_find_equal(const uint32_t *values, size_t count, uint32_t wanted) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        uint32_t hit = 0;
        for (int k = 0; k < 16; k++) hit |= (values[i + k] == wanted);
        if (hit) break;
    }
    for (; i < count; i++) if (values[i] == wanted) return i;
    return count;
}

/* Position of the first value that is not 0, `count` when there is none. */
JETRAFT_SCAN size_t jetraft_find_live(const uint32_t *values, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        uint32_t hit = 0;
        for (int k = 0; k < 16; k++) hit |= values[i + k];
        if (hit) break;
    }
    for (; i < count; i++) if (values[i]) return i;
    return count;
}

/* How many values equal `wanted`. */
JETRAFT_SCAN size_t jetraft_count_equal(const uint32_t *values, size_t count, uint32_t wanted) {
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) found += (values[i] == wanted);
    return found;
}

#endif
