import { isFields } from "./json.ts";

/**
 * Returns the parsed credentials if the text is a JSON object, or the base64 of one, which has no spaces.
 * Credentials with several parts, such as a Google service account, are stored like keys in this form. Returns
 * undefined if the text is a plain key.
 */
export function credentialDocument(text: string): Readonly<Record<string, unknown>> | undefined {
  const json = text.trimStart().startsWith("{") ? text : decoded(text);
  if (json === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(json);
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the credentials as one line of printable ASCII, like a key. `credentialDocument` reads it. */
export function credentialText(document: Readonly<Record<string, unknown>>): string {
  return Buffer.from(JSON.stringify(document)).toString("base64");
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;

function decoded(text: string): string | undefined {
  // Most keys are excluded here: an object begins with "{", whose base64 begins with "e".
  if (!text.startsWith("e") || !BASE64.test(text)) return undefined;
  const json = Buffer.from(text, "base64").toString("utf8");
  return json.trimStart().startsWith("{") ? json : undefined;
}
