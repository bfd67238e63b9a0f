"""Threads without the GIL that carry out batches of file operations and report through an eventfd.

A Batch is a list of operations that are done in order until one fails: writes, fsyncs, renames. The trio thread fills
it, submits it and goes on; a writer thread does it; the eventfd becomes readable; `drain` hands the batch back. The
bytes to be written are kept alive by the batch, never copied. Typed face: _writer.pyi; used only by store/io.py.
Why threads of our own: a hop through a thread pool costs 50-150 us per batch and needs the GIL (measured, group commit).
"""

import errno
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EDQUOT, EINTR, EIO, ENOSPC, errno as c_errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from posix.types cimport off_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *, void *, void *(*)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t, void **)
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_cond_broadcast(pthread_cond_t *)
    int pthread_cond_destroy(pthread_cond_t *)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *)
    int pthread_sigmask(int, const sigset_t *, sigset_t *)
    int SIG_SETMASK

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec *iov, int count, off_t offset)

cdef extern from "<unistd.h>" nogil:
    int c_fsync "fsync"(int fd)
    int c_fdatasync "fdatasync"(int fd)
    int c_ftruncate "ftruncate"(int fd, off_t size)
    int c_unlink "unlink"(const char *path)
    ssize_t c_write "write"(int fd, const void *data, size_t size)

cdef extern from "<stdio.h>" nogil:
    int c_rename "rename"(const char *old, const char *new)

cdef extern from "<fcntl.h>" nogil:
    int c_posix_fallocate "posix_fallocate"(int fd, off_t offset, off_t size)

cdef enum:
    OP_WRITE = 0
    OP_SYNC_DATA = 1
    OP_SYNC = 2
    OP_ALLOCATE = 3
    OP_TRUNCATE = 4
    OP_RENAME = 5
    OP_UNLINK = 6
    OP_RESERVE = 7
    IOV_MAX = 1024          # what Linux takes in one pwritev


cdef struct Op:
    int code
    int fd
    int64_t offset          # OP_WRITE
    int64_t size            # OP_ALLOCATE, OP_TRUNCATE; OP_RESERVE: what it has taken
    size_t iov_first        # OP_WRITE: its buffers in the batch's iov array; OP_RESERVE: the heads, one for each size
    size_t iov_count
    size_t size_first       # OP_RESERVE: its sizes in the batch's array of them
    const char *path        # OP_RENAME, OP_UNLINK
    const char *new_path


cdef struct Work:
    Op *ops
    size_t op_count
    iovec *iovs
    size_t iov_count
    int64_t *sizes
    int error               # errno of the operation that failed, 0 when none did
    size_t failed_op
    void *batch             # the Batch, kept alive by Writer._in_flight
    bint finished
    Work *follower          # done by the same thread right after this one, or not at all when this one fails
    Work *next


cdef int _write_all(const Op *op, iovec *iovs) noexcept nogil:
    """Write the buffers of one operation; short writes go on where they stopped."""
    cdef iovec *iov = iovs + op.iov_first
    cdef size_t left = op.iov_count
    cdef int64_t offset = op.offset
    cdef ssize_t done
    while left:
        done = pwritev(op.fd, iov, <int> min(left, <size_t> IOV_MAX), offset)
        if done < 0:
            if c_errno == EINTR:
                continue
            return c_errno
        if done == 0 and iov.iov_len:
            return EIO
        offset += done
        while left and <size_t> done >= iov.iov_len:
            done -= <ssize_t> iov.iov_len
            iov += 1
            left -= 1
        if left:
            iov.iov_base = <char *> iov.iov_base + done
            iov.iov_len -= <size_t> done
    return 0


cdef int _reserve(Op *op, iovec *iovs, const int64_t *sizes) noexcept nogil:
    """Allocate the first of the sizes for which there is room, and write the head that says so at the file's start."""
    cdef Op head = op[0]
    cdef size_t i
    cdef int error = ENOSPC
    for i in range(op.iov_count):
        error = c_posix_fallocate(op.fd, 0, sizes[op.size_first + i])
        while error == EINTR:
            error = c_posix_fallocate(op.fd, 0, sizes[op.size_first + i])
        if error == 0:
            op.size = sizes[op.size_first + i]
            head.offset = 0
            head.iov_first += i
            head.iov_count = 1
            return _write_all(&head, iovs)
        if error != ENOSPC and error != EDQUOT:
            return error
        if c_ftruncate(op.fd, 0) != 0:  # ext4 keeps what it could allocate
            return c_errno
    return error


