/** The signature of a survey, which an application may require: docs/reference/write_a_device.md has the rule. */

import { toHex } from "./bytes.js";
import { DeviceError, NotSigned } from "./errors.js";

const FORMAT = "ldpstream survey signature 1";

/**
 * Requires a signature of a canonical text by one of the keys.
 *
 * @param canonical the canonical text.
 * @param signatures the `signatures` of the device survey.
 * @param signedBy public keys in base64; one is enough.
 * @param survey name of the survey, for errors.
 */
export async function requireSignature(canonical: string, signatures: readonly unknown[], signedBy: readonly string[], survey: string): Promise<void> {
  const keys = signedBy.map(publicKey);
  if (keys.length === 0) throw new RangeError("signedBy must name at least one public key, got none");
  let why: string | null = "it has no signature";
  for (const signature of signatures) {
    why = await problemOf(canonical, signature, keys);
    if (why === null) return;
  }
  throw new NotSigned(`survey ${survey} is not signed: ${why}`);
}

/** Returns why a signature is not one of the text by one of the keys; null if it is. */
async function problemOf(canonical: string, signature: unknown, keys: readonly Uint8Array<ArrayBuffer>[]): Promise<string | null> {
  const { statement, signature: raw } = Object(signature) as Record<string, unknown>;
  const stated = typeof statement === "string" ? parsed(statement) : null;
  if (stated?.["format"] !== FORMAT) return `the signed statement must have the format ${FORMAT}`;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytesOf(canonical)));
  if (stated["canonical_sha256"] !== toHex(hash)) return "its signature is of another survey";
  const signed = typeof raw === "string" ? fromBase64(raw, 64) : null;
  for (const key of keys) {
    if (signed && (await verifies(key, signed, bytesOf(statement as string)))) return null;
  }
  return "its signature is not by the expected key";
}

function publicKey(text: string): Uint8Array<ArrayBuffer> {
  const key = fromBase64(text, 32);
  if (!key) throw new RangeError(`a public key must have 44 characters of base64, as \`ldpstream key\` prints it, got ${JSON.stringify(text)}`);
  return key;
}

async function verifies(key: Uint8Array<ArrayBuffer>, signature: Uint8Array<ArrayBuffer>, message: Uint8Array<ArrayBuffer>): Promise<boolean> {
  try {
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", imported, signature, message);
  } catch (error) {
    if ((error as Error).name !== "NotSupportedError") return false; // the bytes are not a public key
    throw new DeviceError("this browser cannot check signatures: its Web Crypto has no Ed25519");
  }
}

function parsed(statement: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(statement);
    return typeof value === "object" ? (value as Record<string, unknown> | null) : null;
  } catch {
    return null;
  }
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Returns the bytes of a text in base64; null if the text is something else or has another length. */
function fromBase64(text: string, length: number): Uint8Array<ArrayBuffer> | null {
  try {
    const characters = atob(text);
    return characters.length === length && btoa(characters) === text ? Uint8Array.from(characters, (c) => c.charCodeAt(0)) : null;
  } catch {
    return null;
  }
}
