"""Handshakes in threads without the GIL: a signature or a chain of certificates costs 0.1 to 3 ms, a turn has not so much.

The trio thread submits a connection whose socket is ready; a thread takes one step of its handshake, as far as the bytes
that are there go, and gives it back through an eventfd. In between the connection is the thread's alone (`tls_t.busy`).
The threads run at a lower priority than the turn, so a flood of handshakes takes the time that is left over.
"""

import os

from libc.errno cimport EAGAIN, ENOMEM
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from jetraft.api.tls._openssl cimport (
    SSL,
    SSL_ERROR_WANT_READ,
    ERR_clear_error,
    ERR_peek_error,
    SSL_do_handshake,
    SSL_get_error,
)
from jetraft.api.tls._records cimport tls_flush, tls_free, tls_prepare
from jetraft.api.tls._state cimport STEP_DONE, STEP_FAILED, STEP_READ, STEP_WRITE, tls_t, tls_unsent

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

cdef extern from "<sys/resource.h>" nogil:
    int setpriority(int which, int who, int priority)
    int PRIO_PROCESS

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_write "write"(int fd, const void* data, size_t n)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t n, int flags)
    int MSG_DONTWAIT

cdef extern from "<openssl/crypto.h>" nogil:
    void OPENSSL_thread_stop()

cdef enum:
    THREADS_MAX = 4
    NICE = 5            # a third of the turn's share of a processor that both want
    TAKEN_PER_TURN = 16 # each costs Python about 0.1 ms: to be logged, admitted, or closed

cdef struct pool_t:
    pthread_mutex_t mutex
    pthread_cond_t came
    tls_t* queue        # first in, first out
    tls_t* queue_end
    tls_t* done
    tls_t* done_end
    int event_fd
    bint stopping
    uint64_t steps
    uint64_t waiting
    pthread_t threads[THREADS_MAX]
    int count


cdef void step(tls_t* tls) noexcept nogil:
    """Go on with a handshake as far as what is there allows. The result is `tls.step`."""
    cdef int error, result
    cdef char rest[16384]
    if tls_unsent(tls):
        error = tls_flush(tls)
        if error:
            tls.error = error
            tls.step = STEP_WRITE if error == EAGAIN else STEP_FAILED
            return
    if tls.ssl == NULL and not tls_prepare(tls):
        tls.error = ENOMEM
        tls.step = STEP_FAILED
        return
    ERR_clear_error()
    result = SSL_do_handshake(<SSL*>tls.ssl)
    if result == 1:
        tls.step = STEP_DONE
    elif SSL_get_error(<SSL*>tls.ssl, result) == SSL_ERROR_WANT_READ and not tls.eof and not tls.error:
        tls.step = STEP_READ
    else:
        tls.step = STEP_FAILED
        tls.reason = ERR_peek_error()
        tls.broken = 1
    ERR_clear_error()
    if tls.step == STEP_FAILED and tls.error == 0:
        c_recv(tls.fd, rest, sizeof(rest), MSG_DONTWAIT)    # closing on unread bytes would take back what was sent
    # An alert is for who speaks TLS: what else has come here gets no answer, as from crypto/tls of Go.
    if tls_unsent(tls) and not (tls.step == STEP_FAILED and tls.first not in (0x15, 0x16)):
        error = tls_flush(tls)
        if error == EAGAIN and tls.step == STEP_READ:
            tls.step = STEP_WRITE
        elif error and error != EAGAIN and tls.step != STEP_FAILED:
            tls.error = error
            tls.step = STEP_FAILED


cdef void* work(void* arg) noexcept nogil:
    """One thread: step after step until the pool stops."""
    cdef pool_t* pool = <pool_t*>arg
    cdef tls_t* tls
    cdef uint64_t one = 1
    setpriority(PRIO_PROCESS, 0, NICE)      # of this thread alone, on Linux
    pthread_mutex_lock(&pool.mutex)
    while True:
        while pool.queue == NULL and not pool.stopping:
            pthread_cond_wait(&pool.came, &pool.mutex)
        if pool.stopping:
            break
        tls = pool.queue
        pool.queue = tls.next
        if pool.queue == NULL:
            pool.queue_end = NULL
        pool.waiting -= 1
        pthread_mutex_unlock(&pool.mutex)
        step(tls)
        pthread_mutex_lock(&pool.mutex)
        pool.steps += 1
        tls.next = NULL
        if pool.done == NULL:
            pool.done = tls
            c_write(pool.event_fd, &one, 8)
        else:
            pool.done_end.next = tls
        pool.done_end = tls
    pthread_mutex_unlock(&pool.mutex)
    OPENSSL_thread_stop()
    return NULL


