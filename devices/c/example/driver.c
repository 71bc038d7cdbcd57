/* Does what the lines of its input say, and prints what it did: for tests of this library by other programs.
 *
 *     device SURVEY.json FILE asked|simulated    opens a device, and closes the one before
 *     clock SECONDS       sets the variable CLOCK_S, for a library that replaces the system's clock
 *     consent             asks "N", and gives the consent if N > 0: consented
 *     withdraw            the number of reports that wait then; withdrawn
 *     answer NAME VALUE…  made NAME ENVELOPE, unless the device makes no report
 *     report NAME VALUE…  ENVELOPE KEY, or a hyphen
 *     send                post KEY ENVELOPE, for each report that leaves
 *     journal             left ENVELOPE, for each report that left
 *
 * Tabs separate the words of a line. After an error, it prints the error's name and ends.
 */

#define _GNU_SOURCE
#include "ldpstream_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 40

static ldp_device *device;
static ldp_error error;

/* What the visits look for, and find. */
struct found {
    const char *attribute;
    char envelope[4096];
    char key[64];
};

static int checked(int result) {
    if (result < 0) {
        printf("error %.*s\n", (int)strcspn(error.message, ":"), error.message);
        exit(0);
    }
    return result;
}

static void write_hex(char *text, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count && 2 * i + 2 < sizeof((struct found *)0)->envelope; i++) {
        sprintf(text + 2 * i, "%02x", bytes[i]);
    }
}

static void find_envelope(const ldp_shown *shown, void *context) {
    write_hex(((struct found *)context)->envelope, shown->envelope, shown->envelope_bytes);
}

/* Keeps the latest waiting report of an attribute. */
static void find_report(const ldp_report *report, void *context) {
    struct found *found = context;
    if (!strcmp(report->attribute, found->attribute)) {
        write_hex(found->envelope, report->envelope, report->envelope_bytes);
        snprintf(found->key, sizeof found->key, "%s", report->key);
    }
}

static void post(const ldp_report *report, void *context) {
    (void)context;
    struct found found = {report->attribute, "", ""};
    write_hex(found.envelope, report->envelope, report->envelope_bytes);
    if (checked(ldp_leaves(device, report->key, &error))) {
        printf("post %s %s\n", report->key, found.envelope);
        checked(ldp_settle(device, report->key, &error));
    }
}

static void show_left(const ldp_left *left, void *context) {
    (void)context;
    struct found found = {left->attribute, "", ""};
    write_hex(found.envelope, left->envelope, left->envelope_bytes);
    printf("left %s\n", found.envelope);
}

static void open_device(const char *survey, const char *path, const char *consent) {
    static char text[1 << 20];
    FILE *file = fopen(survey, "rb");
    const size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) {
        fclose(file);
    }
    ldp_options options = {.survey = text, .survey_bytes = bytes, .path = path};
    options.consent = strcmp(consent, "simulated") ? LDP_ASKED : LDP_SIMULATED;
    ldp_close(device);
    device = ldp_open(&options, &error);
    checked(device ? 0 : -1);
}

static void answer(int n, char **words, bool with_key) {
    const char *const *values = (const char *const *)words + 2;
    struct found found = {words[1], "", ""};
    const int made = checked(ldp_answer(device, words[1], values, n - 2, &error));
    if (with_key) {
        checked(ldp_waiting(device, find_report, &found, &error));
        printf(made ? "%s %s\n" : "-\n", found.envelope, found.key);
    } else if (made) {
        checked(ldp_preview(device, words[1], values, n - 2, find_envelope, &found, &error)); /* also of a settled report */
        printf("made %s %s\n", words[1], found.envelope);
    }
}

static void obey(int n, char **words) {
    const char *verb = words[0];
    if (!strcmp(verb, "device") && n == 4) {
        open_device(words[1], words[2], words[3]);
    } else if (!strcmp(verb, "clock") && n == 2) {
        setenv("CLOCK_S", words[1], 1);
    } else if (!strcmp(verb, "consent")) {
        const int asked = checked(ldp_to_ask(device, &error));
        printf("asks %d\n", asked);
        if (asked > 0) {
            checked(ldp_give_consent(device, &error));
            printf("consented\n");
        }
    } else if (!strcmp(verb, "withdraw")) {
        ldp_error other;
        const int done = ldp_withdraw_consent(device, &error), waits = ldp_waiting(device, NULL, NULL, &other);
        printf("waits %d\n", waits > 0 ? waits : 0);
        checked(done);
        printf("withdrawn\n");
    } else if ((!strcmp(verb, "answer") || !strcmp(verb, "report")) && n >= 2) {
        answer(n, words, *verb == 'r');
    } else if (!strcmp(verb, "send")) {
        checked(ldp_waiting(device, post, NULL, &error));
    } else if (!strcmp(verb, "journal")) {
        checked(ldp_journal(device, show_left, NULL, &error));
    } else {
        printf("error %s?\n", verb);
        exit(2);
    }
}

int main(void) {
    static char line[1 << 16];
    setvbuf(stdout, NULL, _IOLBF, 0); /* what it did stays printed if the process is killed */
    while (fgets(line, sizeof line, stdin)) {
        char *words[MOST_WORDS], *rest = line;
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *word; n < MOST_WORDS && (word = strsep(&rest, "\t"));) {
            words[n++] = word;
        }
        obey(n, words);
    }
    ldp_close(device);
    return 0;
}
