import { isObject, type LineFault } from "./json-lines-check.ts";

const FIELDS = ["custom_id", "method", "url", "body"];
const MAX_CUSTOM_ID_CHARACTERS = 512;

/** A request of a batch: `{custom_id, method, url, body}` (OpenAI's batch envelope). */
export function checkBatchLine(line: Record<string, unknown>): LineFault | undefined {
  const { custom_id: customId, method, url, body } = line;
  for (const field of FIELDS) {
    if (line[field] === undefined) return { field, what: "is missing" };
  }
  const extra = Object.keys(line).find((field) => !FIELDS.includes(field));
  if (extra !== undefined) {
    return { field: extra.slice(0, 100), what: "is not a field of a batch's request" };
  }
  if (typeof customId !== "string" || customId === "") {
    return { field: "custom_id", what: "must be a string that is not empty" };
  }
  if (customId.length > MAX_CUSTOM_ID_CHARACTERS) {
    return {
      field: "custom_id",
      what: `must have at most ${MAX_CUSTOM_ID_CHARACTERS} characters`,
    };
  }
  if (method !== "POST") return { field: "method", what: 'must be "POST"' };
  if (typeof url !== "string" || !/^\/v1\/[\w/-]+$/.test(url)) {
    return { field: "url", what: "must be the path of an endpoint, such as /v1/chat/completions" };
  }
  return isObject(body) ? undefined : { field: "body", what: "must be an object" };
}