cdef void submit(tls_t* tls) noexcept nogil:
    """Let a thread take the next step of a handshake. The connection comes back from `take` once."""
    cdef pool_t* pool = <pool_t*>tls.pool
    tls.busy = 1
    tls.next = NULL
    pthread_mutex_lock(&pool.mutex)
    if pool.queue == NULL:
        pool.queue = tls
    else:
        pool.queue_end.next = tls
    pool.queue_end = tls
    pool.waiting += 1
    pthread_cond_signal(&pool.came)
    pthread_mutex_unlock(&pool.mutex)


cdef void free_all(tls_t* tls) noexcept:
    """Close what is not taken any more."""
    cdef tls_t* following
    while tls != NULL:
        following = tls.next
        if tls.orphan:
            c_close(tls.fd)
            tls_free(tls)
        else:
            tls.busy = 0        # the plane still has it, and frees it
        tls = following


cdef class HandshakePool:
    """Threads, the connections that wait for one, and those that come back. `event_fd` is readable when some have."""

    def __cinit__(self, int threads):
        cdef pool_t* pool = <pool_t*>calloc(1, sizeof(pool_t))
        cdef sigset_t every, before
        if pool == NULL:
            raise MemoryError
        self.pool = pool
        self.event_fd = pool.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        pthread_mutex_init(&pool.mutex, NULL)
        pthread_cond_init(&pool.came, NULL)
        sigfillset(&every)      # signals belong to the main thread
        pthread_sigmask(SIG_SETMASK, &every, &before)
        while pool.count < min(threads, THREADS_MAX):
            if pthread_create(&pool.threads[pool.count], NULL, work, pool) != 0:
                break
            pool.count += 1
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if pool.count == 0:
            raise OSError("cannot start a thread for TLS handshakes")

    cdef tls_t* take(self) noexcept:
        """Some connections whose step is done, chained by `next`, each `busy` until the caller says otherwise.

        At most TAKEN_PER_TURN, so that a flood leaves room for those who are served; the others make the next turn.
        """
        cdef pool_t* pool = <pool_t*>self.pool
        cdef tls_t* done
        cdef tls_t* last
        cdef uint64_t one = 1
        cdef int taken = 1
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            pass
        pthread_mutex_lock(&pool.mutex)
        done = last = pool.done
        while last != NULL and last.next != NULL and taken < TAKEN_PER_TURN:
            last = last.next
            taken += 1
        if last != NULL:
            pool.done = last.next
            last.next = NULL
        if pool.done == NULL:
            pool.done_end = NULL
        else:
            c_write(pool.event_fd, &one, 8)
        pthread_mutex_unlock(&pool.mutex)
        return done

    @property
    def threads(self):
        """How many run."""
        return (<pool_t*>self.pool).count

    def statistics(self):
        """Steps taken since the start, and connections that wait for one."""
        cdef pool_t* pool = <pool_t*>self.pool
        return {"steps": pool.steps, "waiting": pool.waiting}

    def stop(self):
        """End the threads after the steps that they are at; what waited is given up."""
        cdef pool_t* pool = <pool_t*>self.pool
        cdef int i
        if pool.count == 0:
            return
        with nogil:
            pthread_mutex_lock(&pool.mutex)
            pool.stopping = True
            pthread_cond_broadcast(&pool.came)
            pthread_mutex_unlock(&pool.mutex)
            for i in range(pool.count):
                pthread_join(pool.threads[i], NULL)
        pool.count = 0
        free_all(pool.queue)
        free_all(pool.done)
        pool.queue = pool.done = NULL

    def __dealloc__(self):
        cdef pool_t* pool = <pool_t*>self.pool
        if pool == NULL:
            return
        self.stop()
        if self.event_fd >= 0:
            os.close(self.event_fd)
        pthread_mutex_destroy(&pool.mutex)
        pthread_cond_destroy(&pool.came)
        free(pool)
