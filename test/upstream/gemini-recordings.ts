import { readFileSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";

/** What Google's generateContent has sent, with what it says, read in the plainest way. */
export interface GeminiRecording {
  readonly name: string;
  readonly stream: boolean;
  /** The bytes of the stream, framed; of a whole answer the body. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The responses: one, or all of a stream. */
  readonly responses: readonly JsonObject[];
  readonly expected: GeminiExpected;
  /** What was asked, where the recording has it. */
  readonly request?: JsonObject;
}

export interface GeminiExpected {
  readonly content: string;
  readonly calls: readonly { name: string; args: unknown; signature: string | undefined }[];
  /** In the order in which they came, on text and on calls. */
  readonly signatures: readonly string[];
  readonly finishReason: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

const FIXTURES = join(import.meta.dir, "..", "fixtures");
const STREAMS = [
  "vercel-ai/google/google-text.chunks.txt",
  "vercel-ai/google/google-reasoning-gemini3.chunks.txt",
  "vercel-ai/google/google-tool-call-gemini3.chunks.txt",
];
const WHOLE = ["vercel-ai/google/google-text.json"];
const CASSETTES = [
  "pydantic-ai/google/test_google_model_stream.yaml",
  "pydantic-ai/google/test_google_streaming_tool_call_thought_signature.yaml",
];

export function geminiRecordings(): GeminiRecording[] {
  return [
    ...STREAMS.map((name) => {
      const lines = readText(name).split("\n").filter(Boolean);
      return recording(name, true, lines.map((line) => `data: ${line}\r\n\r\n`).join(""));
    }),
    ...WHOLE.map((name) => recording(name, false, readText(name))),
    ...CASSETTES.flatMap((name) =>
      asArray(asObject(YAML.parse(readText(name))).interactions).map((one, at) => {
        const { request, response } = asObject(one);
        const body = asText(asObject(asObject(response).body).string);
        const made = recording(`${name} ${at + 1}`, true, body);
        return { ...made, request: asObject(asObject(request).parsed_body) };
      }),
    ),
  ];
}

/** An error that Google has sent, as an answer to a model that it does not have. */
export function geminiUnknownModel(): { readonly status: number; readonly body: unknown } {
  const name = "pydantic-ai/errors/test_model_name_suggestion_google_.yaml";
  const [exchange] = asArray(asObject(YAML.parse(readText(name))).interactions);
  const response = asObject(asObject(exchange).response);
  return { status: asCount(asObject(response.status).code), body: response.parsed_body };
}

/** The body of a refusal for too many requests, with RetryInfo. */
export function geminiRateLimit(): unknown {
  return JSON.parse(readText("vercel-ai/google/google-429-retry-info.json"));
}

function recording(name: string, stream: boolean, text: string): GeminiRecording {
  const payloads = stream
    ? text.split(/\r?\n/).flatMap((line) => (line.startsWith("data:") ? [line.slice(5)] : []))
    : [text];
  const responses = payloads.map((payload) => asObject(JSON.parse(payload)));
  const bytes = new TextEncoder().encode(text);
  return { name, stream, bytes, responses, expected: expectedOf(responses) };
}

function expectedOf(responses: readonly JsonObject[]): GeminiExpected {
  const calls: { name: string; args: unknown; signature: string | undefined }[] = [];
  const signatures: string[] = [];
  let content = "";
  let finishReason = "";
  for (const response of responses) {
    const candidate = asObject(asArray(response.candidates)[0]);
    finishReason = asText(candidate.finishReason) || finishReason;
    for (const item of asArray(asObject(candidate.content).parts)) {
      const part = asObject(item);
      const signature = asText(part.thoughtSignature) || undefined;
      if (signature !== undefined) signatures.push(signature);
      content += asText(part.text);
      if (part.functionCall === undefined) continue;
      const { name, args } = asObject(part.functionCall);
      calls.push({ name: asText(name), args, signature });
    }
  }
  const usage = asObject(responses.at(-1)!.usageMetadata);
  const reasoningTokens = asCount(usage.thoughtsTokenCount ?? 0);
  return {
    content,
    calls,
    signatures,
    finishReason,
    promptTokens: asCount(usage.promptTokenCount),
    completionTokens: asCount(usage.candidatesTokenCount) + reasoningTokens,
    reasoningTokens,
  };
}

function readText(name: string): string {
  return readFileSync(join(FIXTURES, name), "utf8");
}
