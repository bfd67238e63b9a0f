"""The dictionary of the subjects of an answer in columns, as C sees it. See _column_subjects.pyx."""

from libc.stdint cimport uint8_t, uint16_t

cdef enum:
    DICTIONARY_MAX = 256                # subjects that one byte can number
    SLOTS = 1024                        # of their hash table

cdef struct Subject:                    # in its frame, which the answer keeps
    const uint8_t *at
    uint16_t length

cdef class Dictionary:
    cdef Subject known[DICTIONARY_MAX]
    cdef uint16_t slots[SLOTS]          # 1 + the number
    cdef uint8_t last                   # number of the subject asked for last
    cdef size_t count                   # 0: given up, or nothing was asked for
    cdef size_t text_bytes
    cdef bint is_given_up

    cdef uint8_t number(self, const uint8_t *at, uint16_t length) noexcept
    cdef void give_up(self) noexcept
    cdef size_t size(self) noexcept
    cdef uint8_t *write(self, uint8_t *out) noexcept
