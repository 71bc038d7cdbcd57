/* One person's ldpstream client for programs in C and C++: answers a survey under local differential privacy.
 *
 *     ldp_error error;
 *     ldp_options options = {.survey = json, .survey_bytes = n, .path = "answers.device"};
 *     ldp_device *device = ldp_open(&options, &error);
 *     if (!device) fprintf(stderr, "%s\n", error.message);
 *     const char *mode[] = {"bicycle"};
 *     if (ldp_to_ask(device, &error) > 0) ask_the_person(device);    // ldp_question, then ldp_give_consent
 *     ldp_answer(device, "mode", mode, 1, &error);
 *     ldp_waiting(device, post, context, &error);    // `post` sends each report with the program's own HTTP client
 *     ldp_close(device);
 *
 * The library sends nothing, starts no thread and never calls the network, so that it blocks no event loop. A call may wait for
 * the disk, and up to `wait_ms` for another process that holds the device's file. Different devices may be used from different
 * threads at once, and one device from several.
 *
 * The caller owns every structure. The library allocates only what `ldp_open` returns, and `ldp_close` frees it.
 */
#ifndef LDPSTREAM_DEVICE_H
#define LDPSTREAM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The codes have the names of docs/reference/write_a_device.md. */
typedef enum ldp_code {
    LDP_OK = 0,
    LDP_VALUE = 1,          /* an argument is wrong, such as a value that the attribute does not have */
    LDP_UNSAFE_SURVEY = 2,  /* a check of the survey failed */
    LDP_UNKNOWN_SURVEY = 3, /* the survey cannot be read, or has an unknown format or mechanism */
    LDP_NOT_SIGNED = 4,
    LDP_RELAY_REQUIRED = 5,
    LDP_WRONG_SURVEY = 6,  /* the pin or the file belongs to another survey */
    LDP_COSTLY_SURVEY = 7, /* the survey may lose more than `max_eps` */
    LDP_STORE_HELD = 8,    /* another process holds the file for longer than `wait_ms` */
    LDP_STORE_FULL = 9,
    LDP_STORE_CLEARED = 10,  /* the file of an enrolled device is missing or empty */
    LDP_STEP_FORGOTTEN = 11, /* the step can no longer be reported */
    LDP_CLOCK_WENT_BACK = 12,
    LDP_WALLET_FULL = 13,
    LDP_STORE = 14, /* the file is damaged, of a later version, or cannot be used for another reason */
    LDP_RANDOM = 15 /* the operating system gave no random bytes */
} ldp_code;

#define LDP_MESSAGE_BYTES 256

/* Why a call failed. The message is one line of UTF-8 without a person's value; a longer one is cut. */
typedef struct ldp_error {
    ldp_code code;
    char message[LDP_MESSAGE_BYTES];
} ldp_error;

/* How the program asks the person. A withdrawal in the file counts always. */
typedef enum ldp_consent_mode {
    LDP_ASKED = 0,    /* the device keeps the person's answer, and does nothing before `ldp_give_consent` */
    LDP_GIVEN = 1,    /* the program has asked in another way, and the person agreed */
    LDP_SIMULATED = 2 /* there is no person: DO_NOT_TRACK, CI and the operator's file do not count */
} ldp_consent_mode;

/* What the application requires of the survey. Texts are UTF-8 and end with a zero byte; NULL stands for none. */
typedef struct ldp_options {
    const char *survey; /* the device survey as JSON, of `survey_bytes` bytes */
    size_t survey_bytes;
    const char *path;   /* the device's file. Do not derive its name from the survey's name */
    const char *pin;    /* the pin that the application expects, 64 hexadecimal digits */
    const char *cohort; /* the device's present cohort. It travels in clear */
    double max_eps;     /* the largest allowed loss while the values stay the same, in nats; 0 for no limit */
    uint32_t wait_ms;   /* how long a call waits for another process; 0 for 30 seconds */
    ldp_consent_mode consent;
    bool expect_enrolled;
} ldp_options;

/* A person's device. */
typedef struct ldp_device ldp_device;

/* Opens the device of a file. Returns NULL after an error. */
ldp_device *ldp_open(const ldp_options *options, ldp_error *error);

/* Frees the device. Its file stays. NULL is allowed. */
void ldp_close(ldp_device *device);

