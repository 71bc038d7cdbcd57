/**
 * Requests through a relay, which hides who sends them: Oblivious HTTP (RFC 9458), with HPKE (RFC 9180) from Web Crypto.
 *
 * The algorithms are X25519, HKDF-SHA256 and AES-128-GCM. Each request has a fresh key. docs/howto/relay.md has the rules for devices.
 */

import { largestEnvelope } from "./envelope.js";
import { DeviceError } from "./errors.js";
import type { Survey } from "./survey.js";

type Bytes = Uint8Array<ArrayBuffer>;

const ALGORITHMS = [0x00, 0x20, 0x00, 0x01, 0x00, 0x01]; // DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM
const [KEY_BYTES, NONCE_BYTES, PUBLIC_BYTES, HASH_BYTES] = [16, 12, 32, 32];
const BODILESS = [204, 205, 304];

/** The relay before a gateway, and the gateway's key. */
export interface RelayOptions {
  readonly url: string; // the relay's URL for this gateway
  /** The gateway's key configuration in base64, as `ldpstream relay-key` prints it. Ship it with the application: see docs/howto/relay.md. */
  readonly keys: string;
}

/** A sealed request: its bytes, and a function that returns the gateway's answer, or throws if the bytes do not answer this request. */
export interface Sealed {
  readonly capsule: Bytes;
  open(answer: Uint8Array): Promise<Response>;
}

/** Seals requests of one survey for one gateway. */
export class Envoy {
  private readonly head: Bytes;
  private readonly publicKey: Bytes;
  private readonly largest: number;
  private readonly target: URL;

  /**
   * @param keys the gateway's key configuration in base64.
   * @param url the gateway's URL, without a path.
   * @param token bearer token, if the gateway needs one.
   * @throws RangeError if `keys` is not a key configuration that this version knows, or the URL is malformed.
   */
  constructor(
    survey: Survey,
    keys: string,
    url: string,
    private readonly token?: string,
  ) {
    const config = configOf(keys);
    if (!config) throw new RangeError("keys must be a key configuration in base64, as `ldpstream relay-key` prints it");
    [this.head, this.publicKey] = [bytes([config.id], ALGORITHMS), config.publicKey];
    const target = URL.canParse(url) ? new URL(url) : null;
    if (!target || !/^https?:$/.test(target.protocol) || target.href !== `${target.origin}/`) {
      throw new RangeError("behind a relay, a gateway's URL must be http[s]://host[:port] without a path");
    }
    this.target = target;
    this.largest = largestEnvelope(survey);
  }

  /** The request inside, padded with zeros to the size of the survey's largest request. */
  message(envelope: Uint8Array, key: string): Bytes {
    const fields = [["content-type", "application/vnd.ldpstream.envelope"], ["idempotency-key", key]];
    if (this.token !== undefined) fields.push(["authorization", `Bearer ${this.token}`]);
    const control = ["POST", this.target.protocol.slice(0, -1), this.target.host, "/v1/reports"];
    const head = bytes([0], ...control.map((part) => sized(ascii(part))), sized(bytes(...fields.flat().map((part) => sized(ascii(part))))));
    const message = new Uint8Array(head.length + sized(new Uint8Array(this.largest)).length + 1);
    message.set(bytes(head, sized(envelope), [0]));
    return message;
  }

  /**
   * Encrypts a message.
   *
   * @param pair a fresh key pair; only test vectors give it.
   * @throws DeviceError if Web Crypto has no X25519.
   */
  async seal(message: Bytes, pair?: CryptoKeyPair): Promise<Sealed> {
    const { privateKey, publicKey } = pair ?? (await freshPair());
    const enc = new Uint8Array(await crypto.subtle.exportKey("raw", publicKey));
    const theirs = await crypto.subtle.importKey("raw", this.publicKey, "X25519", false, []);
    const dh = await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, privateKey, 8 * PUBLIC_BYTES);
    const kem = new Labelled(bytes(ascii("KEM"), ALGORITHMS.slice(0, 2)));
    const shared = await kem.expand(await kem.extract([], "eae_prk", dh), "shared_secret", bytes(enc, this.publicKey), HASH_BYTES);
    const hpke = new Labelled(bytes(ascii("HPKE"), ALGORITHMS));
    const info = bytes(ascii("message/bhttp request"), [0], this.head);
    const context = bytes([0], await hpke.extract([], "psk_id_hash", []), await hpke.extract([], "info_hash", info));
    const secret = await hpke.extract(shared, "secret", []);
    const key = await hpke.expand(secret, "key", context, KEY_BYTES);
    const nonce = await hpke.expand(secret, "base_nonce", context, NONCE_BYTES);
    const exporter = await hpke.expand(secret, "exp", context, HASH_BYTES);
    const exported = await hpke.expand(exporter, "sec", ascii("message/bhttp response"), KEY_BYTES);
    const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, await aes(key), message);
    const open = async (answer: Uint8Array) => {
      const prk = await hmac(bytes(enc, answer.subarray(0, KEY_BYTES)), exported);
      const iv = await expand(prk, ascii("nonce"), NONCE_BYTES);
      const opened = await crypto.subtle.decrypt({ name: "AES-GCM", iv }, await aes(await expand(prk, ascii("key"), KEY_BYTES)), bytes(answer.subarray(KEY_BYTES)));
      return responseOf(new Uint8Array(opened));
    };
    return { capsule: bytes(this.head, enc, sealed), open };
  }
}