cdef int _perform(Op *op, Work *work) noexcept nogil:
    """Do one operation; 0 or errno. An fsync is never repeated: after EIO the pages count as clean (ATC'20)."""
    cdef int result
    if op.code == OP_WRITE:
        return _write_all(op, work.iovs)
    if op.code == OP_RESERVE:
        return _reserve(op, work.iovs, work.sizes)
    if op.code == OP_ALLOCATE:
        return c_posix_fallocate(op.fd, 0, op.size)
    if op.code == OP_SYNC_DATA:
        result = c_fdatasync(op.fd)
    elif op.code == OP_SYNC:
        result = c_fsync(op.fd)
    elif op.code == OP_TRUNCATE:
        result = c_ftruncate(op.fd, op.size)
    elif op.code == OP_RENAME:
        result = c_rename(op.path, op.new_path)
    else:
        result = c_unlink(op.path)
    return 0 if result == 0 else c_errno


cdef void _run(Work *work) noexcept nogil:
    cdef size_t i
    for i in range(work.op_count):
        work.error = _perform(&work.ops[i], work)
        if work.error:
            work.failed_op = i
            return


cdef class Batch:
    """Operations to be done in order. Filled in the trio thread; not to be touched between submit and drain."""

    cdef Work work
    cdef list _kept         # objects whose memory the operations point into
    cdef Py_buffer *_views
    cdef size_t _view_count
    cdef size_t _size_count
    cdef list _takers       # (number of an OP_RESERVE, who is told what it has taken)
    cdef bint _submitted
    cdef object __weakref__

    def __cinit__(self):
        self._kept = []
        self._takers = None

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._view_count):
            PyBuffer_Release(&self._views[i])
        free(self._views)
        free(self.work.ops)
        free(self.work.iovs)
        free(self.work.sizes)

    def __len__(self):
        return self.work.op_count

    cdef Op *_add(self, int code, int fd) except NULL:
        assert not self._submitted
        cdef Op *ops = <Op *> realloc(self.work.ops, (self.work.op_count + 1) * sizeof(Op))
        if ops is NULL:
            raise MemoryError
        self.work.ops = ops
        cdef Op *op = &ops[self.work.op_count]
        op.code = code
        op.fd = fd
        op.offset = op.size = 0
        op.iov_first = op.iov_count = 0
        op.path = op.new_path = NULL
        self.work.op_count += 1
        return op

    cdef size_t _keep_buffers(self, buffers) except? 0:
        """Hold these buffers for an operation; returns where they begin in the array of them."""
        cdef size_t wanted = self._view_count + len(buffers)
        cdef Py_buffer *views = <Py_buffer *> realloc(self._views, max(wanted, <size_t> 1) * sizeof(Py_buffer))
        if views is NULL:
            raise MemoryError
        self._views = views
        cdef iovec *iovs = <iovec *> realloc(self.work.iovs, max(wanted, <size_t> 1) * sizeof(iovec))
        if iovs is NULL:
            raise MemoryError
        self.work.iovs = iovs
        cdef size_t first = self._view_count
        for buffer in buffers:
            PyObject_GetBuffer(buffer, &self._views[self._view_count], PyBUF_SIMPLE)
            iovs[self._view_count].iov_base = self._views[self._view_count].buf
            iovs[self._view_count].iov_len = self._views[self._view_count].len
            self._view_count += 1
        return first

    def write(self, int fd, buffers, int64_t offset):
        """Write `buffers` one after the other from `offset`."""
        cdef size_t first = self._keep_buffers(buffers)
        cdef Op *op = self._add(OP_WRITE, fd)
        op.offset = offset
        op.iov_first = first
        op.iov_count = self._view_count - first

    def sync_data(self, int fd):
        """fdatasync."""
        self._add(OP_SYNC_DATA, fd)

    def sync(self, int fd):
        """fsync, also of a directory."""
        self._add(OP_SYNC, fd)

    def allocate(self, int fd, int64_t size):
        """Reserve the first `size` bytes of a file on disk; they read as zeros."""
        cdef Op *op = self._add(OP_ALLOCATE, fd)
        op.size = size

    def reserve(self, int fd, choices, took):
        """Reserve the first of the sizes for which there is room and write its head; `tell` says which."""
        cdef size_t wanted = self._size_count + len(choices)
        cdef int64_t *sizes = <int64_t *> realloc(self.work.sizes, max(wanted, <size_t> 1) * sizeof(int64_t))
        if sizes is NULL:
            raise MemoryError
        self.work.sizes = sizes
        cdef size_t first = self._keep_buffers([head for _, head in choices])
        cdef Op *op = self._add(OP_RESERVE, fd)
        op.iov_first = first
        op.iov_count = self._view_count - first
        op.size_first = self._size_count
        for size, _ in choices:
            sizes[self._size_count] = size
            self._size_count += 1
        if self._takers is None:
            self._takers = []
        self._takers.append((self.work.op_count - 1, took))

    def tell(self):
        """After the batch was done: tell those who asked for room how much they have. Belongs to the trio thread."""
        if self._takers is None:
            return
        for number, took in self._takers:
            if not self.work.error or <size_t> number < self.work.failed_op:
                took(self.work.ops[<size_t> number].size)

    def truncate(self, int fd, int64_t size):
        """Cut or extend a file to `size` bytes."""
        cdef Op *op = self._add(OP_TRUNCATE, fd)
        op.size = size

    def rename(self, bytes old, bytes new):
        """Rename a file over another."""
        cdef Op *op = self._add(OP_RENAME, -1)
        self._kept.append((old, new))
        op.path = old
        op.new_path = new

    def unlink(self, bytes path):
        """Remove a file."""
        cdef Op *op = self._add(OP_UNLINK, -1)
        self._kept.append(path)
        op.path = path

    def perform(self):
        """Do the operations in this thread, without the GIL. Raises OSError."""
        assert not self._submitted
        self._submitted = True
        with nogil:
            _run(&self.work)
        if self.work.error:
            raise self.error

    @property
    def error(self):
        """The OSError that stopped the batch, or None."""
        if self.work.error == 0:
            return None
        name = ("write", "fdatasync", "fsync", "allocate", "truncate", "rename", "unlink", "allocate")
        code = self.work.ops[self.work.failed_op].code
        return OSError(self.work.error, f"{name[code]}: {os.strerror(self.work.error)}")


