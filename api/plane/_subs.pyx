"""Places for subscriptions, many in a piece of memory, each at the beginning of a line of the processor's cache."""

from libc.stdint cimport uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from jetraft.api.plane._types cimport LINE_BYTES, SID_NEAR, plane_t, sid_of, sub_t
from jetraft.api.plane._writer cimport push_ptr

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** memory, size_t alignment, size_t size)

cdef extern from *:
    """
    #ifdef __SANITIZE_ADDRESS__
    #define JR_SLABS 0      /* pieces of their own, so that a use after the end is seen */
    #else
    #define JR_SLABS 1
    #endif
    """
    bint JR_SLABS

cdef enum:
    SLAB_SUBS = 64              # subscriptions in one piece of memory, which stays theirs


cdef bint add_slab(plane_t* plane) noexcept nogil:
    """Places for more subscriptions, each at the beginning of a line of the processor's cache; False: no memory."""
    cdef sub_t* slab = NULL
    cdef int i, count = SLAB_SUBS if JR_SLABS else 1
    if posix_memalign(<void**>&slab, LINE_BYTES, count * sizeof(sub_t)) != 0:
        return False
    if JR_SLABS:
        push_ptr(&plane.sub_slabs, slab)
    for i in range(count - 1, -1, -1):
        slab[i].prev_of_owner = plane.free_subs
        plane.free_subs = &slab[i]
    return True


cdef sub_t* sub_new(plane_t* plane, uint8_t kind, const char* sid, Py_ssize_t n) noexcept nogil:
    """A subscription with this id; NULL when there is no memory."""
    cdef sub_t* sub
    cdef char* far
    if plane.free_subs == NULL and not add_slab(plane):
        return NULL
    sub = plane.free_subs
    plane.free_subs = sub.prev_of_owner
    memset(sub, 0, sizeof(sub_t))
    sub.kind = kind
    sub.weight = 1
    sub.sid_len = <uint16_t>n
    if n > SID_NEAR:
        far = <char*>malloc(n)
        memcpy(far, sid, n)
        memcpy(sub.near, &far, sizeof(far))
    elif n:
        memcpy(sub.near, sid, n)
    return sub


cdef void sub_free(plane_t* plane, sub_t* sub) noexcept nogil:
    """Give the place back, for the next subscription."""
    if sub.sid_len > SID_NEAR:
        free(<void*>sid_of(sub))
    if JR_SLABS:
        sub.prev_of_owner = plane.free_subs
        plane.free_subs = sub
    else:
        free(sub)
