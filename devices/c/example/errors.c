/* Checks the header in C, and each way to misuse the library: every call must say so in one line. */

#include "ldpstream_device.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *what, bool holds) {
    if (!holds) {
        fprintf(stderr, "failed: %s\n", what);
        failures++;
    }
}

static void count(const ldp_report *report, void *context) {
    expect("a report has a key of 22 characters", strlen(report->key) == 22);
    expect("a report has an envelope", report->envelope_bytes > 10 && report->envelope[0] == 0x97);
    ++*(int *)context;
}

/* Compares a preview with the report that waits, if the context has one. */
static void look(const ldp_shown *shown, void *context) {
    const ldp_shown *expected = context;
    expect("the text has the silence", !shown->silence == !strstr(shown->text, "nothing leaves now ("));
    expect("the silence", !shown->silence == !expected->silence && (!shown->silence || !strcmp(shown->silence, expected->silence)));
    expect("an example", shown->example == expected->example && shown->envelope_bytes > 10 && shown->envelope[0] == 0x97);
    expect("the text has the bytes by parts", strstr(shown->text, "a random answer: ") != NULL);
}

static void reread(const ldp_left *left, void *context) {
    expect("a report that left", left->at_ms > 0 && !left->local && left->envelope_bytes > 10 && left->envelope[0] == 0x97);
    ++*(int *)context;
}

static void leave(const ldp_report *report, void *context) {
    ldp_error error;
    expect("a waiting report leaves", ldp_leaves(context, report->key, &error) == 1);
}

int main(int argc, char **argv) {
    static char survey[1 << 20];
    FILE *file = argc == 5 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "errors: give SURVEY.json FILE ATTRIBUTE VALUE\n");
        return 2;
    }
    const size_t bytes = fread(survey, 1, sizeof survey, file);
    fclose(file);
    ldp_error error = {0};
    ldp_options options = {.survey = survey, .survey_bytes = bytes, .path = argv[2]};
    const char *values[] = {argv[4], NULL};

    expect("no options", !ldp_open(NULL, &error) && error.code == LDP_VALUE);
    options.survey = NULL;
    expect("no survey", !ldp_open(&options, &error) && error.code == LDP_VALUE);
    options.survey = survey;
    options.survey_bytes = bytes / 2;
    expect("half a survey", !ldp_open(&options, &error) && error.code == LDP_UNKNOWN_SURVEY);
    options.survey_bytes = bytes;
    options.pin = "00";
    expect("a short pin", !ldp_open(&options, &error) && error.code == LDP_VALUE);
    options.pin = "0000000000000000000000000000000000000000000000000000000000000000";
    expect("another pin", !ldp_open(&options, &error) && error.code == LDP_WRONG_SURVEY);
    options.pin = NULL;
    options.max_eps = 1e-3;
    expect("a costly survey", !ldp_open(&options, &error) && error.code == LDP_COSTLY_SURVEY);
    options.max_eps = 0;
    options.expect_enrolled = true;
    expect("an empty file of an enrolled device", !ldp_open(&options, &error) && error.code == LDP_STORE_CLEARED);
    options.expect_enrolled = false;
    options.path = "/nowhere/at/all";
    expect("no folder", !ldp_open(&options, &error) && error.code == LDP_STORE);
    options.path = argv[2];

    ldp_device *device = ldp_open(&options, &error);
    expect("a device", device && error.code == LDP_OK && !error.message[0]);
    char question[4096];
    const size_t needed = ldp_question(device, question, sizeof question);
    expect("a question", needed == strlen(question) && strstr(question, "Purpose: "));
    expect("a short question", ldp_question(device, question, 8) == needed && strlen(question) == 7);
    expect("somebody to ask", ldp_to_ask(device, &error) == 1);
    expect("no report without consent", ldp_answer(device, argv[3], values, 1, &error) == 0 && error.code == LDP_OK);
    ldp_shown shown = {.silence = "consent unknown", .example = true};
    expect("a preview before consent", ldp_preview(device, argv[3], values, 1, look, &shown, &error) == 0);
    expect("the journal of a device without reports", ldp_journal(device, reread, NULL, &error) == 0);
    expect("a refusal", !ldp_withdraw_consent(device, &error) && !ldp_to_ask(device, &error));
    expect("a consent", !ldp_give_consent(device, &error));
    expect("another attribute", ldp_answer(device, "nothing", values, 1, &error) == -1 && error.code == LDP_VALUE);
    const char *secret[] = {"a secret"};
    expect("another value", ldp_answer(device, argv[3], secret, 1, &error) == -1 && !strstr(error.message, "secret"));
    expect("no value", ldp_answer(device, argv[3], values + 1, 1, &error) == -1 && error.code == LDP_VALUE);
    expect("no device", ldp_answer(NULL, argv[3], values, 1, &error) == -1 && error.code == LDP_VALUE);
    expect("an error that nobody reads", ldp_answer(NULL, argv[3], values, 1, NULL) == -1);
    expect("a report", ldp_answer(device, argv[3], values, 1, &error) == 1);
    expect("the same report", ldp_answer(device, argv[3], values, 1, &error) == 1);
    shown = (ldp_shown){.silence = NULL, .example = false};
    expect("the report would leave", ldp_preview(device, argv[3], values, 1, look, &shown, &error) == 1);
    expect("a preview for nobody", ldp_preview(device, argv[3], values, 1, NULL, NULL, &error) == 1);
    expect("a preview of another value", ldp_preview(device, argv[3], secret, 1, look, &shown, &error) == -1);
    int reports = 0;
    expect("one report waits", ldp_waiting(device, count, &reports, &error) == 1 && reports == 1);
    expect("an unknown key does not leave", ldp_leaves(device, "unknown", &error) == 0);
    expect("each leaves", ldp_waiting(device, leave, device, &error) == 1);
    int left = 0;
    expect("the journal has it", ldp_journal(device, reread, &left, &error) == 1 && left == 1);
    expect("another name", ldp_forget(device, "another", &error) == -1 && error.code == LDP_VALUE);
    expect("an unknown key settles nothing", !ldp_settle(device, "unknown", &error));
    expect("it still waits", ldp_waiting(device, NULL, NULL, &error) == 1);

    const char *body = "{\"accepted\": 1}";
    ldp_verdict verdict = ldp_read_answer(202, NULL, NULL, body, strlen(body));
    expect("an accepted report", verdict.final && verdict.counts);
    verdict = ldp_read_answer(202, "7", NULL, "ok", 2);
    expect("a proxy's answer", !verdict.final && verdict.retry_after_s == 7);
    verdict = ldp_read_answer(0, NULL, NULL, NULL, 0);
    expect("no answer", !verdict.final);
    ldp_close(device);
    ldp_close(NULL);
    return failures != 0;
}
