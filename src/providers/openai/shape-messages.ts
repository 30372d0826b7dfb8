import type { WireDialect } from "./wire-dialects.ts";

type Message = Readonly<Record<string, unknown>>;

/**
 * Returns a function that changes in messages what a provider would refuse: the role that only OpenAI and a
 * few others know, and members of other providers' answers, which clients send back as they came. Undefined
 * where there is nothing of that.
 */
export function messageShaper(dialect: WireDialect): (messages: unknown) => unknown[] | undefined {
  const leftOut = new Map(Object.entries(dialect.leftOutOfMessages));
  const isLeftOut = ({ role, refusal }: Message, name: string): boolean =>
    (name === "refusal" && refusal === null && !dialect.hasRefusals) ||
    leftOut.get(role as string)?.includes(name) === true;
  const isForeign = ({ role }: Message): boolean =>
    role === "developer" && !dialect.hasDeveloperRole;
  const differs = (message: unknown): message is Message => {
    if (typeof message !== "object" || message === null) return false;
    if (isForeign(message as Message)) return true;
    for (const name in message) if (isLeftOut(message as Message, name)) return true;
    return false;
  };
  return (messages) => {
    if (!Array.isArray(messages) || !messages.some(differs)) return undefined;
    return messages.map((message) => {
      if (!differs(message)) return message;
      const kept = Object.entries(message).filter(([name]) => !isLeftOut(message, name));
      const shaped = Object.fromEntries(kept);
      return isForeign(message) ? { ...shaped, role: "system" } : shaped;
    });
  };
}
