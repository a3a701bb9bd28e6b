/* meta: what is written is read, damage of any bit is seen, a newer format is refused, and one
 * process at a time holds the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "gateway/meta.h"
#include "gateway/state.h"

static char folder[] = "/tmp/weir-meta-XXXXXX";
static char data[64], meta_path[80];

static void put_file(struct slice text)
{
    assert_int_equal(fs_replace_file(fs_posix(), meta_path, text.p, text.n), 0);
}

/* The text with its right checksum. */
static void put_sealed(const char *text)
{
    struct buf whole = {0};
    buf_printf(&whole, "%sxxh3 %016llx\n", text, (unsigned long long)hash64(text, strlen(text)));
    put_file(buf_slice(&whole));
    buf_fini(&whole);
}

static int read_meta(struct meta *meta, struct diag *diag)
{
    *diag = (struct diag){0};
    return meta_read(fs_posix(), data, meta, diag);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct meta meta = {.partitions = 4, .version_ceiling = INT64_MAX}, back;
    struct diag diag;
    uint32_t number;
    assert_int_equal(read_meta(&back, &diag), WEIR_NOT_FOUND);
    assert_int_equal(meta_stream_add(&meta, "events"), 0);
    assert_int_equal(meta_stream_add(&meta, "orders.eu-1_x"), 1);
    assert_int_equal(meta_stream_add(&meta, "events"), 0);
    assert_int_equal(meta.n_streams, 2);
    assert_int_equal(meta_write(fs_posix(), data, &meta, &diag), 0);
    assert_int_equal(read_meta(&back, &diag), 0);
    assert_int_equal(back.partitions, 4);
    assert_true(back.version_ceiling == INT64_MAX);
    assert_int_equal(back.n_streams, 2);
    assert_int_equal(meta_stream_find(&back, "orders.eu-1_x", &number), 0);
    assert_int_equal(number, 1);
    assert_int_equal(meta_stream_find(&back, "orders", &number), WEIR_NOT_FOUND);
    assert_int_equal(meta_stream_add(&back, "third"), 2);
    assert_int_equal(meta_write(fs_posix(), data, &back, &diag), 0);
    meta_fini(&back);
    assert_int_equal(read_meta(&back, &diag), 0);
    assert_int_equal(back.n_streams, 3);
    meta_fini(&back);
    meta_fini(&meta);
    assert_int_equal(meta.n_streams, 0);
}

static void test_the_form_is_fixed(void **state)
{
    (void)state;
    struct meta meta;
    struct diag diag;
    put_sealed("format 1\npartitions 16\nversion_ceiling 77\nstream 0 a\nstream 1 b\n");
    assert_int_equal(read_meta(&meta, &diag), 0);
    assert_int_equal(meta.partitions, 16);
    assert_int_equal(meta.version_ceiling, 77);
    assert_string_equal(meta.streams[1], "b");
    meta_fini(&meta);
}

static void test_damage_of_any_bit_is_seen(void **state)
{
    (void)state;
    struct meta meta = {.partitions = 4, .version_ceiling = 123456789};
    struct diag diag;
    char *text;
    size_t n;
    meta_stream_add(&meta, "events");
    assert_int_equal(meta_write(fs_posix(), data, &meta, &diag), 0);
    meta_fini(&meta);
    assert_int_equal(fs_read_file(fs_posix(), meta_path, 4096, &text, &n), 0);
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(text[i] ^ 1 << (i % 8));
        put_file((struct slice){text, n});
        int err = read_meta(&meta, &diag);
        /* A higher digit in the format's place looks like a newer weir, which is refused too. */
        assert_true(err == WEIR_CORRUPT || (err == WEIR_NEWER && i < 9));
        assert_non_null(strstr(diag.text, data));
        text[i] = (char)(text[i] ^ 1 << (i % 8));
    }
    for (size_t cut = 0; cut < n; cut++) {
        put_file((struct slice){text, cut});
        assert_int_equal(read_meta(&meta, &diag), WEIR_CORRUPT);
    }
    mem_free(text);
}

static void test_nonsense_with_a_right_checksum(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "format 0\npartitions 4\nversion_ceiling 1\n",
        "format 1\npartitions 0\nversion_ceiling 1\n",
        "format 1\npartitions 1025\nversion_ceiling 1\n",
        "format 1\npartitions 4\nversion_ceiling 9223372036854775808\n",
        "format 1\npartitions 4\nversion_ceiling -1\n",
        "format 1\npartitions 4\n",
        "format 1\nversion_ceiling 1\npartitions 4\n",
        "format 1\npartitions 4\nversion_ceiling 1\nstream 1 a\n",
        "format 1\npartitions 4\nversion_ceiling 1\nstream 0 a\nstream 0 b\n",
        "format 1\npartitions 4\nversion_ceiling 1\nstream 0 a\nstream 1 a\n",
        "format 1\npartitions 4\nversion_ceiling 1\nstream 0 \n",
        "format 1\npartitions 4\nversion_ceiling 1\nstream 0 a",
        "format 1\npartitions 4\nversion_ceiling 1\nother 5\n",
    };
    struct meta meta;
    struct diag diag;
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put_sealed(texts[i]);
        assert_int_equal(read_meta(&meta, &diag), WEIR_CORRUPT);
    }
}

