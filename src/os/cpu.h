/* cpu.h: how many CPUs this process may use: min(online, affinity, ceil(cgroup quota)), at least 1.
 * Read once per call; any thread. */
#ifndef WEIR_OS_CPU_H
#define WEIR_OS_CPU_H

struct cpu_count {
    unsigned online, affinity;
    double quota;    /* CPUs; 0 when there is none */
    unsigned usable; /* the minimum */
};

void cpu_count(struct cpu_count *out);

/* The quota of this process's cgroup (v1 or v2) and all above it, in CPUs; 0: none. `root` stands
 * before /proc and /sys: "" but in tests. */
double cpu_quota(const char *root);

#endif
