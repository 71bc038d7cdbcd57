// Writes the calls of many devices for `python -m devices.conformance`, or posts one report of each device to a gateway.
//
//     Life SURVEY.json --calls CALLS.jsonl --devices 5000
//     Life SURVEY.json --gateway http://127.0.0.1:8080 --devices 200
//
// With the option `--fault yes`, each restart finds an empty store, as in a faulty program. The survey has one attribute of at
// least four numbered values, and no cohorts.

import Foundation
import LdpstreamDevice

let steps = 6
let arguments = CommandLine.arguments
var options: [String: String] = [:]
for place in stride(from: 2, to: arguments.count - 1, by: 2) { options[arguments[place]] = arguments[place + 1] }
let devices = Int(options["--devices"]!)!
let survey = try Survey.fromJson(text: Data(contentsOf: URL(fileURLWithPath: arguments[1])))
let attribute = survey.attributes()[0]

func open(_ store: Store) throws -> Device {
    try Device.open(survey: survey, store: store, options: Options(consent: .simulated))
}

/// A device keeps its value for half of the steps, changes it, and returns to it. Each device has two runs, with restarts.
func calls(of run: Int) throws -> String {
    let number = run / 2
    var store = Store.memory()
    var lines = ""
    for (first, next) in [(0, 1), (1, 4), (4, steps)] {
        if options["--fault"] != nil { store = Store.memory() }
        let device = try open(store)
        let values = (first..<next).map { (number + (steps / 2..<steps - 1 ~= $0 ? 1 : 0)) % 4 }
        let envelopes = try zip(first..<next, values).map { step, value in
            try device.report(attribute: attribute, value: .number(number: Double(value)), step: Int64(step))
        }
        let keys = Dictionary(uniqueKeysWithValues: try device.waiting().map { ($0.step, $0.key) })
        for (place, step) in (first..<next).enumerated() {
            let hex = envelopes[place].map { $0.map { String(format: "%02x", $0) }.joined() }
            let sent = hex.map { "\"\($0)\", \"key\": \"\(keys[Int64(step)]!)\"" } ?? "null"
            lines += "{\"device\": \(number), \"attribute\": \"\(attribute)\", \"value\": \(values[place]), \"step\": \(step), "
            lines += "\"run\": \(run % 2), \"envelope\": \(sent)}\n"
        }
    }
    return lines
}

func post(_ number: Int, to gateway: String) throws {
    let device = try open(Store.memory())
    _ = try device.answer(values: [attribute: .number(number: Double(number % 4))])
    try Sender(device: device, url: gateway).run()
}

if let file = options["--calls"] {
    try (0..<devices).map(calls).joined().write(toFile: file, atomically: true, encoding: .utf8)
}
if let gateway = options["--gateway"] {
    DispatchQueue.concurrentPerform(iterations: devices) { try! post($0, to: gateway) }
}
