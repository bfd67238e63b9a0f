"""The keyed hash of tables whose keys clients choose: subjects, tokens, subscription ids.

Each module inlines its own copy. A 64-bit key that a client does not know meets every word before it is multiplied:
folded 64 x 64 -> 128 bit multiplication, as in wyhash (Wang Yi, public domain). Where a word of the text is a factor as
it stands, texts can be written down that fall together under every key: one that makes the other factor 0, or two
differences that cancel. tests/store/model/test_keyed_hash.py has both.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t jetraft_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t jetraft_word(const char *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }
    /* 0..7 bytes: pieces that overlap, because a copy of any length is a call. */
    static inline uint64_t jetraft_word_of_few(const char *p, size_t n) {
        uint32_t low, high;
        if (n == 0) return 0;
        if (n < 4) return (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint8_t)p[n - 1];
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        return (uint64_t)high << 32 | low;
    }
    static inline uint64_t jetraft_keyed_hash(const char *p, size_t n, uint64_t key) {
        uint64_t state = key ^ n, other = key * 0x9E3779B97F4A7C15ull ^ 0xD1B54A32D192ED03ull;
        if (n < 8) return jetraft_fold(jetraft_word_of_few(p, n) ^ state, other);
        for (; n > 16; p += 16, n -= 16)
            state = jetraft_fold(jetraft_word(p) ^ state, jetraft_word(p + 8) ^ other);
        if (n < 8) {    /* back over bytes that were taken already, so that there are at least 8 */
            p -= 8;
            n += 8;
        }
        return jetraft_fold(jetraft_word(p) ^ state, jetraft_word(p + n - 8) ^ other);
    }
    """
    uint64_t keyed_hash "jetraft_keyed_hash"(const char *p, size_t n, uint64_t key) noexcept nogil
