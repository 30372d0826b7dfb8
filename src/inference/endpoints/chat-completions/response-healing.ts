import { GatewayError } from "../../../lib/errors.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import { SharedBytesWriter } from "../../../lib/shared-bytes.ts";
import type { ClientCompletion } from "../../../providers/interface.ts";
import { type AnswerReading, readAnswerText } from "../../../providers/thread-work.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";
import { fitted, healedJson } from "./healed-json.ts";
import type { ChatRequest } from "./request.ts";

export const RESPONSE_HEALING = "response-healing";
/** Maximum characters of a text that is healed. Longer texts stay unchanged. */
const MAX_HEALED_CHARACTERS = 65_536;
const MEMBERS: ReadonlySet<string> = new Set(["id", "enabled"]);

/** The JSON to heal. */
export interface HealingPlan {
  /** The JSON schema. Undefined allows any JSON. */
  readonly schema: unknown;
}

/**
 * Returns the JSON to heal, or undefined if the plugin is absent or disabled, or if the request wants no JSON.
 * Throws 400 for unsupported options.
 */
export function healingPlanOf({
  plugins,
  stream,
  response_format: format,
}: ChatRequest): HealingPlan | undefined {
  const at = plugins?.findIndex(({ id }) => id === RESPONSE_HEALING) ?? -1;
  if (at < 0) return undefined;
  const plugin = plugins![at]!;
  const path = `plugins.${at}`;
  for (const name in plugin) {
    if (!MEMBERS.has(name)) throw unsupported(`${path}.${name.slice(0, 100)}`, "is not supported");
  }
  if (plugin.enabled === false) return undefined;
  if (stream === true) {
    const why = `${JSON.stringify(RESPONSE_HEALING)} needs an answer that is not streamed`;
    throw unsupported(`${path}.id`, why);
  }
  if (!isFields(format) || (format.type !== "json_schema" && format.type !== "json_object")) {
    return undefined;
  }
  const { json_schema: jsonSchema } = format;
  return { schema: isFields(jsonSchema) ? jsonSchema.schema : undefined };
}

function unsupported(param: string, why: string): GatewayError {
  return new GatewayError("unsupported_parameter", `${param} ${why}.`, { param });
}

/**
 * Returns the completion with each invalid text replaced by the JSON that it was meant to be. Sets `healed`
 * to true on a healed choice, and to false on a choice that could not be healed. Never rejects, because the
 * answer is already paid for.
 */
export async function healed(
  completion: ClientCompletion,
  { schema }: HealingPlan,
  reading: AnswerReading,
  signal: AbortNotice,
): Promise<ClientCompletion> {
  const { body } = completion;
  if (body instanceof Uint8Array || !Array.isArray(body.choices)) return completion;
  const choices: unknown[] = [];
  for (const choice of body.choices as Readonly<Record<string, unknown>>[]) {
    const { message } = choice;
    const content = isFields(message) ? message.content : undefined;
    if (typeof content !== "string" || isRight(content, schema)) choices.push(choice);
    else {
      const json = await jsonOf(content, schema, reading, signal);
      const healedMessage = { ...(message as object), content: json ?? content };
      choices.push({ ...choice, message: healedMessage, healed: json !== undefined });
    }
  }
  return { ...completion, body: { ...body, choices } };
}

function isRight(content: string, schema: unknown): boolean {
  if (content === "") return true;
  const value = jsonValue(content);
  if (typeof value !== "object" || value === null) return false;
  if (content.length > MAX_HEALED_CHARACTERS) return true;
  return JSON.stringify(fitted(value, schema, 0)) === JSON.stringify(value);
}

async function jsonOf(
  content: string,
  schema: unknown,
  reading: AnswerReading,
  signal: AbortNotice,
): Promise<string | undefined> {
  if (content.length > MAX_HEALED_CHARACTERS) return undefined;
  const shared = new SharedBytesWriter();
  shared.push(new TextEncoder().encode(content));
  try {
    const { json } = await readAnswerText(reading, healedJson, shared.end(), { schema }, signal);
    return json;
  } catch {
    // The work thread is overloaded or was lost.
    return undefined;
  }
}
