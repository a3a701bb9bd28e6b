/* lane_test.c: a lane's promises: one completion each, the sum that always holds, order and no
 * overlap in a strand, fairness by quantum, limits, and closing with work in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../seeded.h"
#include "base/clock.h"
#include "exec/lane.h"
#include "os/thread.h"

static uint64_t seed;

static struct lane *lane_of(unsigned threads, unsigned queue, unsigned quantum)
{
    struct lane_config config = {"test-lane", threads, queue, quantum};
    struct lane *lane;
    struct diag diag;
    assert_int_equal(lane_create(&config, &lane, &diag), 0);
    return lane;
}

static bool sum_holds(const struct lane_counts *counts)
{
    return counts->submitted == counts->done + counts->rejected + counts->cancelled +
                                    counts->queued + counts->running &&
           counts->waiting_for_order <= counts->queued && counts->busy <= counts->threads;
}

static void wait_until_done(struct lane *lane, uint64_t done)
{
    struct lane_counts counts;
    do {
        lane_counts(lane, &counts);
        assert_true(sum_holds(&counts));
        sched_yield();
    } while (counts.done < done);
}

/* A gate holds a lane's thread inside a task until the test opens it. */
struct gate {
    struct lane_task task;
    _Atomic bool entered, open;
    _Atomic int done, cancelled;
};

static void gate_run(struct lane_task *task)
{
    struct gate *gate = (struct gate *)task;
    atomic_store(&gate->entered, true);
    while (!atomic_load(&gate->open))
        sched_yield();
}

static void gate_finish(struct lane_task *task, enum lane_completion how)
{
    struct gate *gate = (struct gate *)task;
    atomic_fetch_add(how == LANE_DONE ? &gate->done : &gate->cancelled, 1);
}

static void gate_close(struct gate *gate, struct lane *lane, struct strand *strand)
{
    memset(gate, 0, sizeof *gate);
    gate->task.run = gate_run;
    gate->task.finish = gate_finish;
    assert_int_equal(lane_submit(lane, strand, &gate->task), 0);
    while (!atomic_load(&gate->entered))
        sched_yield();
}

/* A step writes its name where tasks ran, in the order in which they ran. */
struct trace {
    _Atomic unsigned n;
    char names[4096];
};

struct step {
    struct lane_task task;
    struct trace *trace;
    char name;
    int done, cancelled;
};

static void step_run(struct lane_task *task)
{
    struct step *step = (struct step *)task;
    step->trace->names[atomic_fetch_add(&step->trace->n, 1)] = step->name;
}

static void step_finish(struct lane_task *task, enum lane_completion how)
{
    struct step *step = (struct step *)task;
    if (how == LANE_DONE) {
        step->done++;
    } else {
        step->cancelled++;
        step->trace->names[atomic_fetch_add(&step->trace->n, 1)] = step->name;
    }
}

static int step_submit(struct step *step, struct trace *trace, char name, struct lane *lane,
                       struct strand *strand)
{
    *step = (struct step){{step_run, step_finish, 0, 0, 0, 0, 0}, trace, name, 0, 0};
    return lane_submit(lane, strand, &step->task);
}

