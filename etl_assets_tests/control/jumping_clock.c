/* A wall clock that tests set: the real one plus the seconds in the file that CLOCK_OFFSET_FILE names.
 *
 * For LD_PRELOAD. Monotonic clocks are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_seconds(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    if (path == NULL) return 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[32];
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_seconds();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    if (!failed) {
        now->tv_sec = found.tv_sec;
        now->tv_usec = found.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *to) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (to != NULL) *to = found.tv_sec;
    return found.tv_sec;
}
