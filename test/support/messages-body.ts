import {
  BodyRender,
  type ChatRequestFields,
  type RenderedBody,
} from "../../src/providers/chat-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";

interface Options {
  readonly model: string;
  readonly stream: boolean;
}

type Message = Readonly<Record<string, unknown>>;

/** What `messages-wire.ts` sends. It refuses developer messages, which its protocol does not know. */
export const messagesBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, stream }: Options): RenderedBody => {
    const messages = fields.messages as readonly Message[];
    const unknown = messages.findIndex(({ role }) => role === "developer");
    if (unknown !== -1) {
      const param = `messages.${unknown}.role`;
      throw new ProviderFailure("rejected", "There are no developers here.", { param });
    }
    const body = {
      model,
      stream,
      max_tokens: fields.max_tokens,
      system: messages.find(({ role }) => role === "system")?.content,
      messages: messages.filter(({ role }) => role !== "system"),
    };
    return { body: JSON.stringify(body) };
  },
);
