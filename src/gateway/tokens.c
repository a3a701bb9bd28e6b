/* tokens.c: the file of tokens (see config_reader.h).
 *
 * One token a line, then white space, then its scopes: "TOKEN write,read". Empty lines and lines
 * that begin with '#' do not count. No message ever holds a token. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gateway/config_reader.h"

enum { FILE_MAX_BYTES = 1 << 20, TOKEN_MIN = 8, TOKEN_MAX = 512 };

struct file {
    const char *path;
    unsigned line;
    struct config_token *tokens;
    size_t n;
    bool bad;
    void (*words)(void *context, const char *text);
    void *context;
};

static void complain(struct file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void complain(struct file *file, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct diag diag;
    if (file->line)
        diag_set(&diag, WEIR_INVALID, "tokens: %s, line %u: %s", file->path, file->line, text);
    else
        diag_set(&diag, WEIR_INVALID, "tokens: %s: %s", file->path, text);
    file->words(file->context, diag.text);
    file->bad = true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct slice next_word(struct slice *line)
{
    while (line->n && is_blank(line->p[0])) {
        line->p++;
        line->n--;
    }
    struct slice word = {line->p, 0};
    while (word.n < line->n && !is_blank(word.p[word.n]))
        word.n++;
    line->p += word.n;
    line->n -= word.n;
    return word;
}

static unsigned scope_of(struct slice name)
{
    return slice_is(name, "read")    ? SCOPE_READ
           : slice_is(name, "write") ? SCOPE_WRITE
           : slice_is(name, "admin") ? SCOPE_ADMIN
                                     : 0;
}

/* "write,read"; 0: reported. */
static unsigned parse_scopes(struct file *file, struct slice text)
{
    unsigned scopes = 0;
    if (text.n == 0) {
        complain(file, "a token needs scopes after it, such as write,read");
        return 0;
    }
    for (size_t at = 0; at <= text.n;) {
        const char *comma = memchr(text.p + at, ',', text.n - at);
        size_t end = comma ? (size_t)(comma - text.p) : text.n;
        unsigned scope = scope_of((struct slice){text.p + at, end - at});
        if (!scope) {
            /* Not quoted: a token with a space in it would land here. */
            complain(file, "a scope is none of read, write, admin");
            return 0;
        }
        scopes |= scope;
        at = end + 1;
    }
    return scopes;
}

static bool token_good(struct file *file, struct slice token)
{
    if (token.n < TOKEN_MIN || token.n > TOKEN_MAX) {
        complain(file, "a token has %d to %d characters", TOKEN_MIN, TOKEN_MAX);
        return false;
    }
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] <= ' ' || token.p[i] > '~') {
            complain(file, "a token may hold printable ASCII characters only");
            return false;
        }
    }
    for (size_t i = 0; i < file->n; i++) {
        if (slice_is(token, file->tokens[i].token)) {
            complain(file, "the token is there twice");
            return false;
        }
    }
    return true;
}

static void read_line(struct file *file, struct slice line)
{
    struct slice token = next_word(&line), scopes_text = next_word(&line), rest = next_word(&line);
    if (token.n == 0 || token.p[0] == '#')
        return;
    if (rest.n) {
        complain(file, "a line is one token and its scopes, joined by commas without spaces");
        return;
    }
    unsigned scopes = parse_scopes(file, scopes_text);
    if (!scopes || !token_good(file, token))
        return;
    file->tokens = mem_realloc(file->tokens, (file->n + 1) * sizeof *file->tokens);
    char *copy = mem_alloc(token.n + 1);
    memcpy(copy, token.p, token.n);
    copy[token.n] = '\0';
    file->tokens[file->n++] = (struct config_token){.token = copy, .scopes = scopes};
}

/* The whole file; its mode and its content are those of one open file. */
static int read_file(struct file *file, char **out, size_t *out_n)
{
    struct stat stat;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &stat) < 0) {
        complain(file, "cannot be read: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return WEIR_IO;
    }
    int err = 0;
    if (!S_ISREG(stat.st_mode)) {
        complain(file, "is not a file");
        err = WEIR_INVALID;
    } else if (stat.st_mode & (S_IRWXG | S_IRWXO)) {
        complain(file, "others may read it (mode %03o); run: chmod 600 %s",
                 (unsigned)stat.st_mode & 0777, file->path);
        err = WEIR_DENIED;
    } else if (stat.st_size > FILE_MAX_BYTES) {
        complain(file, "is larger than 1 MiB");
        err = WEIR_TOO_LARGE;
    }
    if (err) {
        close(fd);
        return err;
    }
    char *text = mem_alloc(FILE_MAX_BYTES);
    size_t n = 0;
    ssize_t got;
    while (n < FILE_MAX_BYTES && (got = read(fd, text + n, FILE_MAX_BYTES - n)) != 0) {
        if (got < 0 && errno != EINTR) {
            complain(file, "cannot be read: %s", strerror(errno));
            explicit_bzero(text, n);
            mem_free(text);
            close(fd);
            return WEIR_IO;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    *out = text;
    *out_n = n;
    return 0;
}

int tokens_read(const char *path, struct config_token **out, size_t *out_n,
                void (*words)(void *context, const char *text), void *context)
{
    struct file file = {.path = path, .words = words, .context = context};
    char *text;
    size_t n;
    int err = read_file(&file, &text, &n);
    if (err)
        return err;
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - text) : n;
        file.line++;
        read_line(&file, (struct slice){text + at, end - at});
        at = end + 1;
    }
    explicit_bzero(text, n);
    mem_free(text);
    file.line = 0;
    if (file.n == 0 && !file.bad)
        complain(&file, "holds no token");
    if (file.bad) {
        tokens_free(file.tokens, file.n);
        return WEIR_INVALID;
    }
    *out = file.tokens;
    *out_n = file.n;
    return 0;
}

void tokens_free(struct config_token *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        explicit_bzero(tokens[i].token, strlen(tokens[i].token));
        mem_free(tokens[i].token);
    }
    mem_free(tokens);
}
