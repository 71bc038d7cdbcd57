// A program that counts its own use.
//
//     Count SURVEY.json FOLDER ask                 shows the question; then `yes` or `no` keeps the answer
//     Count SURVEY.json FOLDER run GATEWAY         records the use with consent, and sends what waits; `run local` sends nothing
//     Count SURVEY.json FOLDER preview             shows what would leave now, after a use
//     Count SURVEY.json FOLDER journal             shows what left
//
// The survey has attributes with a recipe only, so that the device computes all values from the log of use.

import Foundation
import LdpstreamDevice

func count(survey: String, folder: String, command: String, gateway: String) throws {
    let known = try Survey.fromJson(text: Data(contentsOf: URL(fileURLWithPath: survey)))
    let device = try Device.open(survey: known, store: Store.file(path: "\(folder)/answers.device"))
    let activity = try Activity.open(store: Store.file(path: "\(folder)/usage.activity"))
    switch command {
    case "ask": print(device.question())
    case "yes": try device.giveConsent()
    case "no":
        try device.withdrawConsent()
        try activity.forget()
    case "run":
        if try device.consent() == .given { try activity.seen() }
        _ = try activity.answer(device: device)
        try Sender(device: device, way: gateway == "local" ? .local : .direct(url: gateway)).run()
    case "preview":
        let shown = try activity.preview(device: device)
        shown.forEach { print($0.text) }
        if shown.isEmpty { print("Nothing would leave: the log has no use of this step.") }
    case "journal":
        for one in try device.journal() {
            print("\(one.attribute) of step \(one.step): \(one.envelope.count) bytes \(one.local ? "stayed here" : "left")")
        }
    default: throw Refused(errorDescription: "the command must be ask, yes, no, run, preview or journal, got \(command)")
    }
}

struct Refused: LocalizedError {
    let errorDescription: String?
}

do {
    let given = CommandLine.arguments
    guard given.count >= 4 else { throw Refused(errorDescription: "give SURVEY.json FOLDER COMMAND") }
    try count(survey: given[1], folder: given[2], command: given[3], gateway: given.count > 4 ? given[4] : "")
} catch {
    FileHandle.standardError.write(Data("count: \(error.localizedDescription)\n".utf8))
    exit(2)
}
