import { asText } from "./json.ts";
import { seededRandom } from "./random.ts";
import type { Served } from "./served.ts";
import type { UpstreamState } from "./state.ts";
import { EVENT_STREAM } from "./wire.ts";

const PIECES = 8;
const PIECE_BYTES = 4_000;
/** Of a frame of MP3. */
const HEADING = [0xff, 0xf3, 0x84];
/** Models of such names break off in the middle. */
const CUT = /cut/;

/** Noise that follows from the input, a piece at each turn of the loop; in events where they are asked for. */
export async function answerSpeech(state: UpstreamState, served: Served): Promise<Response> {
  const { input, stream_format: form } = served.requestBody ?? {};
  const random = seededRandom(Bun.hash.crc32(asText(input)));
  const isEvents = form === "sse";
  served.behaviour = "speak";
  served.status = 200;
  let left = CUT.test(served.model) ? PIECES / 2 : PIECES;
  const finish = (isWhole: boolean) => {
    served.finished = isWhole;
    served.endedAtMs = state.nowMs();
    state.ledger.changed();
  };
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        await Bun.sleep(0);
        if (left-- > 0) {
          const bytes = Uint8Array.from({ length: PIECE_BYTES }, () => random() * 256);
          bytes.set(HEADING);
          served.eventsSent++;
          controller.enqueue(isEvents ? delta(bytes) : bytes);
          return;
        }
        const isCut = CUT.test(served.model);
        finish(!isCut);
        if (isEvents && !isCut) controller.enqueue(doneEvent(asText(input)));
        if (isCut) controller.error(undefined);
        else controller.close();
      },
      cancel() {
        served.aborted = true;
        finish(false);
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, {
    headers: isEvents ? EVENT_STREAM : { "content-type": "audio/mpeg" },
  });
}

function delta(bytes: Uint8Array): Uint8Array {
  const audio = Buffer.from(bytes).toString("base64");
  return Buffer.from(`data: ${JSON.stringify({ type: "speech.audio.delta", audio })}\n\n`);
}

function doneEvent(input: string): Uint8Array {
  const inputTokens = Math.ceil(input.length / 4);
  const outputTokens = PIECES * 5;
  const usage = {
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
  };
  return Buffer.from(`data: ${JSON.stringify({ type: "speech.audio.done", usage })}\n\n`);
}
