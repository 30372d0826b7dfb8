import { listRecordings, loadRecording } from "../upstream/recordings.ts";
import type { Upstream } from "../upstream/server.ts";
import {
  messageOfStream,
  STREAMS,
  streamText,
  WHOLE,
  wholeMessage,
} from "./anthropic-recordings.ts";
import { inPieces } from "./anthropic-upstream.ts";

/** What Anthropic's server counts in every prompt. */
const COUNTED_TOKENS = 7;

/** A model that answers with a recording, and what a client of Anthropic's API is to read in that. */
interface MessageReplay {
  readonly model: string;
  readonly wire: "openai" | "anthropic";
  readonly stream: boolean;
  /** Members of the blocks; further ones may stand beside them. */
  readonly content: readonly object[];
  /** Members of the usage; null where the provider sent none. */
  readonly usage: object | null;
  readonly stopReason: string | null;
}

/** All recordings of chat, each as a model `test/<slug>`. */
export interface MessageReplays {
  readonly replays: readonly MessageReplay[];
  readonly countedTokens: number;
  /** Of the server that replays Anthropic's. */
  readonly anthropicUrl: string;
  /** Lets the server of OpenAI's wire replay its own. */
  script(upstream: Upstream): void;
  stop(): Promise<void>;
}

export function startMessageReplays(): MessageReplays {
  const ofOpenai = listRecordings().map((name, at) => ({ slug: `openai-${at}`, name }));
  const ofAnthropic = [...STREAMS, ...WHOLE].map((name, at) => ({ slug: `anthropic-${at}`, name }));
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      if (request.method === "GET") return Response.json({ data: [], has_more: false });
      const { model } = (await request.json()) as { model: string };
      const { name } = ofAnthropic.find(({ slug }) => slug === model)!;
      if (request.url.endsWith("/count_tokens")) {
        return Response.json({ input_tokens: COUNTED_TOKENS });
      }
      return STREAMS.includes(name)
        ? inPieces(streamText(name), () => 11)
        : Response.json(wholeMessage(name));
    },
  });
  return {
    replays: [
      ...ofOpenai.map(({ slug, name }) => replayOfOpenai(`test/${slug}`, name)),
      ...ofAnthropic.map(({ slug, name }) => replayOfAnthropic(`test/${slug}`, name)),
    ],
    countedTokens: COUNTED_TOKENS,
    anthropicUrl: `http://127.0.0.1:${server.port}/v1`,
    script({ behave }) {
      for (const { slug, name } of ofOpenai) {
        behave(slug, { do: "replay", recording: name, seed: 3 });
      }
    },
    stop: () => server.stop(true),
  };
}

function replayOfOpenai(model: string, name: string): MessageReplay {
  const { stream, expected } = loadRecording(name);
  const { content, reasoning, toolCalls, usage } = expected;
  return {
    model,
    wire: "openai",
    stream,
    content: [
      ...(reasoning === "" ? [] : [{ type: "thinking", thinking: reasoning }]),
      ...(content === "" ? [] : [{ type: "text", text: content }]),
      ...toolCalls.map((call) => ({
        type: "tool_use",
        name: call.name,
        input: JSON.parse(call.arguments || "{}"),
      })),
    ],
    usage: usage && {
      input_tokens: usage.promptTokens - usage.cachedTokens,
      cache_read_input_tokens: usage.cachedTokens,
      output_tokens: usage.completionTokens,
    },
    stopReason: null,
  };
}

function replayOfAnthropic(model: string, name: string): MessageReplay {
  const stream = STREAMS.includes(name);
  const message = stream ? messageOfStream(streamText(name)) : wholeMessage(name);
  const { input_tokens, output_tokens } = message.usage;
  return {
    model,
    wire: "anthropic",
    stream,
    content: message.content,
    usage: { input_tokens, output_tokens },
    stopReason: message.stop_reason,
  };
}
