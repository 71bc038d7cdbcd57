// Counts its own use, in an event loop that nothing blocks: the loop's timer ticks while a report is on its way.
//
//     count SURVEY.json FILE HOST PORT ATTRIBUTE VALUE
//
// The loop stands for that of a graphical program: one descriptor for the connection, one timer.

#include "ldpstream_device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kTickMs = 10;

struct Report {
    std::string key;
    std::string body;
};

// The answer to one request: the status, the headers and the body.
struct Answer {
    int status = 0;
    std::string retry_after;
    std::string body;
};

struct Closing {
    void operator()(ldp_device *device) const { ldp_close(device); }
};

[[noreturn]] void fail(const std::string &why) {
    std::fprintf(stderr, "count: %s\n", why.c_str());
    std::exit(2);
}

void collect(const ldp_report *report, void *context) {
    const auto *bytes = reinterpret_cast<const char *>(report->envelope);
    static_cast<std::vector<Report> *>(context)->push_back({report->key, std::string(bytes, report->envelope_bytes)});
}

void show(const ldp_shown *shown, void *) { std::printf("%s\n", shown->text); }

void show_left(const ldp_left *left, void *) {
    std::printf("%s of step %llu: %zu bytes left\n", left->attribute, static_cast<unsigned long long>(left->step),
                left->envelope_bytes);
}

Answer parsed(const std::string &text) {
    Answer answer;
    const auto head = text.find("\r\n\r\n");
    if (head == std::string::npos || std::sscanf(text.c_str(), "HTTP/1.%*d %d", &answer.status) != 1) {
        return {};
    }
    answer.body = text.substr(head + 4);
    for (std::size_t line = text.find("\r\n") + 2; line < head; line = text.find("\r\n", line) + 2) {
        std::string name = text.substr(line, 13);
        for (char &letter : name) {
            letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
        }
        if (name == "retry-after: ") {
            answer.retry_after = text.substr(line + 13, text.find("\r\n", line) - line - 13);
        }
    }
    return answer;
}

// Posts a report without blocking; adds the ticks of the timer that passed meanwhile.
Answer post(const sockaddr_in &address, const std::string &host, const Report &report, int &ticks) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        fail("no socket");
    }
    std::string request = "POST /v1/reports HTTP/1.1\r\nHost: " + host +
                          "\r\nConnection: close\r\nUser-Agent: ldpstream\r\n"
                          "Content-Type: application/vnd.ldpstream.envelope\r\nIdempotency-Key: " +
                          report.key + "\r\nContent-Length: " + std::to_string(report.body.size()) + "\r\n\r\n" + report.body;
    if (connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) < 0 && errno != EINPROGRESS) {
        close(fd);
        return {};
    }
    std::string received;
    for (bool open = true; open;) {
        pollfd waits{fd, static_cast<short>(request.empty() ? POLLIN : POLLOUT), 0};
        if (poll(&waits, 1, kTickMs) == 0) {
            ++ticks; // here a graphical program draws its window
            continue;
        }
        char buffer[4096];
        if (!request.empty()) {
            const ssize_t sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
            open = sent > 0;
            request.erase(0, open ? static_cast<std::size_t>(sent) : 0);
        } else {
            const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            open = got > 0;
            received.append(buffer, open ? static_cast<std::size_t>(got) : 0);
        }
    }
    close(fd);
    return parsed(received);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 7) {
        fail("give SURVEY.json FILE HOST PORT ATTRIBUTE VALUE");
    }
    std::ifstream file(argv[1], std::ios::binary);
    const std::string survey{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    ldp_error error{};
    ldp_options options{};
    options.survey = survey.data();
    options.survey_bytes = survey.size();
    options.path = argv[2];
    const std::unique_ptr<ldp_device, Closing> device(ldp_open(&options, &error));
    if (!device) {
        fail(error.message);
    }
    const char *const values[] = {argv[6]};
    if (ldp_to_ask(device.get(), &error) > 0) {
        std::string question(ldp_question(device.get(), nullptr, 0) + 1, '\0');
        ldp_question(device.get(), question.data(), question.size());
        std::printf("%s\n\nWith your answer, this would leave:\n", question.c_str());
        if (ldp_preview(device.get(), argv[5], values, 1, show, nullptr, &error) < 0) {
            fail(error.message);
        }
        std::printf("Send your answers? [y/n] ");
        const int answer = std::getchar();
        if ((answer == 'y' ? ldp_give_consent(device.get(), &error) : ldp_withdraw_consent(device.get(), &error)) < 0) {
            fail(error.message);
        }
    }
    const int made = ldp_answer(device.get(), argv[5], values, 1, &error);
    if (made < 0 || (made == 0 && ldp_preview(device.get(), argv[5], values, 1, show, nullptr, &error) < 0)) {
        fail(error.message); // a preview says why the device makes no report
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[4])));
    if (inet_pton(AF_INET, argv[3], &address.sin_addr) != 1) {
        fail("HOST must be an address such as 127.0.0.1");
    }
    std::vector<Report> reports;
    if (ldp_waiting(device.get(), collect, &reports, &error) < 0) {
        fail(error.message);
    }
    int ticks = 0;
    std::random_device random;
    for (const Report &report : reports) {
        ldp_verdict verdict{};
        double longest_s = 1;
        while (!verdict.final) {
            const int leaves = ldp_leaves(device.get(), report.key.c_str(), &error);
            if (leaves < 0) {
                fail(error.message);
            }
            if (leaves == 0) {
                break; // the person withdrew the consent
            }
            const Answer answer = post(address, std::string(argv[3]) + ":" + argv[4], report, ticks);
            const char *retry = answer.retry_after.empty() ? nullptr : answer.retry_after.c_str();
            const auto status = static_cast<std::uint16_t>(answer.status);
            verdict = ldp_read_answer(status, retry, nullptr, answer.body.data(), answer.body.size());
            if (!verdict.final) {
                const double extra_s = std::uniform_real_distribution<>(0, longest_s)(random); // devices do not retry together
                poll(nullptr, 0, static_cast<int>(1000 * (verdict.retry_after_s + extra_s))); // in a program: its timer
                longest_s = std::min(2 * longest_s, 300.0);
                ++ticks;
            }
        }
        if (verdict.final && ldp_settle(device.get(), report.key.c_str(), &error) < 0) {
            fail(error.message);
        }
        std::printf("%s\n", verdict.counts ? "counted" : verdict.final ? "refused" : "stays here");
    }
    if (ldp_journal(device.get(), show_left, nullptr, &error) < 0) {
        fail(error.message);
    }
    std::printf("%zu reports, %d ticks\n", reports.size(), ticks);
}
