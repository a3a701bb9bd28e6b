/* cpu.c: how many CPUs this process may use (see cpu.h).
 *
 * The quota is the least over the process's cgroup and every group above it that can be seen. Where
 * a group lies comes from /proc/self/cgroup (which group), and /proc/self/mountinfo (where that
 * hierarchy is mounted, and which of its folders is the mount's root: a container sees only its
 * own part). */
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/cpu.h"

/* One of "a,b,c" in `list` is `word`. */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == 0 || p[n] == ','))
            return true;
    return false;
}

/* mountinfo writes space, tab, newline and backslash as octal. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

/* The group of this process in the v1 hierarchy of the cpu controller, or in v2; to be freed. */
static char *own_group(const char *root, bool v2)
{
    char *name = mem_printf("%s/proc/self/cgroup", root), *line = NULL, *found = NULL;
    size_t capacity = 0;
    FILE *file = fopen(name, "re");
    mem_free(name);
    while (file && !found && getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *controllers++ = 0;
        *group++ = 0;
        if (v2 ? strcmp(line, "0") == 0 && *controllers == 0 : listed(controllers, "cpu"))
            found = mem_strdup(group);
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* Where that hierarchy is mounted, and the group at the mount's root; both to be freed. */
static bool find_mount(const char *root, bool v2, char **mount, char **mount_root)
{
    char *name = mem_printf("%s/proc/self/mountinfo", root), *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *file = fopen(name, "re");
    mem_free(name);
    while (file && !found && getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        /* id parent major:minor ROOT MOUNT options [optional...] - TYPE source SUPER */
        char *type = strstr(line, " - ");
        if (!type)
            continue;
        *type = 0;
        type += 3;
        char *source = strchr(type, ' ');
        char *super = source ? strchr(source + 1, ' ') : NULL;
        if (!super)
            continue;
        *source = 0;
        super++;
        if (v2 ? strcmp(type, "cgroup2") != 0
               : strcmp(type, "cgroup") != 0 || !listed(super, "cpu"))
            continue;
        char *save = NULL, *field = strtok_r(line, " ", &save);
        char *fields[5] = {0};
        for (int i = 0; i < 5 && field; i++, field = strtok_r(NULL, " ", &save))
            fields[i] = field;
        if (!fields[4])
            continue;
        unescape(fields[3]);
        unescape(fields[4]);
        *mount_root = mem_strdup(fields[3]);
        *mount = mem_strdup(fields[4]);
        found = true;
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

static bool read_line(const char *folder, const char *file_name, char *out, size_t n)
{
    char *name = mem_printf("%s/%s", folder, file_name);
    FILE *file = fopen(name, "re");
    mem_free(name);
    bool got = file && fgets(out, (int)n, file);
    if (file)
        fclose(file);
    return got;
}

static double quota_of(const char *folder, bool v2)
{
    char text[64], period_text[64];
    double quota, period;
    if (v2) {
        /* "max 100000" or "150000 100000"; the root group has no such file */
        if (!read_line(folder, "cpu.max", text, sizeof text) ||
            sscanf(text, "%lf %lf", &quota, &period) != 2)
            return 0;
    } else {
        if (!read_line(folder, "cpu.cfs_quota_us", text, sizeof text) ||
            !read_line(folder, "cpu.cfs_period_us", period_text, sizeof period_text) ||
            sscanf(text, "%lf", &quota) != 1 || sscanf(period_text, "%lf", &period) != 1)
            return 0;
    }
    if (!isfinite(quota) || !isfinite(period) || quota <= 0 || period <= 0)
        return 0; /* -1: no limit */
    return quota / period;
}

static double hierarchy_quota(const char *root, bool v2)
{
    char *group = own_group(root, v2), *mount = NULL, *mount_root = NULL;
    double least = 0;
    if (group && find_mount(root, v2, &mount, &mount_root)) {
        /* The part of the group's path below the mount's root; where it lies outside of what is
         * mounted, the mount's root is the nearest group that can be seen. */
        const char *below = group;
        size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
        if (strncmp(group, mount_root, n) == 0 && (group[n] == '/' || group[n] == 0))
            below = group + n;
        else
            below = "";
        if (strstr(below, "/.."))
            below = "";
        char *folder = mem_printf("%s%s%s", root, mount, strcmp(below, "/") == 0 ? "" : below);
        size_t floor = strlen(root) + strlen(mount);
        for (;;) {
            double quota = quota_of(folder, v2);
            if (quota > 0 && (least <= 0 || quota < least))
                least = quota;
            char *slash = strrchr(folder, '/');
            if (!slash || (size_t)(slash - folder) < floor)
                break;
            *slash = 0;
        }
        mem_free(folder);
    }
    mem_free(group);
    mem_free(mount);
    mem_free(mount_root);
    return least;
}

double cpu_quota(const char *root)
{
    double v1 = hierarchy_quota(root, false), v2 = hierarchy_quota(root, true);
    if (v1 <= 0 || v2 <= 0)
        return v1 > 0 ? v1 : v2;
    return v1 < v2 ? v1 : v2;
}

static unsigned affinity_count(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            return 0;
        size_t size = CPU_ALLOC_SIZE(cpus);
        int rc = sched_getaffinity(0, size, set);
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return (unsigned)count;
        /* EINVAL: the kernel's mask is wider */
    }
    return 0;
}

void cpu_count(struct cpu_count *out)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    struct cpu_count count = {0};
    count.online = online > 0 ? (unsigned)online : 1;
    count.affinity = affinity_count();
    if (count.affinity == 0)
        count.affinity = count.online;
    count.quota = cpu_quota("");
    count.usable = count.online < count.affinity ? count.online : count.affinity;
    if (count.quota > 0 && ceil(count.quota) < (double)count.usable)
        count.usable = (unsigned)ceil(count.quota);
    if (count.usable < 1)
        count.usable = 1;
    *out = count;
}
