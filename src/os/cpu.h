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

#endif
