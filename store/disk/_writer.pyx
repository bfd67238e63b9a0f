"""Threads without the GIL that carry out batches of file operations and report through an eventfd.

A Batch is a list of operations that are performed in order until one fails: writes, fsyncs, renames. The trio thread
fills and submits it; a writer thread performs it and makes the eventfd readable; `drain` returns the batch. The batch
keeps the buffers to be written alive; they are not copied. Types: _writer.pyi; used only by store/disk/io.py. A Python
thread pool is not used because a hop through it costs 50-150 us per batch and needs the GIL (measured, group commit).
"""

import errno
import logging
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EDQUOT, EINTR, EIO, ENOENT, ENOMEM, ENOSPC, errno as c_errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from posix.types cimport off_t

log_ = logging.getLogger(__name__)

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
    OP_WRITE_MADE = 8
    IOV_MAX = 1024          # the limit of Linux for one pwritev


cdef struct Op:
    int code
    int fd
    int64_t offset          # OP_WRITE
    int64_t size            # OP_ALLOCATE, OP_TRUNCATE; OP_RESERVE: the size that was allocated
    size_t iov_first        # OP_WRITE: its buffers in the batch's iov array; OP_RESERVE: the heads, one for each size
    size_t iov_count
    size_t size_first       # OP_RESERVE: its sizes in the batch's array of them
    const char *path        # OP_RENAME, OP_UNLINK
    const char *new_path
    void *make              # OP_WRITE_MADE: what is called for the bytes, kept alive by the batch


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
    Work *follower          # performed by the same thread right after this one, or not at all when this one fails
    Work *next


cdef int _write_all(const Op *op, iovec *iovs) noexcept nogil:
    """Write the buffers of one operation; short writes are continued."""
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
    """Allocate the first of the sizes for which the disk has space, and write its head at the start of the file."""
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
        if c_ftruncate(op.fd, 0) != 0:  # on failure, ext4 leaves a part allocated
            return c_errno
    return error


cdef Py_buffer *_made(void *make, int *error) noexcept with gil:
    """The bytes that a callback returns; NULL when it has failed."""
    cdef Py_buffer *view = <Py_buffer *> calloc(1, sizeof(Py_buffer))
    if view is NULL:
        error[0] = ENOMEM
        return NULL
    try:
        PyObject_GetBuffer((<object> make)(), view, PyBUF_SIMPLE)
    except BaseException as failure:
        log_.error("what was to be written could not be made", exc_info=failure)
        error[0] = ENOMEM if isinstance(failure, MemoryError) else EIO
        free(view)
        return NULL
    return view


cdef void _let_go(Py_buffer *view) noexcept with gil:
    PyBuffer_Release(view)
    free(view)


cdef int _write_made(const Op *op) noexcept nogil:
    """Write what a callback returns: the interpreter lock is held while that is made."""
    cdef Op whole = op[0]
    cdef iovec iov
    cdef int error = 0
    cdef Py_buffer *view = _made(op.make, &error)
    if view is NULL:
        return error
    iov.iov_base = view.buf
    iov.iov_len = view.len
    whole.iov_first = 0
    whole.iov_count = 1
    error = _write_all(&whole, &iov)
    _let_go(view)
    return error


cdef int _perform(Op *op, Work *work) noexcept nogil:
    """Perform one operation; 0 or errno. An fsync is never retried: after EIO the pages are marked clean (ATC'20)."""
    cdef int result
    if op.code == OP_WRITE:
        return _write_all(op, work.iovs)
    if op.code == OP_RESERVE:
        return _reserve(op, work.iovs, work.sizes)
    if op.code == OP_WRITE_MADE:
        return _write_made(op)
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
        if result and c_errno == ENOENT:
            return 0
    return 0 if result == 0 else c_errno


cdef void _run(Work *work) noexcept nogil:
    cdef size_t i
    for i in range(work.op_count):
        work.error = _perform(&work.ops[i], work)
        if work.error:
            work.failed_op = i
            return


cdef class Batch:
    """Operations to be performed in order. Filled in the trio thread; must not be used between submit and drain."""

    cdef Work work
    cdef list _kept         # objects whose memory the operations refer to
    cdef Py_buffer *_views
    cdef size_t _view_count
    cdef size_t _size_count
    cdef list _reservations  # (number of an OP_RESERVE, callback for its size)
    cdef bint _submitted
    cdef object __weakref__

    def __cinit__(self):
        self._kept = []
        self._reservations = None

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
        op.make = NULL
        self.work.op_count += 1
        return op

    cdef size_t _keep_buffers(self, buffers) except? 0:
        """Keep these buffers for an operation; returns the position of the first one in the array."""
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

    def write_made(self, int fd, make, int64_t offset):
        """Write what `make` returns, a buffer, from `offset`; it is called in the thread that performs the batch."""
        cdef Op *op = self._add(OP_WRITE_MADE, fd)
        self._kept.append(make)
        op.make = <void *> make
        op.offset = offset

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

    def reserve(self, int fd, choices, on_reserved):
        """Reserve the first of the sizes for which the disk has space, and write its head; see `report_reserved`."""
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
        if self._reservations is None:
            self._reservations = []
        self._reservations.append((self.work.op_count - 1, on_reserved))

    def report_reserved(self):
        """Call the callbacks of successful `reserve` operations, after the batch was performed, in the trio thread."""
        if self._reservations is None:
            return
        for number, on_reserved in self._reservations:
            if not self.work.error or <size_t> number < self.work.failed_op:
                on_reserved(self.work.ops[<size_t> number].size)

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
        """Remove a file. One that is gone already is no error."""
        cdef Op *op = self._add(OP_UNLINK, -1)
        self._kept.append(path)
        op.path = path

    def perform(self):
        """Perform the operations in this thread, without the GIL. Raises OSError."""
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
        name = ("write", "fdatasync", "fsync", "allocate", "truncate", "rename", "unlink", "allocate", "write")
        code = self.work.ops[self.work.failed_op].code
        return OSError(self.work.error, f"{name[code]}: {os.strerror(self.work.error)}")


