import { BodyRender, type ChatRequestFields, type RenderedBody } from "../../chat-body.ts";
import { type OpenAiVariant, openAiVariant } from "../wire-dialects.ts";

type Body = ChatRequestFields;
type BodyShaper = (body: Body, model: string, modelId?: string) => Body;

/**
 * Returns a function that turns the gateway's request body into the one that a provider takes. Where
 * nothing differs the body is returned itself, uncopied.
 *
 * `plainDeltas` asks OpenAI not to pad stream chunks with random characters
 * (`stream_options.include_obfuscation`), which only OpenAI itself knows.
 */
function bodyShaper(
  dialect: OpenAiVariant,
  options: { readonly plainDeltas: boolean },
): BodyShaper {
  const leftOut = new Set(dialect.takesStreamOptions ? [] : ["stream_options"]);
  if (dialect.reasoning !== "object") leftOut.add("reasoning");
  const renamed = new Map(Object.entries(dialect.renamed));
  const shapeMessages = messageShaper(dialect);

  return (body, model, modelId = model) => {
    const renamesLimit =
      body.max_tokens !== undefined &&
      (dialect.takesCompletionLimit(model) || dialect.takesCompletionLimit(modelId));
    const addsPlainDeltas = options.plainDeltas && isObject(body.stream_options);
    const messages = shapeMessages(body.messages);
    const withFiles = holdsFiles(dialect, body.messages) ? dialect.withFiles : undefined;
    let differs = renamesLimit || addsPlainDeltas || (messages ?? withFiles) !== undefined;
    if (!differs) {
      for (const name in body) {
        if (leftOut.has(name) || renamed.has(name)) {
          differs = true;
          break;
        }
      }
    }
    if (!differs) return body;

    const shaped: Record<string, unknown> = {};
    for (const name in body) {
      if (renamesLimit && name === "max_tokens") shaped.max_completion_tokens = body.max_tokens;
      else if (!leftOut.has(name)) shaped[renamed.get(name) ?? name] = body[name];
    }
    if (messages !== undefined) shaped.messages = messages;
    if (addsPlainDeltas) {
      shaped.stream_options = { include_obfuscation: false, ...(body.stream_options as Body) };
    }
    if (dialect.reasoning === "effort") addReasoningEffort(shaped, body);
    if (withFiles !== undefined) Object.assign(shaped, withFiles);
    return shaped;
  };
}

interface RenderOptions {
  /** The provider's type. */
  readonly type: string;
  readonly plainDeltas: boolean;
  readonly model: string;
  readonly modelId: string | undefined;
}

/** What the provider gets. */
export const openAiBody = new BodyRender(
  import.meta.url,
  (body, { type, plainDeltas, model, modelId }: RenderOptions): RenderedBody => {
    const shape = shaperFor(type, plainDeltas);
    return { body: JSON.stringify(shape(body, model, modelId)) };
  },
);

/** By provider type: making one takes longer than its use. */
const SHAPERS = new Map<string, { readonly plain: BodyShaper; readonly padded: BodyShaper }>();

function shaperFor(type: string, plainDeltas: boolean): BodyShaper {
  let shapers = SHAPERS.get(type);
  if (shapers === undefined) {
    const dialect = openAiVariant(type);
    const plain = bodyShaper(dialect, { plainDeltas: true });
    shapers = { plain, padded: bodyShaper(dialect, { plainDeltas: false }) };
    SHAPERS.set(type, shapers);
  }
  return plainDeltas ? shapers.plain : shapers.padded;
}

function addReasoningEffort(shaped: Record<string, unknown>, body: Body): void {
  if (!isObject(body.reasoning) || shaped.reasoning_effort !== undefined) return;
  const effort = body.reasoning.effort;
  if (typeof effort === "string") shaped.reasoning_effort = effort;
}

function holdsFiles({ withFiles }: OpenAiVariant, messages: unknown): boolean {
  if (withFiles === undefined || !Array.isArray(messages)) return false;
  return messages.some(
    ({ content }) => Array.isArray(content) && content.some(({ type }) => type === "file"),
  );
}

function isObject(value: unknown): value is Body {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

type Message = Readonly<Record<string, unknown>>;
type Shape = (message: Message) => Message | undefined;

/**
 * Returns a function that changes in messages what a provider would refuse: the role that only OpenAI and a
 * few others know, and members of answers, which clients send back as they came, those included that are
 * null and say nothing. Undefined where there is nothing of that.
 */
function messageShaper(dialect: OpenAiVariant): (messages: unknown) => unknown[] | undefined {
  const shape = shapeOf(dialect);
  return (messages) => {
    if (!Array.isArray(messages)) return undefined;
    let shaped: unknown[] | undefined;
    for (let at = 0; at < messages.length; at++) {
      const changed = shape(messages[at]);
      if (changed === undefined) continue;
      shaped ??= [...messages];
      shaped[at] = changed;
    }
    return shaped;
  };
}

/** Undefined where a message stays as it is. */
function shapeOf(dialect: OpenAiVariant): Shape {
  const leftOut = new Map(Object.entries(dialect.leftOutOfMessages));
  const { reasoningMember } = dialect;
  const otherReasoning = reasoningMember === "reasoning" ? "reasoning_content" : "reasoning";
  const nameOf = (message: Message, name: string): string | undefined => {
    const { role } = message;
    if (message[name] === null && name !== "content") return undefined;
    if (leftOut.get(role as string)?.includes(name) === true) return undefined;
    return reasoningMember && role === "assistant" && name === otherReasoning
      ? reasoningMember
      : name;
  };
  return (message) => {
    const isForeign = message.role === "developer" && !dialect.hasDeveloperRole;
    let differs = isForeign;
    for (const name in message) differs ||= nameOf(message, name) !== name;
    if (!differs) return undefined;
    const shaped = new Map<string, unknown>();
    for (const [name, value] of Object.entries(message)) {
      const shapedName = nameOf(message, name);
      if (shapedName !== undefined) shaped.set(shapedName, shaped.get(shapedName) ?? value);
    }
    if (isForeign) shaped.set("role", "system");
    return Object.fromEntries(shaped);
  };
}
