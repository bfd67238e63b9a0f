/* Loaded into a server of the tests: while the file SLOW_DISK_FILE exists, an fdatasync takes more than a second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int file)
{
    static int (*machine)(int);
    const char *path = getenv("SLOW_DISK_FILE");
    if (machine == NULL) {
        machine = dlsym(RTLD_NEXT, "fdatasync");
    }
    if (path != NULL && access(path, F_OK) == 0) {
        struct timespec pause = {.tv_sec = 1, .tv_nsec = 50000000};
        nanosleep(&pause, NULL);
    }
    return machine(file);
}