cdef struct Shared:
    pthread_mutex_t mutex
    pthread_cond_t work_came
    Work *queue_head        # to be performed, first in first out
    Work *queue_tail
    Work *done_head         # done, to be drained
    Work *done_tail
    int event_fd
    int queued              # works in the queue
    int idle                # threads that wait for work, or are about to wait
    bint waking             # one of them was woken, or is about to look, and has not taken work yet
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


cdef void _wake_one(Shared *shared) noexcept nogil:
    """Wake a thread for queued work, unless one is on its way: it wakes the next. The caller holds the mutex.

    So a turn with a hundred batches pays for one wake-up, and the threads for the others.
    """
    if shared.queue_head is not NULL and shared.idle and not shared.waking:
        shared.waking = True
        pthread_cond_signal(&shared.work_came)


cdef Work *_take(Shared *shared) noexcept nogil:
    """Wait for the next work; NULL on stop. The caller holds the mutex, which is released while waiting."""
    cdef Work *work
    shared.idle += 1
    while shared.queue_head is NULL and not shared.stopping:
        pthread_cond_wait(&shared.work_came, &shared.mutex)
    shared.idle -= 1
    shared.waking = False
    work = shared.queue_head
    if work is not NULL:
        shared.queued -= 1
        shared.queue_head = work.next
        if shared.queue_head is NULL:
            shared.queue_tail = NULL
    _wake_one(shared)
    return work


cdef void *_thread_main(void *argument) noexcept nogil:
    """Perform work until stopped and the queue is empty."""
    cdef Shared *shared = <Shared *> argument
    cdef Work *work = NULL
    cdef uint64_t one = 1
    cdef bint was_empty
    pthread_mutex_lock(&shared.mutex)
    shared.idle -= 1  # `_start` counted this thread as idle
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

    A thread is started when a batch is submitted and no thread is idle: a kernel flushes a disk once for all waiting
    fsyncs, so a node with many busy logs needs many threads, and one with few logs has few (decision 45).
    """

    cdef Shared *_shared
    cdef pthread_t *_threads
    cdef int _most
    cdef int _count
    cdef dict _in_flight    # address of its Work -> Batch
    cdef list _gathered     # batches for `submit_gathered`; None: each is queued when it is submitted
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
        """Start a thread with all signals blocked, because signals belong to the main thread. Returns an errno.

        The caller holds the mutex; the new thread waits for it first.
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
        """Queue a work, and start a thread for it if none is idle. The caller holds the mutex."""
        if ahead:
            _push_ahead(&self._shared.queue_head, &self._shared.queue_tail, work)
        else:
            _push(&self._shared.queue_head, &self._shared.queue_tail, work)
        self._shared.queued += 1
        _wake_one(self._shared)
        if self._shared.queued > self._shared.idle and self._count < self._most:
            self._start()  # if that fails, the existing threads perform it later

    @property
    def count(self):
        """The number of running threads."""
        return self._count

    def submit(self, Batch batch, bint ahead=False):
        """Queue a batch, `ahead` of the waiting ones if requested. `drain` returns it exactly once."""
        assert not batch._submitted
        assert self._count and not self._shared.stopping
        batch._submitted = True
        batch.work.batch = <void *> batch
        self._in_flight[<uint64_t> &batch.work] = batch
        if self._gathered is not None and not ahead:
            self._gathered.append(batch)
            return
        pthread_mutex_lock(&self._shared.mutex)
        self._hand_over(&batch.work, ahead)
        pthread_mutex_unlock(&self._shared.mutex)

    def gather(self):
        """Keep what is submitted from now on until `submit_gathered`."""
        self._gathered = []

    def submit_gathered(self):
        """Queue it all at once: with many batches the mutex is taken by one thread or another all the time."""
        cdef Batch batch
        gathered, self._gathered = self._gathered, None
        pthread_mutex_lock(&self._shared.mutex)
        for batch in gathered:
            self._hand_over(&batch.work)
        pthread_mutex_unlock(&self._shared.mutex)

    def follow(self, Batch batch, Batch before):
        """Queue a batch to be performed right after `before`, which was submitted and not drained yet.

        The same thread performs both. If `before` fails, this batch fails too, without effect (decision 25).
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
        """The batches that were completed since the last call, in order of completion."""
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
        """The number of batches submitted and not yet drained."""
        return len(self._in_flight)

    def stop(self):
        """Perform the queued batches and end the threads. Completed batches can still be drained."""
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
        """Stop, and close the eventfd."""
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
