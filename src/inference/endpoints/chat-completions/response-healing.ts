import { GatewayError } from "../../../lib/errors.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import { SharedBytesWriter } from "../../../lib/shared-bytes.ts";
import type { ClientCompletion } from "../../../providers/interface.ts";
import { type AnswerReading, readAnswerText } from "../../../providers/thread-work.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";
import { fitted, healedJson } from "./healed-json.ts";
import type { ChatRequest } from "./request.ts";

export const RESPONSE_HEALING = "response-healing";
/** Longer ones are left as they are. */
const MAX_HEALED_CHARACTERS = 65_536;
const MEMBERS: ReadonlySet<string> = new Set(["id", "enabled"]);

/** JSON that a chat asked for, and the plugin that has it healed. */
export interface HealingPlan {
  /** Of the JSON; undefined: any. */
  readonly schema: unknown;
}

/** Undefined where the plugin is absent or off, or no JSON is asked for. Throws 400. */
export function healingPlanOf({
  plugins,
  stream,
  response_format: format,
}: ChatRequest): HealingPlan | undefined {
  const at = plugins?.findIndex(({ id }) => id === RESPONSE_HEALING) ?? -1;
  if (at < 0) return undefined;
  const plugin = plugins![at]!;
  const place = `plugins.${at}`;
  for (const name in plugin) {
    if (!MEMBERS.has(name)) throw unsupported(`${place}.${name.slice(0, 100)}`, "is not supported");
  }
  if (plugin.enabled === false) return undefined;
  if (stream === true) {
    const why = `${JSON.stringify(RESPONSE_HEALING)} needs an answer that is not streamed`;
    throw unsupported(`${place}.id`, why);
  }
  if (!isFields(format) || (format.type !== "json_schema" && format.type !== "json_object")) {
    return undefined;
  }
  const { json_schema: described } = format;
  return { schema: isFields(described) ? described.schema : undefined };
}

function unsupported(param: string, why: string): GatewayError {
  return new GatewayError("unsupported_parameter", `${param} ${why}.`, { param });
}

/**
 * The completion with each text that is not the JSON that was asked for in the place of what it was meant to be. A
 * choice that was healed says so (`healed: true`), as does one that could not be (`false`). Never rejects: the
 * answer is paid for.
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
      const said = { ...(message as object), content: json ?? content };
      choices.push({ ...choice, message: said, healed: json !== undefined });
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
    // The thread has too much to do, or was lost.
    return undefined;
  }
}
