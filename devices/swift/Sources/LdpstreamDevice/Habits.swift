// What a program in Swift expects beside the generated calls.

import Foundation

extension Sender {
    /// Prepares the sending straight to the gateway, by `URLSession`.
    public convenience init(device: Device, url: String, token: String? = nil) throws {
        try self.init(transport: SessionTransport(), device: device, way: .direct(url: url), token: token)
    }

    /// Sends until no report waits, or the task is cancelled. It may take minutes.
    public func run() throws {
        try run(pause: Sleep())
    }
}

private final class Sleep: Pause {
    func pause(time: TimeInterval) -> Bool {
        Thread.sleep(forTimeInterval: time)
        return !Task.isCancelled
    }
}

/// The HTTP client of the system.
public final class SessionTransport: NSObject, Transport, URLSessionTaskDelegate {
    private static let mostAnswerBytes = 1 << 20
    private static let answerSeconds = 15.0 // longer than the gateway's own time limits

    public func post(request: Request) throws -> Response {
        guard let url = URL(string: request.url) else { throw NoAnswer.Failed(reason: "malformed URL") }
        var posted = URLRequest(url: url, cachePolicy: .reloadIgnoringLocalCacheData, timeoutInterval: Self.answerSeconds)
        posted.httpMethod = "POST"
        posted.httpBody = request.body
        for (name, value) in request.headers { posted.setValue(value, forHTTPHeaderField: name) }
        let settings = URLSessionConfiguration.ephemeral
        settings.timeoutIntervalForResource = Self.answerSeconds
        // A session for each request: one connection would join the reports of a device.
        let session = URLSession(configuration: settings, delegate: self, delegateQueue: nil)
        defer { session.finishTasksAndInvalidate() }
        var outcome: Result<Response, NoAnswer> = .failure(.Failed(reason: "no answer"))
        let done = DispatchSemaphore(value: 0)
        session.dataTask(with: posted) { data, answer, error in
            if let error = error as? URLError, error.code == .timedOut {
                outcome = .failure(.Timeout)
            } else if let answer = answer as? HTTPURLResponse {
                let header = { (name: String) in answer.value(forHTTPHeaderField: name) }
                outcome = .success(Response(
                    status: UInt16(answer.statusCode), retryAfter: header("Retry-After"), date: header("Date"),
                    body: (data ?? Data()).prefix(Self.mostAnswerBytes)
                ))
            } else {
                outcome = .failure(.Failed(reason: "no answer: \((error as? URLError)?.code.rawValue ?? 0)"))
            }
            done.signal()
        }.resume()
        done.wait()
        return try outcome.get()
    }

    /// Follows no redirect.
    public func urlSession(
        _: URLSession, task _: URLSessionTask, willPerformHTTPRedirection _: HTTPURLResponse, newRequest _: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }
}
