"""Messages whose headers ask for a trace: a rare path beside that of all others."""

from jetraft.api.plane._types cimport plane_t

cdef void serve_traces(plane_t* plane) noexcept
