import type { WireDialect } from "../wire-dialects.ts";

type Message = Readonly<Record<string, unknown>>;
type Shape = (message: Message) => Message | undefined;

/**
 * Returns a function that changes in messages what a provider would refuse: the role that only OpenAI and a
 * few others know, and members of answers, which clients send back as they came, those included that are
 * null and say nothing. Undefined where there is nothing of that.
 */
export function messageShaper(dialect: WireDialect): (messages: unknown) => unknown[] | undefined {
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
function shapeOf(dialect: WireDialect): Shape {
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
