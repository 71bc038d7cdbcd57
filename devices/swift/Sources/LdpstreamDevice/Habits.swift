// What a program in Swift expects beside the generated calls.

import Foundation
#if canImport(FoundationNetworking)
    import FoundationNetworking // URLSession on Linux
#endif

extension Sender {
    /// Prepares the sending by `URLSession`.
    public convenience init(device: Device, way: Way, token: String? = nil) throws {
        try self.init(transport: SessionTransport(), device: device, way: way, token: token)
    }

    /// The same, straight to the gateway.
    public convenience init(device: Device, url: String, token: String? = nil) throws {
        try self.init(device: device, way: .direct(url: url), token: token)
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

/// The outcome of a request: the task sets it before its signal, and `post` reads it afterwards.
private final class Outcome: @unchecked Sendable {
    var result: Result<Response, NoAnswer> = .failure(.Failed(reason: "no answer"))
}

/// The HTTP client of the system.
public final class SessionTransport: NSObject, Transport, URLSessionTaskDelegate {
    private static let mostAnswerBytes = 1 << 20
    private static let answerSeconds = 15.0 // longer than the gateway's own time limits

    public func post(request: Request) throws -> Response {
        guard let url = URL(string: request.url) else { throw NoAnswer.Failed(reason: "malformed URL") }
        var posted = URLRequest(url: url, cachePolicy: .reloadIgnoringLocalCacheData)
        posted.httpMethod = "POST"
        posted.httpBody = request.body
        posted.setValue("*", forHTTPHeaderField: "Accept-Language") // the system's default tells the person's languages
        for (name, value) in request.headers { posted.setValue(value, forHTTPHeaderField: name) }
        // A session for each request: one connection would join the reports of a device.
        let session = URLSession(configuration: .ephemeral, delegate: self, delegateQueue: nil)
        defer { session.invalidateAndCancel() }
        let outcome = Outcome()
        let done = DispatchSemaphore(value: 0)
        session.dataTask(with: posted) { data, answer, error in
            if let answer = answer as? HTTPURLResponse {
                let header = { (name: String) in answer.value(forHTTPHeaderField: name) }
                outcome.result = .success(Response(
                    status: UInt16(answer.statusCode), retryAfter: header("Retry-After"), date: header("Date"),
                    body: (data ?? Data()).prefix(Self.mostAnswerBytes)
                ))
            } else {
                outcome.result = .failure(.Failed(reason: "no answer: \((error as? URLError)?.code.rawValue ?? 0)"))
            }
            done.signal()
        }.resume()
        // URLSession on Linux ignores its own limit of the whole answer.
        guard done.wait(timeout: .now() + Self.answerSeconds) == .success else { throw NoAnswer.Timeout }
        return try outcome.result.get()
    }

    /// Follows no redirect.
    public func urlSession(
        _: URLSession, task _: URLSessionTask, willPerformHTTPRedirection _: HTTPURLResponse, newRequest _: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }
}