cdef struct Shared:
    pthread_mutex_t mutex
    pthread_cond_t work_came
    Work *queue_head        # to be done, first in first out
    Work *queue_tail
    Work *done_head         # done, to be drained
    Work *done_tail
    int event_fd
    int queued              # works in the queue
    int idle                # threads that wait for work, or are about to
    bint stopping


cdef void _push(Work **head, Work **tail, Work *work) noexcept nogil:
    work.next = NULL
    if tail[0] is NULL:
        head[0] = work
    else:
        tail[0].next = work
    tail[0] = work


cdef void _push_ahead(Work **head, Work **tail, Work *work) noexcept nogil:
    work.next = head[0]
    head[0] = work
    if tail[0] is NULL:
        tail[0] = work


cdef Work *_take(Shared *shared) noexcept nogil:
    """Wait for the next work; NULL when told to stop. The mutex is held, and given up meanwhile."""
    cdef Work *work
    shared.idle += 1
    while shared.queue_head is NULL and not shared.stopping:
        pthread_cond_wait(&shared.work_came, &shared.mutex)
    shared.idle -= 1
    work = shared.queue_head
    if work is not NULL:
        shared.queued -= 1
        shared.queue_head = work.next
        if shared.queue_head is NULL:
            shared.queue_tail = NULL
    return work


cdef void *_thread_main(void *argument) noexcept nogil:
    """Take work until told to stop and none is left."""
    cdef Shared *shared = <Shared *> argument
    cdef Work *work = NULL
    cdef uint64_t one = 1
    cdef bint was_empty
    pthread_mutex_lock(&shared.mutex)
    shared.idle -= 1  # `_start` has counted it
    while True:
        if work is NULL:
            work = _take(shared)
        if work is NULL:
            break
        pthread_mutex_unlock(&shared.mutex)
        if not work.error:
            _run(work)
        pthread_mutex_lock(&shared.mutex)
        was_empty = shared.done_head is NULL
        _push(&shared.done_head, &shared.done_tail, work)
        if was_empty:
            c_write(shared.event_fd, &one, 8)
        work.finished = True
        if work.follower is not NULL:
            work.follower.error = work.error
        work = work.follower
    pthread_mutex_unlock(&shared.mutex)
    return NULL