/* Writes the text by which the program asks for consent, with a zero byte, and cuts it to `bytes` bytes. Returns the size of the
 * whole text. */
size_t ldp_question(const ldp_device *device, char *text, size_t bytes);

/* Returns the number of attributes about which the program has to ask the person, or -1 after an error. */
int ldp_to_ask(ldp_device *device, ldp_error *error);

/* Keeps the person's consent, and enrolls the device permanently. Returns 0, or -1 after an error. */
int ldp_give_consent(ldp_device *device, ldp_error *error);

/* Withdraws the consent: nothing more is sent, and nothing but the withdrawal is kept. Returns 0, or -1 after an error. */
int ldp_withdraw_consent(ldp_device *device, ldp_error *error);

/* Reports an attribute at the present step: one text for one value, two for a pair, any number for a question with several
 * answers. A number is given as its text, such as "7.5". Returns 1 if the device has a report, 0 if it makes none, and -1 after
 * an error. A repeated call at one step makes no second report. */
int ldp_answer(ldp_device *device, const char *attribute, const char *const *values, size_t count, ldp_error *error);

/* A report that may need another attempt. The pointers are valid during the visit. */
typedef struct ldp_report {
    const char *attribute;
    uint64_t step;
    const uint8_t *envelope; /* the request's body, of type application/vnd.ldpstream.envelope */
    size_t envelope_bytes;
    const char *key; /* the header Idempotency-Key of all attempts */
} ldp_report;

/* Writes a waiting report into the journal. Call it before each attempt, and send nothing if it returns 0: consent was withdrawn,
 * or the report does not wait any more. Returns 1 if the report may leave, and -1 after an error. */
int ldp_leaves(ldp_device *device, const char *key, ldp_error *error);

/* Visits the reports that wait, and returns their number, or -1 after an error. `visit` may call `ldp_settle`. */
int ldp_waiting(ldp_device *device, void (*visit)(const ldp_report *report, void *context), void *context, ldp_error *error);

/* A report that would leave now. The pointers are valid during the visit. */
typedef struct ldp_shown {
    const char *attribute;
    uint64_t step;
    const uint8_t *envelope; /* NULL if the device makes no report of this step */
    size_t envelope_bytes;
    const char *silence; /* why the report does not leave now; NULL if it leaves */
    bool example;        /* the report is not made yet, and chance draws another one: never send it */
    const char *text;    /* for the person: the bytes by their parts, and what each part can reveal, in several lines */
} ldp_shown;

/* Shows what `ldp_answer` with the same arguments would make and send now. Keeps and sends nothing, and needs no consent. Returns
 * 1 if the report would leave, 0 if nothing leaves now, and -1 after an error. */
int ldp_preview(ldp_device *device, const char *attribute, const char *const *values, size_t count,
                void (*visit)(const ldp_shown *shown, void *context), void *context, ldp_error *error);

/* A report that left, or may have left. It has the bytes that left, never a true value. The pointers are valid during the visit. */
typedef struct ldp_left {
    int64_t at_ms; /* the time of the latest attempt, in milliseconds since 1970 */
    const char *attribute;
    uint64_t step;
    const uint8_t *envelope;
    size_t envelope_bytes;
    bool local; /* the report left only for show: never with this library, but another program may share the file */
} ldp_left;

/* Visits the last reports that left this device, the latest last. Returns their number, or -1 after an error. */
int ldp_journal(ldp_device *device, void (*visit)(const ldp_left *left, void *context), void *context, ldp_error *error);

/* What a gateway's answer says about one report. */
typedef struct ldp_verdict {
    bool final;           /* settle the report */
    bool counts;          /* of a final answer */
    double retry_after_s; /* the shortest time to the next attempt */
} ldp_verdict;

/* Reads an answer to POST /v1/reports: its status, its headers Retry-After and Date (or NULL), and its body. */
ldp_verdict ldp_read_answer(uint16_t status, const char *retry_after, const char *date, const char *body, size_t body_bytes);

/* Marks the report with this key as settled. Returns 0, or -1 after an error. */
int ldp_settle(ldp_device *device, const char *key, ldp_error *error);

/* Erases memos, enrolment and reports permanently. `confirm` is the survey's name. Returns 0, or -1 after an error. */
int ldp_forget(ldp_device *device, const char *confirm, ldp_error *error);

#ifdef __cplusplus
}
#endif

#endif
