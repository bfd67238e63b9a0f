/* Loaded into a server of the tests: its wall clock is wrong by what the file WALL_FILE says, in seconds, now. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const volatile long long *wrong_by_s;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("WALL_FILE");
    int file = path == NULL ? -1 : open(path, O_RDONLY);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *wrong_by_s, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) {
        wrong_by_s = page;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*machine)(clockid_t, struct timespec *);
    if (machine == NULL) {
        machine = dlsym(RTLD_NEXT, "clock_gettime");
    }
    int outcome = machine(clock, now);
    if (clock == CLOCK_REALTIME && wrong_by_s != NULL) {
        now->tv_sec += *wrong_by_s;
    }
    return outcome;
}
