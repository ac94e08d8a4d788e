/*
 * Loaded into libvirtd where it may not raise limits, as in a container without CAP_SYS_RESOURCE, and where CPUs of a
 * synthetic host do not exist: raising RLIMIT_MEMLOCK, and pinning to such a CPU, then do nothing instead of failing.
 * A folder called shared-instances is on a file system that several hosts share, as libvirt sees it: on one of Ceph.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#undef setrlimit
#undef setrlimit64
#undef statfs
#undef statfs64

#define SHARED "/shared-instances/"
#define CEPH 0x00C36400 /* linux/magic.h, CEPH_SUPER_MAGIC */

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

int setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
    if (which == RLIMIT_MEMLOCK)
        return 0;
    return REAL("setrlimit", int (*)(__rlimit_resource_t, const struct rlimit *))(which, limit);
}

int setrlimit64(__rlimit_resource_t which, const struct rlimit64 *limit)
{
    if (which == RLIMIT_MEMLOCK)
        return 0;
    return REAL("setrlimit64", int (*)(__rlimit_resource_t, const struct rlimit64 *))(which, limit);
}

int prlimit(__pid_t pid, enum __rlimit_resource which, const struct rlimit *limit, struct rlimit *old)
{
    return REAL("prlimit", int (*)(__pid_t, enum __rlimit_resource, const struct rlimit *, struct rlimit *))(
        pid, which, which == RLIMIT_MEMLOCK ? 0 : limit, old);
}

int prlimit64(__pid_t pid, enum __rlimit_resource which, const struct rlimit64 *limit, struct rlimit64 *old)
{
    return REAL("prlimit64", int (*)(__pid_t, enum __rlimit_resource, const struct rlimit64 *, struct rlimit64 *))(
        pid, which, which == RLIMIT_MEMLOCK ? 0 : limit, old);
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    int result = REAL("sched_setaffinity", int (*)(pid_t, size_t, const cpu_set_t *))(pid, size, set);
    return result < 0 && errno == EINVAL ? 0 : result;
}

int statfs(const char *path, struct statfs *found)
{
    int result = REAL("statfs", int (*)(const char *, struct statfs *))(path, found);
    if (result == 0 && strstr(path, SHARED))
        found->f_type = CEPH;
    return result;
}

int statfs64(const char *path, struct statfs64 *found)
{
    int result = REAL("statfs64", int (*)(const char *, struct statfs64 *))(path, found);
    if (result == 0 && strstr(path, SHARED))
        found->f_type = CEPH;
    return result;
}
