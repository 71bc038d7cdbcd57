// Checks the type of each error, that a store is reopened with what it kept, and that no text shows a value.
//
//     ErrorsKt SURVEY.json FOLDER       the survey's one attribute has numbers from 0

import java.io.File
import ldpstream.device.*

private inline fun <reified E : DeviceException> refused(call: () -> Unit) {
    val error = runCatching(call).exceptionOrNull()
    check(error is E) { "expected ${E::class.simpleName}, got $error" }
    check("4242" !in error.toString())
}

fun main(arguments: Array<String>) {
    val (path, folder) = arguments
    val survey = Survey.fromJson(File(path).readBytes())
    val attribute = survey.attributes().single()
    val file = "$folder/answers.device"
    val given = Options(consent = ConsentMode.GIVEN, pin = survey.pin())
    fun open(options: Options, store: Store = Store.file(file)) = Device.open(survey, store, options)

    refused<DeviceException.UnknownSurvey> { Survey.fromJson("{".encodeToByteArray()) }
    refused<DeviceException.WrongSurvey> { open(Options(pin = "0".repeat(64))) }
    refused<DeviceException.CostlySurvey> { open(Options(maxEps = 0.01)) }
    refused<DeviceException.NotSigned> { open(Options(signedBy = listOf("A".repeat(43) + "="))) }
    refused<DeviceException.StoreCleared> { open(Options(expectEnrolled = true)) }
    refused<DeviceException.Store> { open(given, Store.file("$folder/missing/answers.device")) }
    refused<DeviceException.Value> { open(Options(cohort = "1.0")) }
    refused<DeviceException.WalletFull> {
        Wallet.open(Store.memory(), Budget(forEver = 0.1)).device(survey, given).report(attribute, valueOf(1))
    }
    val device = open(given)
    refused<DeviceException.Value> { device.answer(attribute to "4242 is no number") }
    refused<DeviceException.Value> { device.report(attribute, valueOf(1), -4) }
    refused<DeviceException.Value> { Sender(device, "gateway.example") }
    refused<DeviceException.Value> { device.forget("another name") }
    check("4242" !in Value.text("4242").toString())

    val made = device.answer(attribute to 1).getValue(attribute)
    val step = device.waiting().single().step
    device.close()
    open(given).use { again ->
        check(again.report(attribute, valueOf(2), step).contentEquals(made)) { "a step has one report, also after a restart" }
        check(again.preview(mapOf(attribute to valueOf(2)), step).single().envelope.contentEquals(made))
        check(again.spent(attribute).reports == 1UL)
        Sender(again, Way.Local).attempt().let { check(it.accepted == 1U && it.waiting == 0U) }
        check(again.journal().single().local)
        again.withdrawConsent()
        check(again.consent() == Consent.WITHDRAWN && again.answer(attribute to 1).isEmpty())
    }
}