static void test_a_newer_format_is_refused_whatever_follows(void **state)
{
    (void)state;
    struct meta meta;
    struct diag diag;
    put_sealed("format 2\npartitions 4\n");
    assert_int_equal(read_meta(&meta, &diag), WEIR_NEWER);
    assert_non_null(strstr(diag.text, "newer weir (format 2"));
    put_file(SLICE_LIT("format 17\n\0\1\2 something else"));
    assert_int_equal(read_meta(&meta, &diag), WEIR_NEWER);
    unlink(meta_path);
}

/* In a process of its own: locks of one process do not exclude each other. */
static int try_lock_elsewhere(char *text, size_t size)
{
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct fs_file *file;
        struct diag diag = {0};
        int err = data_lock(fs_posix(), data, &file, &diag);
        if (write(pipes[1], diag.text, strlen(diag.text)) < 0)
            _exit(99);
        _exit(err ? -err : 0);
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void test_one_process_holds_the_data(void **state)
{
    (void)state;
    struct fs_file *file;
    struct diag diag = {0};
    char text[512], pid[32];
    assert_int_equal(data_lock(fs_posix(), data, &file, &diag), 0);
    assert_int_equal(try_lock_elsewhere(text, sizeof text), WEIR_LOCKED);
    snprintf(pid, sizeof pid, "process %ld;", (long)getpid());
    assert_non_null(strstr(text, pid));
    assert_non_null(strstr(text, data));
    fs_close(file);
    assert_int_equal(try_lock_elsewhere(text, sizeof text), 0);
    /* What a process that is gone left behind does not matter. */
    assert_int_equal(data_lock(fs_posix(), data, &file, &diag), 0);
    fs_close(file);
}

static void test_the_directory_is_made(void **state)
{
    (void)state;
    struct fs_file *file;
    struct diag diag = {0};
    struct stat stat_buf;
    char deep[128], name[160];
    snprintf(deep, sizeof deep, "%s/a/b", data);
    assert_int_equal(data_lock(fs_posix(), deep, &file, &diag), 0);
    fs_close(file);
    assert_int_equal(stat(deep, &stat_buf), 0);
    assert_int_equal(stat_buf.st_mode & 0777, 0700);
    snprintf(name, sizeof name, "%s/LOCK", deep);
    unlink(name);
    rmdir(deep);
    snprintf(name, sizeof name, "%s/a", data);
    rmdir(name);

    snprintf(name, sizeof name, "%s/LOCK/x", data);
    assert_true(data_lock(fs_posix(), name, &file, &diag) != 0);
    assert_non_null(strstr(diag.text, "cannot be made"));
}

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(meta_path, sizeof meta_path, "%s/META", data);
    return mkdir(data, 0700);
}

/* Versions above the ceiling on disk would come again after a restart with another clock. */
static void test_no_version_is_given_above_what_meta_holds(void **state)
{
    (void)state;
    struct gateway *gateway = mem_zalloc(sizeof(*gateway));
    char nowhere[] = "/tmp/weir-meta-is-not/here";
    struct config config = {.data = nowhere};
    struct diag diag = {0};
    uint64_t version;
    gateway->config = &config;
    gateway->fs = fs_posix();
    version_init(&gateway->versions, 7);
    gateway->meta.version_ceiling = 7;
    assert_true(housekeep_versions(gateway, &diag) != 0);
    assert_true(gateway->meta.version_ceiling == 7);
    assert_int_equal(version_take(&gateway->versions, clock_wall_ms(), 1, &version),
                     WEIR_UNAVAILABLE);
    config.data = data;
    gateway->meta.partitions = 1;
    assert_int_equal(housekeep_versions(gateway, &diag), 0);
    assert_int_equal(version_take(&gateway->versions, clock_wall_ms(), 1, &version), 0);
    assert_true(version > 7 && version <= gateway->meta.version_ceiling);
    meta_fini(&gateway->meta);
    mem_free(gateway);
}

static int end(void **state)
{
    char lock[80];
    (void)state;
    snprintf(lock, sizeof lock, "%s/LOCK", data);
    unlink(lock);
    unlink(meta_path);
    rmdir(data);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_the_form_is_fixed),
        cmocka_unit_test(test_damage_of_any_bit_is_seen),
        cmocka_unit_test(test_nonsense_with_a_right_checksum),
        cmocka_unit_test(test_a_newer_format_is_refused_whatever_follows),
        cmocka_unit_test(test_one_process_holds_the_data),
        cmocka_unit_test(test_the_directory_is_made),
        cmocka_unit_test(test_no_version_is_given_above_what_meta_holds),
    };
    return cmocka_run_group_tests(tests, start, end);
}
