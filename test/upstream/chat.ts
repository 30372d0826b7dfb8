import { steadyClock } from "../../src/lib/clock.ts";
import { answerOf } from "./behaviours.ts";
import { completionFor } from "./completion.ts";
import { asObject } from "./json.ts";
import { pause, playSteps } from "./player.ts";
import { noteContent, type Served } from "./served.ts";
import type { UpstreamState } from "./state.ts";
import { type Answer, refusal } from "./wire.ts";

/** Answers one chat completion as its behaviour says, and keeps its record. */
export async function answerChat(
  state: UpstreamState,
  served: Served,
  body: string,
  clientGone: AbortSignal,
): Promise<Response> {
  const left = new AbortController();
  state.live.add(left);
  const end = (change: Partial<Served>) => {
    if (served.endedAtMs !== null) return;
    Object.assign(served, change, { endedAtMs: state.nowMs() });
    state.live.delete(left);
    state.ledger.changed();
  };
  const leave = () => {
    end({ aborted: true });
    left.abort();
  };
  clientGone.addEventListener("abort", leave);
  const request = served.requestBody;
  if (request === null || !Array.isArray(request.messages)) {
    end({ status: 400, finished: true });
    return refusal(400, "The body is a JSON object with an array `messages`.");
  }
  try {
    const { do: name, ...options } = state.plan.next(served.model);
    served.behaviour = name;
    state.ledger.changed();
    const answer = answerOf(name, {
      request,
      stream: served.stream,
      includeUsage: asObject(request.stream_options).include_usage === true,
      completion: completionFor(request, options, String(served.id)),
      options,
      nowMs: state.nowMs(),
    });
    if (options.firstDelayMs !== undefined) await pause(options.firstDelayMs, left.signal);
    return await respond(answer, { state, served, body, gone: left.signal, end, leave });
  } catch (error) {
    // A recording or behaviour that does not exist is a mistake of the test: say it where the test will see it.
    end({ status: 500, finished: true });
    return refusal(500, String(error));
  }
}

interface Exchange {
  state: UpstreamState;
  served: Served;
  body: string;
  gone: AbortSignal;
  end: (change: Partial<Served>) => void;
  leave: () => void;
}

async function respond(answer: Answer, exchange: Exchange): Promise<Response> {
  const { state, served, body, gone, end, leave } = exchange;
  if (gone.aborted) return new Response(failedStream());
  switch (answer.kind) {
    case "refuse":
      end({});
      return new Response(failedStream());
    case "silent":
      await pause(Infinity, gone);
      return new Response(failedStream());
    case "whole":
      served.contentCharactersSent += answer.event?.characters ?? 0;
      served.usageReported = answer.event?.usage;
      end({ status: answer.status, finished: true });
      return new Response(answer.body, { status: answer.status, headers: answer.headers });
    case "stream": {
      served.status = answer.status;
      // Of the body too, so that it does not depend on the order in which requests arrive.
      const seed = answer.pace.seed ?? state.seed ^ Bun.hash.crc32(body);
      const stream = playSteps(answer.steps, { ...answer.pace, seed }, gone, {
        sent(event) {
          served.eventsSent += 1;
          noteContent(served, event.characters, steadyClock.nowMs());
          if (event.usage !== undefined) served.usageReported = event.usage;
          state.ledger.changed();
        },
        finished: () => end({ finished: true }),
        cut: () => end({}),
        gone: leave,
      });
      return new Response(stream, { status: answer.status, headers: answer.headers });
    }
  }
}

/** A body that fails before its first byte: Bun closes the connection without an answer, and prints no error of none. */
function failedStream(): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      controller.error(undefined);
    },
  });
}
