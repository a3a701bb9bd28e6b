/* docs/configuration.md names everything that a configuration may say: every name of every section,
 * every kind and every option of a kind, in the section where it belongs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gateway/config_reader.h"

static char *page;

/* From a heading to the next of the same or a higher rank; the whole page when it is NULL. */
static struct slice part_of_page(const char *heading)
{
    if (!heading)
        return slice_of(page);
    char *line = mem_printf("\n%s\n", heading);
    const char *start = strstr(page, line);
    if (!start)
        fail_msg("docs/configuration.md has no heading \"%s\"", heading);
    start += strlen(line);
    mem_free(line);
    size_t rank = strspn(heading, "#");
    const char *end = start;
    while ((end = strstr(end, "\n#"))) {
        size_t other = strspn(++end, "#");
        if (other <= rank)
            return (struct slice){start, (size_t)(end - start)};
    }
    return slice_of(start);
}

static bool names(struct slice part, const char *name)
{
    char *quoted = mem_printf("`%s`", name);
    bool found = memmem(part.p, part.n, quoted, strlen(quoted)) != NULL;
    mem_free(quoted);
    return found;
}

static void must_name(struct slice part, const char *where, const char *name)
{
    if (!names(part, name))
        fail_msg("docs/configuration.md does not say what \"%s\" is (%s)", name, where);
}

static void test_every_name_of_every_section(void **state)
{
    (void)state;
    static const struct {
        const struct config_section *section;
        const char *heading;
    } places[] = {
        {&config_section_top, "## The top"},     {&config_section_log, "## `log`"},
        {&config_section_limits, "## `limits`"}, {&config_section_stream, "## `streams`"},
        {&config_section_sink, "## `sinks`"},    {&config_section_lane, "### `lane`"},
    };
    unsigned n = 0, sections = 0;
    while (config_sections[sections])
        sections++;
    assert_int_equal(sections, sizeof places / sizeof places[0]);
    for (unsigned i = 0; i < sections; i++) {
        struct slice part = part_of_page(places[i].heading);
        for (const struct config_name *name = places[i].section->names; name->name; name++, n++)
            must_name(part, places[i].heading, name->name);
    }
    assert_true(n > 40);
}

static void test_every_kind_and_option(void **state)
{
    (void)state;
    for (const char *const *kind = sink_kinds(); *kind; kind++) {
        const struct sink_ops *ops = sink_find(*kind);
        assert_non_null(ops);
        char *heading = mem_printf("### Options of `kind: %s`", *kind);
        struct slice part = part_of_page(heading);
        for (const char *const *option = ops->options; option && *option; option++)
            must_name(part, heading, *option);
        mem_free(heading);
    }
}

static void test_the_check_can_fail(void **state)
{
    (void)state;
    assert_false(names(part_of_page("## `log`"), "ack_timeout"));
    assert_false(names(part_of_page("## `log`"), "partition"));
}

static void test_the_example_is_good(void **state)
{
    (void)state;
    /* The first indented block, as a reader would copy it. */
    struct buf text = {0};
    const char *at = strstr(page, "\n    version: 1\n");
    assert_non_null(at);
    for (at++; strncmp(at, "    ", 4) == 0;) {
        size_t n = strcspn(at, "\n") + 1;
        buf_put(&text, at + 4, n - 4);
        at += n;
    }
    char path[] = "/tmp/weir-page-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_int_equal(fwrite(text.p, 1, text.n, file), text.n);
    assert_int_equal(fclose(file), 0);
    struct config *config = NULL;
    struct config_problems problems;
    if (config_read(path, &config, &problems))
        fail_msg("line %u: %s", problems.list[0].line, problems.list[0].text);
    assert_int_equal(config->n_sinks, 2);
    remove(path);
    config_problems_fini(&problems);
    config_destroy(config);
    buf_fini(&text);
}

static int start(void **state)
{
    (void)state;
    static const char here[] = "tests/unit/gateway/configuration_page_test.c";
    size_t n = strlen(__FILE__) - strlen(here), size;
    assert_string_equal(__FILE__ + n, here);
    char *path = mem_printf("%.*sdocs/configuration.md", (int)n, __FILE__);
    int err = fs_read_file(fs_posix(), path, 1 << 20, &page, &size);
    if (err)
        print_error("%s cannot be read\n", path);
    mem_free(path);
    return err;
}

static int end(void **state)
{
    (void)state;
    mem_free(page);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name_of_every_section),
        cmocka_unit_test(test_every_kind_and_option),
        cmocka_unit_test(test_the_check_can_fail),
        cmocka_unit_test(test_the_example_is_good),
    };
    return cmocka_run_group_tests(tests, start, end);
}