cdef class WriterThreads:
    """Threads over one queue, `most` at most. `event_fd` is readable while finished batches wait for `drain`.

    A thread is started when a batch comes and none is idle: a kernel flushes a disk once for all the fsyncs that wait for
    it, so a node with many busy logs wants many at once, and one with few has few threads.
    """

    cdef Shared *_shared
    cdef pthread_t *_threads
    cdef int _most
    cdef int _count
    cdef dict _in_flight    # address of its Work -> Batch
    cdef readonly int event_fd

    def __cinit__(self, int most):
        assert most >= 1
        self._most = most
        self._in_flight = {}
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._shared = <Shared *> calloc(1, sizeof(Shared))
        self._threads = <pthread_t *> calloc(most, sizeof(pthread_t))
        if self._shared is NULL or self._threads is NULL:
            raise MemoryError
        self._shared.event_fd = self.event_fd
        pthread_mutex_init(&self._shared.mutex, NULL)
        pthread_cond_init(&self._shared.work_came, NULL)
        pthread_mutex_lock(&self._shared.mutex)
        cdef int error = self._start()
        pthread_mutex_unlock(&self._shared.mutex)
        if error:
            raise OSError(error, "cannot start a writer thread")

    cdef int _start(self) noexcept:
        """Start one more thread, with every signal blocked: signals belong to the main thread. Returns an errno.

        The mutex is held; the new thread waits for it before it does anything.
        """
        cdef sigset_t every
        cdef sigset_t before
        cdef int error
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        error = pthread_create(&self._threads[self._count], NULL, _thread_main, self._shared)
        if not error:
            self._count += 1
            self._shared.idle += 1
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        return error

    cdef void _hand_over(self, Work *work, bint ahead=False) noexcept:
        """Queue a work, for a thread of its own if it may have one. The mutex is held."""
        if ahead:
            _push_ahead(&self._shared.queue_head, &self._shared.queue_tail, work)
        else:
            _push(&self._shared.queue_head, &self._shared.queue_tail, work)
        self._shared.queued += 1
        pthread_cond_signal(&self._shared.work_came)
        if self._shared.queued > self._shared.idle and self._count < self._most:
            self._start()  # without another thread the ones that there are take it later

    @property
    def count(self):
        """Threads that run."""
        return self._count

    def submit(self, Batch batch, bint ahead=False):
        """Queue a batch, `ahead` of those that wait. It comes back from `drain` exactly once."""
        assert not batch._submitted
        assert self._count and not self._shared.stopping
        batch._submitted = True
        batch.work.batch = <void *> batch
        self._in_flight[<uint64_t> &batch.work] = batch
        pthread_mutex_lock(&self._shared.mutex)
        self._hand_over(&batch.work, ahead)
        pthread_mutex_unlock(&self._shared.mutex)

    def follow(self, Batch batch, Batch before):
        """Queue a batch to be done right after one that was submitted and not drained yet.

        The thread that is done with `before` goes on with it. When that one fails, this one fails too and does nothing.
        """
        cdef Work *work = &batch.work
        assert not batch._submitted and before._submitted
        assert before.work.follower is NULL
        assert self._count and not self._shared.stopping
        batch._submitted = True
        work.batch = <void *> batch
        self._in_flight[<uint64_t> work] = batch
        pthread_mutex_lock(&self._shared.mutex)
        if before.work.finished:
            work.error = before.work.error
            self._hand_over(work)
        else:
            before.work.follower = work
        pthread_mutex_unlock(&self._shared.mutex)

    def drain(self):
        """The batches that were finished since the last call, in the order in which they finished."""
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            pass
        pthread_mutex_lock(&self._shared.mutex)
        cdef Work *work = self._shared.done_head
        self._shared.done_head = self._shared.done_tail = NULL
        pthread_mutex_unlock(&self._shared.mutex)
        batches = []
        while work is not NULL:
            batches.append(self._in_flight.pop(<uint64_t> work))
            work = work.next
        return batches

    @property
    def in_flight(self):
        """Batches submitted and not yet drained."""
        return len(self._in_flight)

    def stop(self):
        """Do what is queued, end the threads, and return. What was finished can still be drained."""
        cdef int i
        if self._count == 0:
            return
        with nogil:
            pthread_mutex_lock(&self._shared.mutex)
            self._shared.stopping = True
            pthread_cond_broadcast(&self._shared.work_came)
            pthread_mutex_unlock(&self._shared.mutex)
            for i in range(self._count):
                pthread_join(self._threads[i], NULL)
        self._count = 0

    def close(self):
        """Stop, and give the eventfd back."""
        self.stop()
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = -1

    def __dealloc__(self):
        if self._shared is not NULL:
            self.stop()
            pthread_cond_destroy(&self._shared.work_came)
            pthread_mutex_destroy(&self._shared.mutex)
        free(self._shared)
        free(self._threads)
