/* lane.c: threads, a bounded queue and strands (see lane.h).
 *
 * The run queue is a list of nodes: a lone task, or a strand's token. A strand:
 *   resting   no tasks, no thread                   -> ready    lane_submit
 *   ready     tasks, its token in the run queue     -> held     take (a thread takes the token)
 *   held      a thread runs its tasks one by one    -> held     next task, up to the quantum
 *                                                   -> ready    put_back (after the quantum)
 *                                                   -> resting  put_back (no task left)
 * All queued tasks, lone or of strands, are also on one list by age.
 *
 * Invariants: 1. the mutex is held for a few pointer changes, never across a callback; 2. queued +
 * running + completions are changed together under it, so that lane_counts sees the sum hold; 3. a
 * node is added with a signal when more threads sleep than have been signalled, and a thread looks
 * at the run queue before it sleeps: no wake is lost; 4. a task is not touched once its finish was
 * called: it may be gone. */
#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/lane.h"
#include "os/thread.h"

#define QUANTUM_DEFAULT 16

struct node_list {
    struct lane_task *first, *last; /* linked by next */
};

enum strand_state { RESTING, READY, HELD };

struct strand { /* guarded by the lane's mutex */
    struct lane *lane;
    enum strand_state state;
    bool destroyed;             /* by its owner while held: the thread that holds it frees it */
    struct node_list tasks;     /* queued, in the order of submission */
    struct lane_task token;     /* stands for the strand in the run queue */
    struct strand *prev, *then; /* all strands of the lane */
};

struct lane {
    /* constant after start */
    char *name;
    unsigned threads, limit, quantum;
    pthread_t *thread;
    struct histogram *wait_ns, *run_ns; /* written under the mutex */

    pthread_mutex_t mutex;
    pthread_cond_t work;    /* the run queue has a node, or closing */
    pthread_cond_t drained; /* closing and nothing is queued */
    /* guarded by mutex */
    struct node_list run_queue;
    struct lane_task *oldest, *newest; /* all queued tasks by age */
    struct strand *strands;
    unsigned sleeping, signalled;     /* threads in a wait; of these, woken but not yet running */
    bool refusing, closing, stopping; /* no submissions; end when idle; end now */
    struct lane_counts counts;
};

static void list_append(struct node_list *list, struct lane_task *node)
{
    node->next = NULL;
    if (list->last)
        list->last->next = node;
    else
        list->first = node;
    list->last = node;
}

static struct lane_task *list_take(struct node_list *list)
{
    struct lane_task *node = list->first;
    list->first = node->next;
    if (!list->first)
        list->last = NULL;
    return node;
}

static void age_append(struct lane *lane, struct lane_task *task)
{
    task->newer = NULL;
    task->older = lane->newest;
    if (lane->newest)
        lane->newest->newer = task;
    else
        lane->oldest = task;
    lane->newest = task;
}

static void age_remove(struct lane *lane, struct lane_task *task)
{
    if (task->older)
        task->older->newer = task->newer;
    else
        lane->oldest = task->newer;
    if (task->newer)
        task->newer->older = task->older;
    else
        lane->newest = task->older;
}

static bool is_token(const struct lane_task *node)
{
    return node->strand && node == &node->strand->token;
}

/* Adds a node to the run queue and wakes a thread for it if one sleeps that no one has woken. */
static void make_ready(struct lane *lane, struct lane_task *node)
{
    list_append(&lane->run_queue, node);
    if (lane->sleeping > lane->signalled) {
        lane->signalled++;
        pthread_cond_signal(&lane->work);
    }
}

int lane_submit(struct lane *lane, struct strand *strand, struct lane_task *task)
{
    assert(task->run && task->finish);
    assert(!strand || strand->lane == lane);
    task->strand = strand;
    task->submitted_ns = clock_mono_ns();

    int rc = 0;
    pthread_mutex_lock(&lane->mutex);
    struct lane_counts *counts = &lane->counts;
    counts->submitted++;
    if (lane->refusing) {
        rc = WEIR_CLOSED;
    } else if (counts->queued >= lane->limit) {
        rc = WEIR_FULL;
    }
    if (rc) {
        counts->rejected++;
        goto out;
    }
    counts->queued++;
    age_append(lane, task);
    if (!strand) {
        make_ready(lane, task);
    } else {
        assert(!strand->destroyed);
        list_append(&strand->tasks, task);
        if (strand->state == RESTING) {
            strand->state = READY;
            make_ready(lane, &strand->token);
        } else {
            counts->waiting_for_order++;
        }
    }
out:
    pthread_mutex_unlock(&lane->mutex);
    return rc;
}

