import { BodyRender, type ChatRequestFields, type RenderedBody } from "../../chat-body.ts";
import { type OpenAiVariant, openAiVariant } from "../openai-variants.ts";

type Body = ChatRequestFields;
type BodyShaper = (body: Body, model: string, modelId?: string) => Body;

/**
 * Returns a function that converts the gateway's request body to the provider's. If nothing differs, it returns the
 * same object, not a copy.
 *
 * `plainDeltas` asks OpenAI not to pad stream chunks with random characters (`stream_options.include_obfuscation`).
 * Only OpenAI itself supports that.
 */
function bodyShaper(
  variant: OpenAiVariant,
  options: { readonly plainDeltas: boolean },
): BodyShaper {
  const leftOut = new Set(variant.takesStreamOptions ? [] : ["stream_options"]);
  if (variant.reasoning !== "object") leftOut.add("reasoning");
  const renamed = new Map(Object.entries(variant.renamed));
  const shapeMessages = messageShaper(variant);

  return (body, model, modelId = model) => {
    const renamesLimit =
      body.max_tokens !== undefined &&
      (variant.takesCompletionLimit(model) || variant.takesCompletionLimit(modelId));
    const addsPlainDeltas = options.plainDeltas && isObject(body.stream_options);
    const messages = shapeMessages(body.messages);
    const withFiles = holdsFiles(variant, body.messages) ? variant.withFiles : undefined;
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
    if (variant.reasoning === "effort") addReasoningEffort(shaped, body);
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

/** Builds the request body for the provider. */
export const openAiBody = new BodyRender(
  import.meta.url,
  (body, { type, plainDeltas, model, modelId }: RenderOptions): RenderedBody => {
    const shape = shaperFor(type, plainDeltas);
    return { body: JSON.stringify(shape(body, model, modelId)) };
  },
);

/** Shapers by provider type. Creating one takes longer than using it. */
const SHAPERS = new Map<string, { readonly plain: BodyShaper; readonly padded: BodyShaper }>();

function shaperFor(type: string, plainDeltas: boolean): BodyShaper {
  let shapers = SHAPERS.get(type);
  if (shapers === undefined) {
    const variant = openAiVariant(type);
    const plain = bodyShaper(variant, { plainDeltas: true });
    shapers = { plain, padded: bodyShaper(variant, { plainDeltas: false }) };
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
 * Returns a function that changes the parts of messages that a provider would reject. These are the role `developer`,
 * which few providers know, and members of answers, which clients send back unchanged, even if they are null. The
 * function returns undefined if it changes nothing.
 */
function messageShaper(variant: OpenAiVariant): (messages: unknown) => unknown[] | undefined {
  const shape = shapeOf(variant);
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

/** Returns a function that changes one message. It returns undefined if the message stays unchanged. */
function shapeOf(variant: OpenAiVariant): Shape {
  const leftOut = new Map(Object.entries(variant.leftOutOfMessages));
  const { reasoningMember } = variant;
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
    const isForeign = message.role === "developer" && !variant.hasDeveloperRole;
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