static void limits_and_counts(void **state)
{
    (void)state;
    struct lane *lane = lane_of(1, 3, 0);
    assert_string_equal(lane_name(lane), "test-lane");
    struct gate gate;
    gate_close(&gate, lane, NULL);
    struct trace trace = {0};
    struct step steps[5];
    struct strand *strand = strand_create(lane);
    assert_int_equal(step_submit(&steps[0], &trace, 'a', lane, strand), 0);
    assert_int_equal(step_submit(&steps[1], &trace, 'b', lane, strand), 0);
    assert_int_equal(step_submit(&steps[2], &trace, 'c', lane, NULL), 0);
    assert_int_equal(step_submit(&steps[3], &trace, 'd', lane, NULL), WEIR_FULL);
    assert_int_equal(step_submit(&steps[4], &trace, 'e', lane, strand), WEIR_FULL);
    struct lane_counts counts;
    uint64_t asked_ns = clock_mono_ns();
    while (clock_mono_ns() - asked_ns < 1000)
        ;
    lane_counts(lane, &counts);
    assert_int_equal(counts.submitted, 6);
    assert_int_equal(counts.rejected, 2);
    assert_int_equal(counts.queued, 3);
    assert_int_equal(counts.running, 1);
    assert_int_equal(counts.busy, 1);
    assert_int_equal(counts.threads, 1);
    assert_int_equal(counts.waiting_for_order, 1);
    assert_true(counts.oldest_queued_ns >= 1000);
    atomic_store(&gate.open, true);
    wait_until_done(lane, 4);
    lane_counts(lane, &counts);
    assert_int_equal(counts.waiting_for_order, 0);
    assert_int_equal(counts.oldest_queued_ns, 0);
    assert_int_equal(histogram_count(lane_wait_ns(lane)), 4);
    assert_int_equal(histogram_count(lane_run_ns(lane)), 4);
    assert_int_equal(atomic_load(&gate.done), 1);
    assert_int_equal(steps[3].done + steps[3].cancelled + steps[4].done + steps[4].cancelled, 0);
    strand_destroy(strand);
    lane_refuse(lane);
    assert_int_equal(step_submit(&steps[3], &trace, 'd', lane, NULL), WEIR_CLOSED);
    assert_int_equal(lane_close(lane, 1000), 0);
}

static void bad_configuration_is_refused(void **state)
{
    (void)state;
    struct lane *lane = NULL;
    struct diag diag = {0};
    struct lane_config no_threads = {"empty", 0, 1, 0}, no_queue = {"empty", 1, 0, 0};
    assert_int_equal(lane_create(&no_threads, &lane, &diag), WEIR_INVALID);
    assert_non_null(strstr(diag.text, "empty"));
    assert_int_equal(lane_create(&no_queue, &lane, NULL), WEIR_INVALID);
    assert_null(lane);
}

