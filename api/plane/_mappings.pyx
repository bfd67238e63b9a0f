"""Subject mappings: what is published in an account on one subject goes to another, or to one of several by weight.

A message is mapped once in an account, before its receivers are looked up; the first mapping whose source matches counts.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jetraft.api.plane._transforms cimport covers, transform_free, transform_new, transform_subject
from jetraft.api.plane._types cimport acct_t, mapping_t, choice_t, msg_t, next_random, plane_t


cdef mapping_t* mapping_new(bytes source, choices) except NULL:
    """A mapping to pairs of a weight in percent and a Transform. Raises MemoryError."""
    cdef mapping_t* mapping = <mapping_t*>calloc(1, sizeof(mapping_t))
    cdef uint32_t below = 0
    if mapping == NULL:
        raise MemoryError
    try:
        mapping.source_len = <uint16_t>PyBytes_GET_SIZE(source)
        mapping.source = <char*>malloc(mapping.source_len)
        mapping.choices = <choice_t*>calloc(max(len(choices), 1), sizeof(choice_t))
        if mapping.source == NULL or mapping.choices == NULL:
            raise MemoryError
        memcpy(mapping.source, PyBytes_AS_STRING(source), mapping.source_len)
        for weight, transform in choices:
            below += weight
            mapping.choices[mapping.choice_count].to = transform_new(transform)
            mapping.choices[mapping.choice_count].below = below
            mapping.choice_count += 1
    except BaseException:
        mapping_free(mapping)
        raise
    return mapping


cdef void mapping_free(mapping_t* mapping) noexcept nogil:
    cdef uint16_t i
    for i in range(mapping.choice_count):
        transform_free(mapping.choices[i].to)
    free(mapping.choices)
    free(mapping.source)
    free(mapping)


cdef Py_ssize_t map_subject(plane_t* plane, acct_t* acct, const char* s, Py_ssize_t n, char* out) noexcept nogil:
    """Write what a subject is mapped to in an account, SUBJECT_ROOM bytes at most.

    Returns its length; 0: the message is lost; -1: no mapping is for the subject.
    """
    cdef mapping_t* mapping = acct.mappings
    cdef uint32_t drawn = 0
    cdef uint16_t i
    while mapping != NULL and not covers(mapping.source, mapping.source_len, s, n):
        mapping = mapping.next
    if mapping == NULL:
        return -1
    if mapping.choice_count != 1 or mapping.choices[0].below < 100:
        drawn = <uint32_t>(next_random(plane) >> 32) % 100
    for i in range(mapping.choice_count):
        if drawn < mapping.choices[i].below:
            return transform_subject(plane, mapping.choices[i].to, s, n, out)
    return 0


cdef bint map_published(plane_t* plane, acct_t* acct, msg_t* msg) noexcept nogil:
    """Give a message that enters an account with mappings the subject that its own is mapped to; False: it has none.

    The text is good until the next message. The subject of one that is lost is empty.
    """
    cdef Py_ssize_t n = map_subject(plane, acct, msg.subject, msg.subject_len, plane.mapped)
    if n < 0:
        return False
    msg.subject = msg.shown = plane.mapped
    msg.subject_len = msg.shown_len = <uint16_t>n
    return True
