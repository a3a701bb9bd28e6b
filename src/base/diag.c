/* diag.c: an error with words (see diag.h). */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One error is one line wherever it is shown, whatever text of a stranger it quotes. */
static void flatten(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            *text = ' ';
    }
}

/* A cut text must not end inside a UTF-8 character: it may be quoted in JSON. */
static void cut_whole(char *text, size_t n)
{
    size_t lead = n;
    while (lead > 0 && n - lead < 3 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80)
        lead--;
    if (lead == 0)
        return;
    unsigned char c = (unsigned char)text[lead - 1];
    size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    if (n - (lead - 1) < need)
        text[lead - 1] = '\0';
}

int diag_set(struct diag *diag, int code, const char *format, ...)
{
    if (!diag)
        return code;
    /* Formatted aside: the arguments may quote diag->text itself. */
    char text[sizeof diag->text];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        snprintf(text, sizeof text, "%s", weir_err_text(code));
    else if ((size_t)n >= sizeof text)
        cut_whole(text, sizeof text - 1);
    flatten(text);
    diag->code = code;
    memcpy(diag->text, text, sizeof text);
    return code;
}

int diag_prefix(struct diag *diag, const char *format, ...)
{
    if (!diag)
        return WEIR_OK;
    char text[sizeof diag->text];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        return diag->code;
    size_t used = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    n = snprintf(text + used, sizeof text - used, "%s", diag->text);
    if (n > 0 && (size_t)n >= sizeof text - used)
        cut_whole(text, sizeof text - 1);
    flatten(text);
    memcpy(diag->text, text, sizeof text);
    return diag->code;
}
