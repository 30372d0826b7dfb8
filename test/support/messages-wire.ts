import { EventSplitter, textOfLatin1 } from "../../src/lib/event-splitter.ts";
import type { Usage } from "../../src/lib/usage.ts";
import {
  type ChatAnswer,
  type ChatEvent,
  type FinishReason,
  type PieceReader,
  ProviderFailure,
  type TypedCompletion,
} from "../../src/providers/interface.ts";
import type { ProviderFactory } from "../../src/providers/registry.ts";
import { readyAnswer } from "../../src/providers/thread-work.ts";
import { readErrorBody, readWhole } from "../../src/providers/transport/bounded-body.ts";
import { failureOfThrown } from "../../src/providers/transport/call-failures.ts";
import {
  type ProviderResponse,
  sendRequest,
} from "../../src/providers/transport/provider-response.ts";
import { kindOfStatus, statusFailure } from "../../src/providers/transport/status-failure.ts";
import { messagesBody } from "./messages-body.ts";

/**
 * A wire format that has nothing in common with OpenAI's: messages of content blocks, and a stream of named
 * events, in the manner of Anthropic's. It stands for any second wire, and proves that a provider's folder is
 * all that one takes.
 */
export const messagesWire: ProviderFactory = (settings, { httpClient, clock }) => ({
  needsOutputLimit: () => true,
  metersCacheLifetimes: true,
  async chat(call) {
    const signal = call.abortNotice ?? call.signal;
    try {
      const { model, stream } = call;
      const { body } = await call.body.render(messagesBody, { model, stream }, signal);
      const response = await sendRequest(httpClient, `${settings.baseUrl}/messages`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-api-key": settings.apiKey ?? "" },
        body,
        signal,
        connectTimeoutMs: settings.connectTimeoutMs,
        onNewConnection: call.onNewConnection,
      });
      if (response.status !== 200) {
        const text = await readErrorBody(response, clock);
        throw statusFailure(
          response.status,
          { kind: kindOfStatus(response.status), message: JSON.parse(text).error.message },
          { nowMs: clock.nowMs(), apiKey: settings.apiKey },
        );
      }
      return call.stream ? streamOf(response) : readyAnswer(await completionOf(response));
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  },
});

type Fields = Record<string, unknown>;

interface Block {
  readonly type: "text" | "thinking" | "tool_use";
  readonly text?: string;
  readonly thinking?: string;
  readonly signature?: string;
  readonly id?: string;
  readonly name?: string;
  readonly input?: unknown;
}

async function completionOf(response: ProviderResponse): Promise<TypedCompletion> {
  const message = JSON.parse((await readWhole(response, 1_000_000))!) as Fields;
  const blocks = message.content as readonly Block[];
  const joined = (type: "text" | "thinking") =>
    blocks.map((block) => (block.type === type ? block[type] : "")).join("") || undefined;
  const thoughts = blocks.filter(({ signature }) => signature !== undefined);
  const calls = blocks.filter(({ type }) => type === "tool_use");
  return {
    choices: [
      {
        text: joined("text"),
        reasoning: joined("thinking"),
        reasoningDetails: thoughts.map(({ thinking, signature }, index) => ({
          type: "reasoning.text",
          text: thinking!,
          signature: signature!,
          index,
        })),
        toolCalls: calls.map(({ id, name, input }) => ({
          id: id!,
          name: name!,
          arguments: JSON.stringify(input),
        })),
        finish: FINISH_REASONS[message.stop_reason as string]!,
      },
    ],
    usage: message.usage === undefined ? undefined : usageOf(message.usage as Fields),
  };
}

const FINISH_REASONS: Readonly<Record<string, FinishReason>> = {
  end_turn: "stop",
  max_tokens: "length",
  tool_use: "tool_calls",
  refusal: "content_filter",
};

/** The prompt is counted in three parts. */
function usageOf(usage: Fields): Usage {
  const cached = (usage.cache_read_input_tokens as number | undefined) ?? 0;
  const written = (usage.cache_creation_input_tokens as number | undefined) ?? 0;
  const byLifetime = (usage.cache_creation ?? {}) as { ephemeral_1h_input_tokens?: number };
  return {
    promptTokens: (usage.input_tokens as number) + cached + written,
    cachedPromptTokens: cached,
    cacheWriteTokens: written,
    cacheWriteHourTokens: byLifetime.ephemeral_1h_input_tokens ?? 0,
    completionTokens: usage.output_tokens as number,
    reasoningTokens: 0,
    estimated: false,
  };
}

function streamOf(response: ProviderResponse): ChatAnswer {
  return {
    kind: "stream",
    events: () => new EventReader(response.reader?.() ?? response.body!.getReader()),
  };
}

class EventReader implements PieceReader<readonly ChatEvent[]> {
  readonly #bytes: PieceReader;
  readonly #splitter = new EventSplitter(1_000_000);
  /** The number of the tool call in each block. */
  readonly #calls = new Map<number, number>();
  #usage: Fields = {};
  #isStopped = false;

  constructor(bytes: PieceReader) {
    this.#bytes = bytes;
  }

  async read() {
    if (this.#isStopped) return { done: true };
    const { done, value: bytes } = await this.#bytes.read();
    if (done) return { done };
    const events: ChatEvent[] = [];
    const take = (data: string) => events.push(...this.#eventsOf(JSON.parse(textOfLatin1(data))));
    if (bytes !== undefined) this.#splitter.push(bytes, take, (_text, start) => start);
    return { done: false, value: events };
  }

  cancel(): Promise<void> {
    return this.#bytes.cancel();
  }

  #eventsOf(event: Fields): ChatEvent[] {
    const choice = 0;
    const index = event.index as number;
    const delta = event.delta as Fields;
    switch (event.type) {
      case "message_start":
        return this.#usageOf((event.message as Fields).usage);
      case "content_block_start": {
        const block = event.content_block as Block;
        if (block.type !== "tool_use") return [];
        this.#calls.set(index, this.#calls.size);
        const call = { id: block.id!, name: block.name! };
        return [{ type: "tool_call", choice, index: this.#calls.get(index)!, ...call }];
      }
      case "content_block_delta":
        if (delta.type === "text_delta")
          return [{ type: "text", choice, text: delta.text as string }];
        if (delta.type === "thinking_delta") {
          return [{ type: "reasoning", choice, text: delta.thinking as string }];
        }
        if (delta.type === "signature_delta") {
          const signature = delta.signature as string;
          const details = [{ type: "reasoning.text", signature, index } as const];
          return [{ type: "reasoning", choice, text: "", details }];
        }
        return [
          {
            type: "tool_call",
            choice,
            index: this.#calls.get(index)!,
            arguments: delta.partial_json as string,
          },
        ];
      case "message_delta":
        return [
          ...this.#usageOf(event.usage),
          { type: "finish", choice, reason: FINISH_REASONS[delta.stop_reason as string]! },
        ];
      case "message_stop":
        this.#isStopped = true;
        return [];
      case "error": {
        const { message } = event.error as { message: string };
        const failure = new ProviderFailure("unavailable", message, { status: 529 });
        return [...this.#usageOf(event.usage), { type: "error", failure }];
      }
      default:
        return [];
    }
  }

  /** The beginning counts the prompt, the end the answer. */
  #usageOf(usage: unknown): ChatEvent[] {
    if (usage === undefined) return [];
    Object.assign(this.#usage, usage);
    return [{ type: "usage", usage: usageOf(this.#usage) }];
  }
}
