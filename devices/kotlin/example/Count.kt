// A program that counts its own use.
//
//     count SURVEY.json FOLDER ask                 shows the question; then `yes` or `no` keeps the answer
//     count SURVEY.json FOLDER run GATEWAY         records the use with consent, and sends what waits; `run local` sends nothing
//     count SURVEY.json FOLDER preview             shows what would leave now, after a use
//     count SURVEY.json FOLDER journal             shows what left
//
// The survey has attributes with a recipe only, so that the device computes all values from the log of use.

import java.io.File
import kotlin.system.exitProcess
import ldpstream.device.*

private fun count(survey: String, folder: File, command: String, gateway: String?) {
    val device = Device.open(Survey.fromJson(File(survey).readBytes()), Store.file("$folder/answers.device"))
    val activity = Activity.open(Store.file("$folder/usage.activity"))
    when (command) {
        "ask" -> println(device.question())
        "yes" -> device.giveConsent()
        "no" -> {
            device.withdrawConsent()
            activity.forget()
        }
        "run" -> {
            if (device.consent() == Consent.GIVEN) activity.seen()
            activity.answer(device)
            Sender(device, if (gateway == "local") Way.Local else Way.Direct(gateway.orEmpty())).run()
        }
        "preview" -> {
            val shown = activity.preview(device)
            shown.forEach { println(it.text) }
            if (shown.isEmpty()) println("Nothing would leave: the log has no use of this step.")
        }
        "journal" -> device.journal().forEach {
            val place = if (it.local) "stayed here" else "left"
            println("${it.attribute} of step ${it.step}: ${it.envelope.size} bytes $place")
        }
        else -> throw IllegalArgumentException("the command must be ask, yes, no, run, preview or journal, got $command")
    }
}

fun main(arguments: Array<String>) {
    try {
        require(arguments.size >= 3) { "give SURVEY.json FOLDER COMMAND" }
        count(arguments[0], File(arguments[1]), arguments[2], arguments.getOrNull(3))
    } catch (error: Exception) {
        System.err.println("count: ${error.message}")
        exitProcess(2)
    }
}
