// Writes the calls of many devices for `python -m devices.conformance`, or posts one report of each device to a gateway.
//
//     LifeKt SURVEY.json --calls CALLS.jsonl --seed 7 --devices 2000
//     LifeKt SURVEY.json --gateway http://127.0.0.1:8080 --devices 200
//
// With the option `--fault yes`, each restart finds an empty store, as in a faulty program. The survey has one attribute.

import java.io.File
import kotlin.concurrent.thread
import ldpstream.device.*

private const val STEPS = 6

private class Plan(arguments: Array<String>) {
    val options = arguments.drop(1).chunked(2).associate { it[0] to it[1] }
    val devices = options.getValue("--devices").toInt()
    val document = File(arguments[0]).readBytes()
    val survey = Survey.fromJson(document)
    val attribute = survey.attributes().single()
    val cohorts = Regex("""\\"cohort\\":\{[^}]*\\"values\\":\[([^]]*)]""").find(document.decodeToString())
        ?.groupValues?.get(1)?.replace("\\\"", "")?.split(",")

    fun open(number: Int, store: Store, seed: String) =
        Device.seeded(survey, store, Options(cohort = cohort(number), consent = ConsentMode.SIMULATED), seed)

    fun cohort(number: Int) = cohorts?.let { it[number % it.size] }

    /** A device keeps its value for half of the steps, changes it, and returns to it. Each device has two runs, with restarts. */
    fun write(seed: String, out: Appendable) {
        for (run in 0 until devices) {
            val number = run / 2
            var store = Store.memory()
            for ((first, next) in listOf(0 to 1, 1 to 4, 4 to STEPS)) {
                if ("--fault" in options) store = Store.memory()
                open(number, store, "$seed $run $first").use { device ->
                    val values = (first until next).associateWith { (number + if (it in STEPS / 2 until STEPS - 1) 1 else 0) % 4 }
                    val envelopes = values.mapValues { (step, value) -> device.report(attribute, valueOf(value), step.toLong()) }
                    val keys = device.waiting().associate { it.step.toInt() to it.key }
                    for ((step, envelope) in envelopes) {
                        val cohort = cohort(number)?.let { """, "cohort": "$it"""" }.orEmpty()
                        val sent = envelope?.let { """"${it.toHexString()}", "key": "${keys[step]}"""" }
                        out.append("""{"device": $number, "attribute": "$attribute", "value": ${values[step]}, "step": $step, """)
                        out.append(""""run": ${run % 2}$cohort, "envelope": $sent}""" + "\n")
                    }
                }
            }
        }
    }

    fun post(gateway: String) {
        val all = List(devices) { number ->
            thread {
                val device = Device.open(survey, Store.memory(), Options(cohort = cohort(number), consent = ConsentMode.SIMULATED))
                device.answer(attribute to number % 4)
                Sender(device, gateway).run()
            }
        }
        all.forEach { it.join() }
    }
}

fun main(arguments: Array<String>) {
    val plan = Plan(arguments)
    plan.options["--gateway"]?.let { plan.post(it) }
    plan.options["--calls"]?.let { file -> File(file).bufferedWriter().use { plan.write(plan.options.getValue("--seed"), it) } }
}
