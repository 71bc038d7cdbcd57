/** A relay and the gateway behind it, for tests, with the cryptography of Node. */

import { createCipheriv, createDecipheriv, createHmac, createPrivateKey, createPublicKey, diffieHellman, randomBytes } from "node:crypto";

const der = (prefix: string, raw: Uint8Array) => Buffer.concat([Buffer.from(prefix, "hex"), raw]);
const SECRET = createPrivateKey({ key: der("302e020100300506032b656e04220420", Buffer.alloc(32, 7)), format: "der", type: "pkcs8" });
const PUBLIC = createPublicKey(SECRET).export({ format: "der", type: "spki" }).subarray(-32);
const HEAD = Buffer.from("07002000010001", "hex");

/** The gateway's key configuration. */
export const KEYS = Buffer.concat([Buffer.from("002d070020", "hex"), PUBLIC, Buffer.from("000800010001" + "00010003", "hex")]).toString("base64");

const hmac = (key: Uint8Array, ...parts: (Uint8Array | string)[]) => parts.reduce((sum, part) => sum.update(part), createHmac("sha256", key)).digest();
const KEM = Buffer.from("4b454d0020", "hex");
const HPKE = Buffer.from("48504b45002000010001", "hex");
const extract = (suite: Buffer, salt: Uint8Array, label: string, secret: Uint8Array) => hmac(salt, "HPKE-v1", suite, label, secret);
const expand = (suite: Buffer, prk: Buffer, label: string, info: Uint8Array, size: number) =>
  hmac(prk, Buffer.from([0, size]), "HPKE-v1", suite, label, info, Buffer.from([1])).subarray(0, size);

/** Opens a request. Returns the message, and a function that seals a binary HTTP response. */
export function open(capsule: Uint8Array): { message: Buffer; seal: (response: Buffer) => Uint8Array<ArrayBuffer> } {
  const enc = Buffer.from(capsule.subarray(7, 39));
  if (!HEAD.equals(capsule.subarray(0, 7))) throw new Error("another key or algorithm");
  const theirs = createPublicKey({ key: der("302a300506032b656e032100", enc), format: "der", type: "spki" });
  const dh = diffieHellman({ privateKey: SECRET, publicKey: theirs });
  const empty = Buffer.alloc(0);
  const shared = expand(KEM, extract(KEM, empty, "eae_prk", dh), "shared_secret", Buffer.concat([enc, PUBLIC]), 32);
  const info = Buffer.concat([Buffer.from("message/bhttp request\0"), HEAD]);
  const context = Buffer.concat([Buffer.from([0]), extract(HPKE, empty, "psk_id_hash", empty), extract(HPKE, empty, "info_hash", info)]);
  const secret = extract(HPKE, shared, "secret", empty);
  const decipher = createDecipheriv("aes-128-gcm", expand(HPKE, secret, "key", context, 16), expand(HPKE, secret, "base_nonce", context, 12));
  decipher.setAuthTag(capsule.subarray(-16));
  const message = Buffer.concat([decipher.update(capsule.subarray(39, -16)), decipher.final()]);
  const exported = expand(HPKE, expand(HPKE, secret, "exp", context, 32), "sec", Buffer.from("message/bhttp response"), 16);
  const seal = (response: Buffer) => {
    const nonce = randomBytes(16);
    const prk = hmac(Buffer.concat([enc, nonce]), exported);
    const part = (label: string, size: number) => hmac(prk, label, Buffer.from([1])).subarray(0, size);
    const cipher = createCipheriv("aes-128-gcm", part("key", 16), part("nonce", 12));
    return Uint8Array.from(Buffer.concat([nonce, cipher.update(response), cipher.final(), cipher.getAuthTag()]));
  };
  return { message, seal };
}

/** A binary HTTP response with a problem document, padded. */
export function response(status: number, retryAfter?: number): Buffer {
  const sized = (text: string) => Buffer.concat([Buffer.from([0x40 | (text.length >> 8), text.length & 0xff]), Buffer.from(text)]);
  const fields = retryAfter === undefined ? "" : Buffer.concat([sized("retry-after"), sized(String(retryAfter))]).toString("latin1");
  const content = status === 202 ? '{"accepted":1}' : JSON.stringify({ type: "urn:ldpstream:problem:x", title: `problem ${status}`, status });
  return Buffer.concat([Buffer.from([1, 0x40 | (status >> 8), status & 0xff]), sized(fields), sized(content), Buffer.alloc(400)]);
}
