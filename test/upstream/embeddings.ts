import { tokensOf } from "./completion.ts";
import { asArray, asCount, asObject, asText } from "./json.ts";
import { seededRandom } from "./random.ts";
import { loadJsonFixture } from "./recordings.ts";
import type { Served } from "./served.ts";
import type { UpstreamState } from "./state.ts";
import { JSON_BODY, toJson } from "./wire.ts";

const DEFAULT_DIMENSIONS = 8;
const REPLAY = "replay:";

/** Deterministic vectors, as floats or in base64; the model `replay:<file>` gives a recorded list. */
export async function answerEmbeddings(state: UpstreamState, served: Served): Promise<Response> {
  const body = served.model.startsWith(REPLAY)
    ? loadJsonFixture(served.model.slice(REPLAY.length))
    : embeddingList(served);
  served.behaviour = "embed";
  served.status = 200;
  served.usageReported = asObject(body).usage;
  served.finished = true;
  served.endedAtMs = state.nowMs();
  state.ledger.changed();
  return new Response(toJson(body), { headers: JSON_BODY });
}

function embeddingList(served: Served): unknown {
  const request = served.requestBody ?? {};
  const inputs = (Array.isArray(request.input) ? asArray(request.input) : [request.input]).map(
    asText,
  );
  const dimensions = asCount(request.dimensions) || DEFAULT_DIMENSIONS;
  const data = inputs.map((input, index) => {
    const vector = vectorOf(input, dimensions);
    const embedding = request.encoding_format === "base64" ? base64Of(vector) : [...vector];
    return { object: "embedding", index, embedding };
  });
  const tokens = Math.max(1, tokensOf(inputs.join("")));
  return {
    object: "list",
    data,
    model: served.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

function vectorOf(input: string, dimensions: number): Float32Array {
  const random = seededRandom(Bun.hash.crc32(input));
  return Float32Array.from({ length: dimensions }, () => random() * 2 - 1);
}

function base64Of(vector: Float32Array): string {
  return Buffer.from(vector.buffer).toString("base64");
}
