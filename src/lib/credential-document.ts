import { isFields } from "./json.ts";

/**
 * Credentials that have several parts, such as a Google service account, go wherever a key goes: as a JSON
 * object, or as its base64, which has no spaces. Undefined where the text is a plain key.
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

/** One line of printable ASCII, as keys are, which `credentialDocument` reads again. */
export function credentialText(document: Readonly<Record<string, unknown>>): string {
  return Buffer.from(JSON.stringify(document)).toString("base64");
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;

function decoded(text: string): string | undefined {
  // Most keys end here: an object begins with "{", and "e" is how base64 begins that.
  if (!text.startsWith("e") || !BASE64.test(text)) return undefined;
  const json = Buffer.from(text, "base64").toString("utf8");
  return json.trimStart().startsWith("{") ? json : undefined;
}
