// Moves the clocks that a process reads, by what a file says, while it runs: for LD_PRELOAD.
//
// MOVED_CLOCK names a file of two int64: nanoseconds to add to the time of day and to monotonic
// clocks. With MOVED_TIMERS waits end by the moved clocks too: they look every few milliseconds.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t kSecond = 1000000000;
static const int64_t kLook = 3000000;  // ns
static const volatile int64_t* moved;
static int timers;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("MOVED_CLOCK");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* found = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (found == MAP_FAILED) return;
  moved = found;
  timers = getenv("MOVED_TIMERS") != NULL;
}

static int64_t raw(clockid_t clock) {
  struct timespec now;
  syscall(SYS_clock_gettime, clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

static int64_t added(clockid_t clock) {
  if (moved == NULL) return 0;
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return moved[0];
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
      return moved[1];
    default:
      return 0;
  }
}

static int64_t now_of(clockid_t clock) { return raw(clock) + added(clock); }

static int64_t ns_of(const struct timespec* time) { return time->tv_sec * kSecond + time->tv_nsec; }

static struct timespec time_of(int64_t ns) {
  const struct timespec time = {ns / kSecond, ns % kSecond};
  return time;
}

// How long to wait before the next look at a clock that is to reach `end`, in ns; 0 once it has.
static int64_t until(clockid_t clock, int64_t end) {
  const int64_t left = end - now_of(clock);
  if (left <= 0) return 0;
  return timers && left > kLook ? kLook : left;
}

static void* real(const char* name, const char* version) {
  void* found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

#define REAL(name, version)                                    \
  static __typeof__(&name) next;                               \
  if (next == NULL) next = (__typeof__(&name))real(#name, version)

// Clocks

int clock_gettime(clockid_t clock, struct timespec* time) {
  if (syscall(SYS_clock_gettime, clock, time) != 0) return -1;
  *time = time_of(ns_of(time) + added(clock));
  return 0;
}

time_t time(time_t* found) {
  const time_t now = now_of(CLOCK_REALTIME) / kSecond;
  if (found != NULL) *found = now;
  return now;
}

int gettimeofday(struct timeval* time, void* zone) {
  (void)zone;
  const int64_t now = now_of(CLOCK_REALTIME);
  time->tv_sec = now / kSecond;
  time->tv_usec = now % kSecond / 1000;
  return 0;
}

// Waits for so long

int poll(struct pollfd* files, nfds_t count, int milliseconds) {
  REAL(poll, NULL);
  if (!timers || milliseconds <= 0) return next(files, count, milliseconds);
  const int64_t end = now_of(CLOCK_MONOTONIC) + milliseconds * 1000000LL;
  for (;;) {
    const int64_t left = until(CLOCK_MONOTONIC, end);
    const int ready = next(files, count, (left + 999999) / 1000000);
    if (ready != 0 || left == 0) return ready;
  }
}

int epoll_wait(int epoll, struct epoll_event* events, int most, int milliseconds) {
  REAL(epoll_wait, NULL);
  if (!timers || milliseconds <= 0) return next(epoll, events, most, milliseconds);
  const int64_t end = now_of(CLOCK_MONOTONIC) + milliseconds * 1000000LL;
  for (;;) {
    const int64_t left = until(CLOCK_MONOTONIC, end);
    const int ready = next(epoll, events, most, (left + 999999) / 1000000);
    if (ready != 0 || left == 0) return ready;
  }
}

// Waits until a time

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* time,
                    struct timespec* left_over) {
  REAL(clock_nanosleep, NULL);
  if (moved == NULL) return next(clock, flags, time, left_over);
  const int64_t end = flags & TIMER_ABSTIME ? ns_of(time) : now_of(clock) + ns_of(time);
  for (;;) {
    const int64_t left = until(clock, end);
    if (left == 0) return 0;
    const struct timespec wait = time_of(left);
    const int error = next(CLOCK_MONOTONIC, 0, &wait, left_over);
    if (error != 0) return error;
  }
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const struct timespec* time) {
  REAL(sem_clockwait, NULL);
  for (;;) {
    const int64_t left = until(clock, ns_of(time));
    const struct timespec end = time_of(raw(CLOCK_MONOTONIC) + left);
    if (next(semaphore, CLOCK_MONOTONIC, &end) == 0) return 0;
    if (errno != ETIMEDOUT || left == 0) return -1;
  }
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* time) {
  REAL(pthread_cond_clockwait, NULL);
  for (;;) {
    const int64_t left = until(clock, ns_of(time));
    const struct timespec end = time_of(raw(clock) + left);
    const int error = next(condition, mutex, clock, &end);
    if (error != ETIMEDOUT || left == 0) return error;
  }
}

// A condition knows its clock, and does not tell: the one whose time is nearer.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const struct timespec* time) {
  REAL(pthread_cond_timedwait, "GLIBC_2.3.2");
  const int64_t day = llabs(ns_of(time) - now_of(CLOCK_REALTIME));
  const int64_t ticks = llabs(ns_of(time) - now_of(CLOCK_MONOTONIC));
  const clockid_t clock = day < ticks ? CLOCK_REALTIME : CLOCK_MONOTONIC;
  for (;;) {
    const int64_t left = until(clock, ns_of(time));
    const struct timespec end = time_of(raw(clock) + left);
    const int error = next(condition, mutex, &end);
    if (error != ETIMEDOUT || left == 0) return error;
  }
}