/* The strand's thread lets go of it: to the back of the queue if it has tasks, else to rest. */
static void put_back(struct lane *lane, struct strand *strand)
{
    if (strand->tasks.first) {
        strand->state = READY;
        lane->counts.waiting_for_order--; /* the first now waits for a thread only */
        make_ready(lane, &strand->token);
    } else {
        strand->state = RESTING;
    }
}

static void unlink_strand(struct strand *strand)
{
    if (strand->prev)
        strand->prev->then = strand->then;
    else
        strand->lane->strands = strand->then;
    if (strand->then)
        strand->then->prev = strand->prev;
}

struct holding { /* what a thread has at hand between two tasks */
    struct strand *strand;
    unsigned in_a_row; /* tasks of it run since it was taken */
};

/* The next task for this thread: of the strand it holds, within the quantum, else from the front of
 * the run queue. NULL: there is none. */
static struct lane_task *take(struct lane *lane, struct holding *holding)
{
    struct strand *strand = holding->strand;
    if (strand && strand->destroyed) {
        assert(!strand->tasks.first);
        mem_free(strand);
        strand = holding->strand = NULL;
    }
    bool again = false;
    if (strand) {
        again = strand->tasks.first && holding->in_a_row < lane->quantum && !lane->stopping;
        if (!again) {
            put_back(lane, strand);
            strand = holding->strand = NULL;
        }
    }
    if (lane->stopping)
        return NULL;

    struct lane_task *task;
    if (again) {
        task = list_take(&strand->tasks);
        lane->counts.waiting_for_order--;
        holding->in_a_row++;
    } else if (lane->run_queue.first) {
        task = list_take(&lane->run_queue);
        if (is_token(task)) {
            strand = task->strand;
            strand->state = HELD;
            holding->strand = strand;
            holding->in_a_row = 1;
            task = list_take(&strand->tasks);
        }
    } else {
        return NULL;
    }
    age_remove(lane, task);
    lane->counts.queued--;
    lane->counts.running++;
    if (lane->closing && lane->counts.queued == 0)
        pthread_cond_signal(&lane->drained);
    return task;
}

