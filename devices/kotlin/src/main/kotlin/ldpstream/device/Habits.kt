// What a program in Kotlin expects beside the generated calls.

package ldpstream.device

import java.io.ByteArrayOutputStream
import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.SocketTimeoutException
import java.net.URL
import java.time.Duration

private const val MOST_ANSWER_BYTES = 1 shl 20
private const val ANSWER_MS = 15_000 // longer than the gateway's own time limits

/** Reports several attributes at the present step: `device.answer("mode" to "bicycle", "distance_km" to 7.5)`. */
fun Device.answer(vararg values: Pair<String, Any>): Map<String, ByteArray> = answer(values.associate { (name, it) -> name to valueOf(it) })

/** Shows what `answer` would make and send now. */
fun Device.preview(vararg values: Pair<String, Any>): List<Preview> = preview(values.associate { (name, it) -> name to valueOf(it) })

/** The value of a text, a number, or the list of a pair or of several answers. */
fun valueOf(value: Any): Value =
    when (value) {
        is String -> Value.text(value)
        is Number -> Value.number(value.toDouble())
        is Iterable<*> -> Value.list(value.map { valueOf(requireNotNull(it)) })
        else -> throw IllegalArgumentException("a value must be a text, a number or a list, got a ${value::class.simpleName}")
    }

/** Prepares the sending by the platform's own HTTP client. */
fun Sender(device: Device, way: Way, token: String? = null): Sender = Sender(HttpTransport(), device, way, token)

/** The same, straight to the gateway. */
fun Sender(device: Device, url: String, token: String? = null): Sender = Sender(device, Way.Direct(url), token)

/** Sends until no report waits, or the thread is interrupted. It may take minutes: give it a thread of its own. */
fun Sender.run() = run(Sleep)

private object Sleep : Pause {
    override fun pause(time: Duration): Boolean =
        try {
            Thread.sleep(time.toMillis())
            true
        } catch (_: InterruptedException) {
            Thread.currentThread().interrupt()
            false
        }
}

/** The HTTP client of the JVM and of Android. */
class HttpTransport : Transport {
    override fun post(request: Request): Response {
        val latest = System.nanoTime() + ANSWER_MS * 1_000_000L
        val connection = URL(request.url).openConnection() as HttpURLConnection
        try {
            connection.requestMethod = "POST"
            connection.instanceFollowRedirects = false
            connection.connectTimeout = ANSWER_MS
            connection.readTimeout = ANSWER_MS
            connection.doOutput = true
            connection.setFixedLengthStreamingMode(request.body.size) // so that the client sends no second time by itself
            request.headers.forEach { (name, value) -> connection.setRequestProperty(name, value) }
            connection.setRequestProperty("Connection", "close") // one connection would join the reports of a device
            connection.outputStream.use { it.write(request.body) }
            val status = connection.responseCode
            val stream = if (status < 400) connection.inputStream else connection.errorStream
            val body = stream?.use { read(it, latest) } ?: ByteArray(0)
            return Response(status.toUShort(), connection.getHeaderField("Retry-After"), connection.getHeaderField("Date"), body)
        } catch (_: SocketTimeoutException) {
            throw NoAnswer.Timeout()
        } catch (error: IOException) {
            throw NoAnswer.Failed(error.javaClass.simpleName)
        } finally {
            connection.disconnect()
        }
    }

    private fun read(stream: InputStream, latest: Long): ByteArray {
        val body = ByteArrayOutputStream()
        val part = ByteArray(8192)
        while (body.size() < MOST_ANSWER_BYTES) {
            if (System.nanoTime() > latest) throw NoAnswer.Timeout()
            val size = stream.read(part)
            if (size < 0) break
            body.write(part, 0, size)
        }
        return body.toByteArray()
    }
}
