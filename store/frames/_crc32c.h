/* CRC-32C (Castagnoli, reflected 0x82F63B78), the checksum of frames, marks and small files.
 *
 * The CPU's instruction is chosen at run time, so one wheel serves every x86-64; elsewhere eight tables (slicing by
 * eight, Kounavis and Berry 2005) are used. The instruction starts every cycle and takes three, so long data is summed in
 * three lanes at once (Gopal et al. 2011): the sum of a lane is moved past the next one by tables. All functions take and return the finished value, so that
 * crc(b, crc(a, 0)) == crc(a + b, 0), as the crc32c package does.
 */
#ifndef JETRAFT_CRC32C_H
#define JETRAFT_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t jetraft_crc32c_table[8][256];
static int jetraft_crc32c_in_hardware;

static uint32_t jetraft_crc32c_by_table(const uint8_t *data, size_t size, uint32_t value)
{
    uint64_t word;
    uint32_t crc = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        word ^= crc;
        crc = jetraft_crc32c_table[7][word & 0xff] ^ jetraft_crc32c_table[6][(word >> 8) & 0xff]
            ^ jetraft_crc32c_table[5][(word >> 16) & 0xff] ^ jetraft_crc32c_table[4][(word >> 24) & 0xff]
            ^ jetraft_crc32c_table[3][(word >> 32) & 0xff] ^ jetraft_crc32c_table[2][(word >> 40) & 0xff]
            ^ jetraft_crc32c_table[1][(word >> 48) & 0xff] ^ jetraft_crc32c_table[0][word >> 56];
    }
    for (; size; size--, data++)
        crc = (crc >> 8) ^ jetraft_crc32c_table[0][(crc ^ *data) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define JETRAFT_CRC32C_LANES 2
static const size_t jetraft_crc32c_lane_bytes[JETRAFT_CRC32C_LANES] = {2048, 256}; /* of three; the larger first */
static uint32_t jetraft_crc32c_past[JETRAFT_CRC32C_LANES][4][256]; /* by byte: the sum as if a lane of zeros followed */

static inline uint32_t jetraft_crc32c_moved(uint32_t past[4][256], uint64_t crc)
{
    return past[0][crc & 0xff] ^ past[1][(crc >> 8) & 0xff] ^ past[2][(crc >> 16) & 0xff] ^ past[3][(crc >> 24) & 0xff];
}

__attribute__((target("sse4.2")))
static uint32_t jetraft_crc32c_by_cpu(const uint8_t *data, size_t size, uint32_t value)
{
    uint64_t one, two, three, crc = (uint32_t)~value, second, third;
    for (int choice = 0; choice < JETRAFT_CRC32C_LANES; choice++) {
        const size_t lane = jetraft_crc32c_lane_bytes[choice];
        for (; size >= 3 * lane; size -= 3 * lane, data += 2 * lane) {
            second = third = 0;
            for (const uint8_t *end = data + lane; data != end; data += 8) {
                memcpy(&one, data, 8);
                memcpy(&two, data + lane, 8);
                memcpy(&three, data + 2 * lane, 8);
                crc = __builtin_ia32_crc32di(crc, one);
                second = __builtin_ia32_crc32di(second, two);
                third = __builtin_ia32_crc32di(third, three);
            }
            crc = jetraft_crc32c_moved(jetraft_crc32c_past[choice], crc) ^ second;
            crc = jetraft_crc32c_moved(jetraft_crc32c_past[choice], crc) ^ third;
        }
    }
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&one, data, 8);
        crc = __builtin_ia32_crc32di(crc, one);
    }
    for (; size; size--, data++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

__attribute__((target("sse4.2")))
static void jetraft_crc32c_prepare_lanes(void)
{
    for (int choice = 0; choice < JETRAFT_CRC32C_LANES; choice++)
        for (int part = 0; part < 4; part++) {
            uint32_t *past = jetraft_crc32c_past[choice][part];
            for (int bit = 0; bit < 8; bit++) { /* moving is linear: a byte's sum is that of its bits */
                uint64_t crc = (uint32_t)1 << (8 * part + bit);
                for (size_t at = 0; at < jetraft_crc32c_lane_bytes[choice]; at += 8)
                    crc = __builtin_ia32_crc32di(crc, 0);
                past[1 << bit] = (uint32_t)crc;
            }
            for (int i = 1; i < 256; i++)
                past[i] = past[i & (i - 1)] ^ past[i & -i];
        }
}
#else
#define jetraft_crc32c_by_cpu jetraft_crc32c_by_table
#endif

static void jetraft_crc32c_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
        jetraft_crc32c_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int n = 1; n < 8; n++) {
            uint32_t crc = jetraft_crc32c_table[n - 1][i];
            jetraft_crc32c_table[n][i] = (crc >> 8) ^ jetraft_crc32c_table[0][crc & 0xff];
        }
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    jetraft_crc32c_in_hardware = __builtin_cpu_supports("sse4.2");
    if (jetraft_crc32c_in_hardware)
        jetraft_crc32c_prepare_lanes();
#endif
}

static inline uint32_t jetraft_crc32c(const uint8_t *data, size_t size, uint32_t value)
{
    return jetraft_crc32c_in_hardware ? jetraft_crc32c_by_cpu(data, size, value)
                                      : jetraft_crc32c_by_table(data, size, value);
}

#endif