static void *lane_thread(void *argument)
{
    struct lane *lane = argument;
    struct holding holding = {0};
    pthread_mutex_lock(&lane->mutex);
    for (;;) {
        struct lane_task *task = take(lane, &holding);
        if (!task) {
            /* Tasks of a strand that another thread holds are that thread's to run. */
            if (lane->closing)
                break;
            lane->sleeping++;
            pthread_cond_wait(&lane->work, &lane->mutex);
            lane->sleeping--;
            if (lane->signalled)
                lane->signalled--;
            continue;
        }
        pthread_mutex_unlock(&lane->mutex);

        uint64_t submitted_ns = task->submitted_ns, start_ns = clock_mono_ns();
        task->run(task);
        uint64_t end_ns = clock_mono_ns();
        task->finish(task, LANE_DONE);

        pthread_mutex_lock(&lane->mutex);
        lane->counts.running--;
        lane->counts.done++;
        histogram_record(lane->wait_ns, start_ns > submitted_ns ? start_ns - submitted_ns : 0);
        histogram_record(lane->run_ns, end_ns - start_ns);
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

struct strand *strand_create(struct lane *lane)
{
    struct strand *strand = mem_zalloc(sizeof *strand);
    strand->lane = lane;
    strand->token.strand = strand;
    pthread_mutex_lock(&lane->mutex);
    strand->then = lane->strands;
    if (strand->then)
        strand->then->prev = strand;
    lane->strands = strand;
    pthread_mutex_unlock(&lane->mutex);
    return strand;
}

void strand_destroy(struct strand *strand)
{
    if (!strand)
        return;
    struct lane *lane = strand->lane;
    pthread_mutex_lock(&lane->mutex);
    assert(!strand->tasks.first);
    unlink_strand(strand);
    bool held = strand->state == HELD;
    strand->destroyed = true;
    pthread_mutex_unlock(&lane->mutex);
    if (!held)
        mem_free(strand);
}

static void free_lane(struct lane *lane)
{
    while (lane->strands) {
        struct strand *strand = lane->strands;
        lane->strands = strand->then;
        mem_free(strand);
    }
    pthread_cond_destroy(&lane->drained);
    pthread_cond_destroy(&lane->work);
    pthread_mutex_destroy(&lane->mutex);
    histogram_destroy(lane->wait_ns);
    histogram_destroy(lane->run_ns);
    mem_free(lane->thread);
    mem_free(lane->name);
    mem_free(lane);
}

int lane_create(const struct lane_config *config, struct lane **out, struct diag *diag)
{
    if (config->threads < 1 || config->queue < 1)
        return diag_set(diag, WEIR_INVALID, "lane %s: needs at least one thread and a queue of one",
                        config->name);
    struct lane *lane = mem_zalloc(sizeof *lane);
    lane->name = mem_strdup(config->name);
    lane->limit = config->queue;
    lane->quantum = config->quantum ? config->quantum : QUANTUM_DEFAULT;
    lane->thread = mem_zalloc(config->threads * sizeof *lane->thread);
    lane->wait_ns = histogram_create();
    lane->run_ns = histogram_create();
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->drained, &monotonic);
    pthread_condattr_destroy(&monotonic);

    for (unsigned i = 0; i < config->threads; i++) {
        int rc = thread_start(&lane->thread[i], lane->name, 0, lane_thread, lane);
        if (rc) {
            lane_close(lane, 0);
            return diag_set(diag, rc,
                            "lane %s: only %u of %u threads could be started; lower `threads` or "
                            "raise the limit of processes",
                            config->name, i, config->threads);
        }
        lane->threads++;
    }
    *out = lane;
    return 0;
}

void lane_refuse(struct lane *lane)
{
    pthread_mutex_lock(&lane->mutex);
    lane->refusing = true;
    pthread_mutex_unlock(&lane->mutex);
}

/* Waits until nothing is queued or the deadline has come, then lets the threads end. */
static void drain(struct lane *lane, uint32_t deadline_ms)
{
    uint64_t until_ns = clock_mono_ns() + (uint64_t)deadline_ms * 1000000;
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    pthread_mutex_lock(&lane->mutex);
    lane->refusing = lane->closing = true;
    lane->signalled = lane->sleeping;
    pthread_cond_broadcast(&lane->work);
    while (lane->counts.queued > 0 && deadline_ms > 0)
        if (pthread_cond_timedwait(&lane->drained, &lane->mutex, &until) != 0)
            break;
    lane->stopping = lane->counts.queued > 0;
    pthread_mutex_unlock(&lane->mutex);
}

unsigned lane_close(struct lane *lane, uint32_t deadline_ms)
{
    for (unsigned i = 0; i < lane->threads; i++)
        assert(!pthread_equal(lane->thread[i], pthread_self()));
    drain(lane, deadline_ms);
    for (unsigned i = 0; i < lane->threads; i++)
        thread_join(lane->thread[i]);

    /* No thread is left. A finish may still submit (and is refused) or destroy its strand, so each
     * task is taken off every list first, and the lane stays whole until the end. */
    unsigned cancelled = 0;
    while (lane->oldest) {
        struct lane_task *task = lane->oldest;
        pthread_mutex_lock(&lane->mutex);
        lane->counts.waiting_for_order = 0; /* they wait for nothing any more */
        age_remove(lane, task);
        if (task->strand)
            list_take(&task->strand->tasks);
        lane->counts.queued--;
        lane->counts.cancelled++;
        pthread_mutex_unlock(&lane->mutex);
        task->finish(task, LANE_CANCELLED);
        cancelled++;
    }
    free_lane(lane);
    return cancelled;
}

void lane_counts(struct lane *lane, struct lane_counts *out)
{
    pthread_mutex_lock(&lane->mutex);
    struct lane_counts counts = lane->counts;
    uint64_t oldest_ns = lane->oldest ? lane->oldest->submitted_ns : 0;
    pthread_mutex_unlock(&lane->mutex);
    counts.threads = lane->threads;
    counts.busy = (unsigned)counts.running;
    uint64_t now_ns = clock_mono_ns();
    counts.oldest_queued_ns = oldest_ns && now_ns > oldest_ns ? now_ns - oldest_ns : 0;
    *out = counts;
}

const char *lane_name(const struct lane *lane)
{
    return lane->name;
}

const struct histogram *lane_wait_ns(const struct lane *lane)
{
    return lane->wait_ns;
}

const struct histogram *lane_run_ns(const struct lane *lane)
{
    return lane->run_ns;
}
