import type { WireDialect } from "./wire-dialects.ts";

type Message = Readonly<Record<string, unknown>>;

/**
 * Returns a function that takes out of messages what a provider would refuse: clients send an answer back
 * as it came, with members that other providers' answers have. Undefined where there is nothing of that.
 */
export function messageShaper(dialect: WireDialect): (messages: unknown) => unknown[] | undefined {
  const leftOut = new Set(dialect.leftOutOfMessages);
  const isLeftOut = (message: Message, name: string): boolean =>
    leftOut.has(name) || (name === "refusal" && message.refusal === null && !dialect.hasRefusals);
  const differs = (message: unknown): message is Message => {
    if (typeof message !== "object" || message === null) return false;
    for (const name in message) if (isLeftOut(message as Message, name)) return true;
    return false;
  };
  return (messages) => {
    if (!Array.isArray(messages) || !messages.some(differs)) return undefined;
    return messages.map((message) => {
      if (!differs(message)) return message;
      const kept = Object.entries(message).filter(([name]) => !isLeftOut(message, name));
      return Object.fromEntries(kept);
    });
  };
}