static void quantum_is_fair(void **state)
{
    (void)state;
    struct lane *lane = lane_of(1, 100, 3);
    struct gate gate;
    gate_close(&gate, lane, NULL);
    struct trace trace = {0};
    struct step steps[30];
    unsigned n = 0;
    struct strand *a = strand_create(lane), *b = strand_create(lane);
    for (int i = 0; i < 8; i++)
        assert_int_equal(step_submit(&steps[n++], &trace, 'a', lane, a), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(step_submit(&steps[n++], &trace, 'b', lane, b), 0);
    assert_int_equal(step_submit(&steps[n++], &trace, '.', lane, NULL), 0);
    atomic_store(&gate.open, true);
    wait_until_done(lane, n + 1);
    assert_string_equal(trace.names, "aaabbb.aaabbaa");
    assert_int_equal(lane_close(lane, 0), 0); /* destroys both strands */
}

static void close_drains_until_the_deadline(void **state)
{
    (void)state;
    /* enough time: everything runs */
    struct lane *lane = lane_of(2, 100, 2);
    struct strand *strand = strand_create(lane);
    struct trace trace = {0};
    struct step steps[60];
    for (int i = 0; i < 60; i++)
        assert_int_equal(step_submit(&steps[i], &trace, 'x', lane, i % 2 ? strand : NULL), 0);
    assert_int_equal(lane_close(lane, 60000), 0);
    assert_int_equal(trace.n, 60);
    for (int i = 0; i < 60; i++)
        assert_int_equal(steps[i].done, 1);
}

static void *open_later(void *argument)
{
    struct gate *gate = argument;
    struct timespec pause = {0, 30000000};
    nanosleep(&pause, NULL);
    atomic_store(&gate->open, true);
    return NULL;
}

static void close_cancels_in_order_after_the_deadline(void **state)
{
    (void)state;
    struct lane *lane = lane_of(1, 100, 0);
    struct strand *strand = strand_create(lane);
    struct gate gate;
    gate_close(&gate, lane, strand); /* the strand is held by the running task */
    struct trace trace = {0};
    struct step steps[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(
            step_submit(&steps[i], &trace, (char)('a' + i), lane, i % 2 ? strand : NULL), 0);
    pthread_t opener;
    assert_int_equal(thread_start(&opener, "opener", 0, open_later, &gate), 0);
    assert_int_equal(lane_close(lane, 1), 6); /* the gate opens only after this deadline */
    thread_join(opener);
    assert_int_equal(atomic_load(&gate.done), 1); /* running tasks are waited for */
    assert_string_equal(trace.names, "abcdef");
    for (int i = 0; i < 6; i++) {
        assert_int_equal(steps[i].cancelled, 1);
        assert_int_equal(steps[i].done, 0);
    }
}

struct self_destroying {
    struct lane_task task;
    struct strand *strand;
    _Atomic int finished;
};

static void nothing_run(struct lane_task *task)
{
    (void)task;
}

static void destroy_own_strand(struct lane_task *task, enum lane_completion how)
{
    (void)how;
    struct self_destroying *self = (struct self_destroying *)task;
    strand_destroy(self->strand);
    atomic_fetch_add(&self->finished, 1);
}

static void strand_may_go_in_its_last_finish(void **state)
{
    (void)state;
    struct lane *lane = lane_of(2, 100, 0);
    struct self_destroying tasks[50] = {0};
    for (int i = 0; i < 50; i++) {
        tasks[i].task.run = nothing_run;
        tasks[i].task.finish = destroy_own_strand;
        tasks[i].strand = strand_create(lane);
        assert_int_equal(lane_submit(lane, tasks[i].strand, &tasks[i].task), 0);
    }
    wait_until_done(lane, 50);
    assert_int_equal(lane_close(lane, 0), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(atomic_load(&tasks[i].finished), 1);

    /* and in a cancelled one */
    lane = lane_of(1, 100, 0);
    struct gate gate;
    gate_close(&gate, lane, NULL);
    struct self_destroying last = {{nothing_run, destroy_own_strand, 0, 0, 0, 0, 0}, NULL, 0};
    last.strand = strand_create(lane);
    assert_int_equal(lane_submit(lane, last.strand, &last.task), 0);
    pthread_t opener;
    assert_int_equal(thread_start(&opener, "opener", 0, open_later, &gate), 0);
    assert_int_equal(lane_close(lane, 0), 1);
    thread_join(opener);
    assert_int_equal(atomic_load(&last.finished), 1);
}

/* Stress: threads submit to strands and without order, a sampler checks the sum, and the lane is
 * closed while all of it goes on. */
#define SUBMITTERS 3
#define STRANDS    5
#define EACH       2500

struct stress_strand {
    struct strand *strand;
    pthread_mutex_t order; /* so that number and place in the strand agree */
    unsigned submitted;    /* guarded by order */
    unsigned next;         /* of its tasks: plain, as the strand orders them */
    _Atomic int inside;
};

struct stress_task {
    struct lane_task task;
    struct stress *stress;
    struct stress_strand *strand;
    unsigned number;
    _Atomic int completions;
    bool accepted, again;
};

struct stress {
    struct lane *lane;
    struct stress_strand strands[STRANDS];
    struct stress_task *tasks;
    _Atomic unsigned accepted, rejected, done, cancelled, wrong, submitting;
    uint64_t seed;
};

struct submitter {
    struct stress *stress;
    unsigned index;
};

static void stress_run(struct lane_task *task)
{
    struct stress_task *self = (struct stress_task *)task;
    if (!self->strand)
        return;
    if (atomic_fetch_add_explicit(&self->strand->inside, 1, memory_order_relaxed) != 0)
        atomic_fetch_add(&self->stress->wrong, 1);
    if (self->strand->next++ != self->number)
        atomic_fetch_add(&self->stress->wrong, 1);
}

static void stress_finish(struct lane_task *task, enum lane_completion how)
{
    struct stress_task *self = (struct stress_task *)task;
    struct stress *stress = self->stress;
    if (atomic_fetch_add_explicit(&self->completions, 1, memory_order_relaxed) != 0)
        atomic_fetch_add(&stress->wrong, 1);
    atomic_fetch_add_explicit(how == LANE_DONE ? &stress->done : &stress->cancelled, 1,
                              memory_order_relaxed);
    if (self->strand && how == LANE_DONE)
        atomic_fetch_sub_explicit(&self->strand->inside, 1, memory_order_relaxed);
    if (self->again) { /* a task may submit: itself, its memory is its own again */
        self->again = false;
        atomic_store_explicit(&self->completions, 0, memory_order_relaxed);
        if (lane_submit(stress->lane, NULL, &self->task) == 0)
            atomic_fetch_add(&stress->accepted, 1);
        else {
            atomic_store_explicit(&self->completions, 1, memory_order_relaxed);
            atomic_fetch_add(&stress->rejected, 1);
        }
    }
}

static void *stress_submit(void *argument)
{
    struct submitter *self = argument;
    struct stress *stress = self->stress;
    struct seeded random = {stress->seed + self->index};
    for (unsigned i = 0; i < EACH; i++) {
        struct stress_task *task = &stress->tasks[self->index * EACH + i];
        task->task.run = stress_run;
        task->task.finish = stress_finish;
        task->stress = stress;
        unsigned which = (unsigned)seeded_below(&random, STRANDS + 2);
        int rc;
        if (which < STRANDS) {
            struct stress_strand *strand = &stress->strands[which];
            task->strand = strand;
            pthread_mutex_lock(&strand->order);
            task->number = strand->submitted;
            task->accepted = true;
            rc = lane_submit(stress->lane, strand->strand, &task->task);
            strand->submitted += rc == 0;
            pthread_mutex_unlock(&strand->order);
        } else {
            task->again = which == STRANDS;
            task->accepted = true;
            rc = lane_submit(stress->lane, NULL, &task->task);
        }
        if (rc == 0) {
            atomic_fetch_add(&stress->accepted, 1);
        } else {
            task->accepted = false;
            atomic_fetch_add(&stress->rejected, 1);
            if (rc == WEIR_CLOSED)
                break;
            sched_yield();
        }
    }
    atomic_fetch_sub(&stress->submitting, 1);
    return NULL;
}

static void stress_once(unsigned threads, unsigned queue, unsigned quantum, unsigned refuse_after,
                        uint32_t deadline_ms)
{
    struct stress stress = {.lane = lane_of(threads, queue, quantum), .seed = seed + refuse_after};
    stress.tasks = calloc(SUBMITTERS * EACH, sizeof *stress.tasks);
    atomic_store(&stress.submitting, SUBMITTERS);
    for (unsigned i = 0; i < STRANDS; i++) {
        stress.strands[i].strand = strand_create(stress.lane);
        pthread_mutex_init(&stress.strands[i].order, NULL);
    }
    pthread_t thread[SUBMITTERS];
    struct submitter submitters[SUBMITTERS];
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){&stress, i};
        assert_int_equal(thread_start(&thread[i], "submitter", 0, stress_submit, &submitters[i]),
                         0);
    }
    struct lane_counts counts;
    do {
        lane_counts(stress.lane, &counts);
        assert_true(sum_holds(&counts));
        assert_true(counts.queued <= queue);
        assert_true(counts.running <= threads);
        sched_yield();
    } while (atomic_load(&stress.submitting) > 0 && counts.submitted < refuse_after);
    lane_refuse(stress.lane);
    for (unsigned i = 0; i < SUBMITTERS; i++)
        thread_join(thread[i]);
    lane_counts(stress.lane, &counts);
    assert_true(sum_holds(&counts));
    unsigned cancelled = lane_close(stress.lane, deadline_ms);

    assert_int_equal(atomic_load(&stress.wrong), 0);
    assert_int_equal(atomic_load(&stress.cancelled), cancelled);
    assert_int_equal(atomic_load(&stress.accepted),
                     atomic_load(&stress.done) + atomic_load(&stress.cancelled));
    for (unsigned i = 0; i < SUBMITTERS * EACH; i++)
        assert_int_equal(atomic_load(&stress.tasks[i].completions), stress.tasks[i].accepted);
    for (unsigned i = 0; i < STRANDS; i++) {
        assert_int_equal(atomic_load(&stress.strands[i].inside), 0);
        pthread_mutex_destroy(&stress.strands[i].order);
    }
    free(stress.tasks);
}

static void stress_runs_out(void **state)
{
    (void)state;
    stress_once(1, 50, 1, UINT32_MAX, 60000);
    stress_once(4, 1, 0, UINT32_MAX, 60000);
    stress_once(4, 1000, 3, UINT32_MAX, 60000);
}

static void stress_closes_in_the_middle(void **state)
{
    (void)state;
    struct seeded random = {seed};
    for (unsigned i = 0; i < 12; i++)
        stress_once(1 + i % 4, 1 + (unsigned)seeded_below(&random, 400), i % 3,
                    (unsigned)seeded_below(&random, SUBMITTERS * EACH), i % 2);
}

/* A lone task per wake: each must find a thread, also when all of them sleep. */
static void sleeping_threads_are_always_woken(void **state)
{
    (void)state;
    struct lane *lane = lane_of(3, 10, 0);
    struct trace trace = {0};
    struct step steps[2];
    for (uint64_t i = 1; i <= 1500; i++) {
        trace.n = 0;
        assert_int_equal(step_submit(&steps[0], &trace, 'x', lane, NULL), 0);
        assert_int_equal(step_submit(&steps[1], &trace, 'y', lane, NULL), 0);
        wait_until_done(lane, 2 * i);
        assert_int_equal(trace.n, 2);
    }
    assert_int_equal(lane_close(lane, 0), 0);
}

/* Two tasks that each wait for the other to run need two threads awake: the second submission must
 * wake another thread although the first is only just being woken. */
struct meeting {
    struct lane_task task;
    _Atomic int *present;
};

static void meet(struct lane_task *task)
{
    struct meeting *self = (struct meeting *)task;
    atomic_fetch_add(self->present, 1);
    while (atomic_load(self->present) < 2)
        sched_yield();
}

static void nothing_finish(struct lane_task *task, enum lane_completion how)
{
    (void)task;
    (void)how;
}

static void two_submissions_wake_two_threads(void **state)
{
    (void)state;
    struct lane *lane = lane_of(2, 10, 0);
    for (uint64_t i = 1; i <= 500; i++) {
        _Atomic int present = 0;
        struct meeting a = {{meet, nothing_finish, 0, 0, 0, 0, 0}, &present}, b = a;
        assert_int_equal(lane_submit(lane, NULL, &a.task), 0);
        assert_int_equal(lane_submit(lane, NULL, &b.task), 0);
        wait_until_done(lane, 2 * i);
    }
    assert_int_equal(lane_close(lane, 0), 0);
}

int main(void)
{
    seed = seeded_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_and_counts),
        cmocka_unit_test(bad_configuration_is_refused),
        cmocka_unit_test(quantum_is_fair),
        cmocka_unit_test(close_drains_until_the_deadline),
        cmocka_unit_test(close_cancels_in_order_after_the_deadline),
        cmocka_unit_test(strand_may_go_in_its_last_finish),
        cmocka_unit_test(stress_runs_out),
        cmocka_unit_test(stress_closes_in_the_middle),
        cmocka_unit_test(sleeping_threads_are_always_woken),
        cmocka_unit_test(two_submissions_wake_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