async function freshPair(): Promise<CryptoKeyPair> {
  try {
    return (await crypto.subtle.generateKey("X25519", false, ["deriveBits"])) as CryptoKeyPair;
  } catch {
    throw new DeviceError("this browser cannot send through a relay: its Web Crypto has no X25519");
  }
}

/** The first configuration with our algorithms, of a document in base64; null if there is none. */
function configOf(keys: string): { id: number; publicKey: Bytes } | null {
  let document: Bytes;
  try {
    document = Uint8Array.from(atob(keys), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
  for (let at = 0; at + 2 <= document.length; ) {
    const whole = document.subarray(at + 2, at + 2 + (document[at]! << 8) + document[at + 1]!);
    at += 2 + (document[at]! << 8) + document[at + 1]!;
    const [publicKey, suites] = [whole.slice(3, 3 + PUBLIC_BYTES), whole.subarray(5 + PUBLIC_BYTES)];
    const stated = (whole[3 + PUBLIC_BYTES]! << 8) + whole[4 + PUBLIC_BYTES]!;
    if (at > document.length || whole[1] !== 0 || whole[2] !== 0x20 || stated !== suites.length) continue;
    for (let suite = 0; suite + 4 <= suites.length; suite += 4) {
      if (ALGORITHMS.slice(2).every((byte, i) => suites[suite + i] === byte)) return { id: whole[0]!, publicKey };
    }
  }
  return null;
}

// ---- HPKE

/** The labelled functions of RFC 9180, section 4. */
class Labelled {
  constructor(private readonly suite: Bytes) {}

  extract(salt: Part, label: string, secret: Part): Promise<Bytes> {
    return hmac(bytes(salt), bytes(ascii("HPKE-v1"), this.suite, ascii(label), secret));
  }

  expand(prk: Bytes, label: string, info: Part, size: number): Promise<Bytes> {
    return expand(prk, bytes([0, size], ascii("HPKE-v1"), this.suite, ascii(label), info), size);
  }
}

/** At most 32 bytes of HKDF-Expand. */
async function expand(prk: Bytes, info: Part, size: number): Promise<Bytes> {
  return (await hmac(prk, bytes(info, [1]))).slice(0, size);
}

async function hmac(key: Bytes, message: Bytes): Promise<Bytes> {
  const raw = key.length ? key : new Uint8Array(HASH_BYTES); // Web Crypto refuses an empty key, which means the same
  const imported = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

const aes = (key: Bytes) => crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt", "decrypt"]);

// ---- binary HTTP

/** The response of a binary HTTP message of known length (RFC 9292). */
function responseOf(message: Bytes): Response {
  let at = 0;
  const number = () => {
    const size = 1 << (message[at]! >> 6);
    const found = message.subarray(at, at + size).reduce((sum, byte, i) => sum * 256 + (i ? byte : byte & 0x3f), 0);
    at += size;
    if (!(at <= message.length)) throw new RangeError("the message ends too early");
    return found;
  };
  const part = () => {
    const size = number();
    at += size;
    if (at > message.length) throw new RangeError("the message ends too early");
    return message.slice(at - size, at);
  };
  if (number() !== 1) throw new RangeError("the message is not a response of known length");
  const status = number();
  const [end, headers] = [number() + at, new Headers()];
  const latin1 = (raw: Bytes) => String.fromCharCode(...raw);
  while (at < end) headers.append(latin1(part()), latin1(part()));
  return new Response(BODILESS.includes(status) ? null : part(), { status, headers });
}

/** The bytes, preceded by their length as a QUIC variable-length integer (RFC 9000). */
function sized(part: Uint8Array): Bytes {
  const n = part.length;
  return bytes(n < 0x40 ? [n] : n < 0x4000 ? [0x40 | (n >> 8), n & 0xff] : [0x80 | (n >> 24), (n >> 16) & 0xff, (n >> 8) & 0xff, n & 0xff], part);
}

// ---- bytes

type Part = ArrayLike<number> | ArrayBuffer;

/** The parts, one after the other. */
function bytes(...parts: Part[]): Bytes {
  const all = parts.map((part) => (part instanceof ArrayBuffer ? new Uint8Array(part) : part));
  const joined = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of all) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

const ascii = (text: string): Bytes => new TextEncoder().encode(text);
