import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";

/** An answer of OpenAI's Responses interface as it was recorded, and what it says. */
interface ResponsesRecording {
  /** Its path below test/fixtures, and which response where the file has several. */
  readonly name: string;
  readonly stream: boolean;
  /** The bytes of a stream, framed; of a whole answer the body. */
  readonly text: string;
  readonly said: SaidByResponse;
}

interface SaidByResponse {
  readonly content: string;
  readonly reasoning: string;
  readonly encrypted: readonly string[];
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly tokens: {
    readonly input: number;
    readonly cached: number;
    readonly output: number;
    readonly reasoning: number;
  };
}

const FOLDER = "vercel-ai/openai-responses";
const FIXTURES = join(import.meta.dir, "..", "fixtures");

/** Whole conversations of HTTP. */
const CASSETTES = [
  "pydantic-ai/openai/test_openai_responses_stream.yaml",
  "pydantic-ai/openai/test_openai_responses_model_file_search_tool_stream.yaml",
];

export function responsesRecordings(): ResponsesRecording[] {
  const ofCassettes = CASSETTES.flatMap((name) => streamsIn(name, cassetteLines(name)));
  const ofFolder = readdirSync(join(FIXTURES, FOLDER)).flatMap((file) => {
    const name = `${FOLDER}/${file}`;
    const text = readFileSync(join(FIXTURES, name), "utf8");
    if (file.endsWith(".chunks.txt")) return streamsIn(name, text);
    const body = asObject(JSON.parse(text));
    if (body.object !== "response") return [];
    return [{ name, stream: false, text: JSON.stringify(body), said: saidBy(body) }];
  });
  return [...ofFolder, ...ofCassettes];
}

function cassetteLines(name: string): string {
  const cassette = asObject(YAML.parse(readFileSync(join(FIXTURES, name), "utf8")));
  return asArray(cassette.interactions)
    .map(asObject)
    .filter(({ request }) => asText(asObject(request).uri).endsWith("/responses"))
    .map(({ response }) => asText(asObject(asObject(response).body).string))
    .flatMap((text) => [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json]) => json))
    .join("\n");
}

/** The file of a conversation holds a stream for each turn. */
function streamsIn(name: string, file: string): ResponsesRecording[] {
  const turns: { lines: string[]; events: JsonObject[] }[] = [];
  for (const line of file.split("\n").filter((one) => one.trim() !== "")) {
    const event = asObject(JSON.parse(line));
    if (event.type === "response.created") turns.push({ lines: [], events: [] });
    const turn = turns.at(-1)!;
    turn.lines.push(line);
    turn.events.push(event);
  }
  return turns.map(({ lines, events }, at) => ({
    name: turns.length === 1 ? name : `${name}#${at + 1}`,
    stream: true,
    text: events
      .map((event, index) => `event: ${asText(event.type)}\ndata: ${lines[index]}\n\n`)
      .join(""),
    // The last event repeats the whole answer, but encrypts it once more.
    said: {
      ...saidBy(asObject(events.at(-1)!.response)),
      encrypted: encryptedIn(
        events.filter(({ type }) => type === "response.output_item.done").map(({ item }) => item),
      ),
    },
  }));
}

function encryptedIn(output: readonly unknown[]): string[] {
  return output
    .map(asObject)
    .filter(({ type }) => type === "reasoning")
    .map((item) => asText(item.encrypted_content));
}

function saidBy(response: JsonObject): SaidByResponse {
  const items = asArray(response.output).map(asObject);
  const ofType = (type: string) => items.filter((item) => item.type === type);
  const usage = asObject(response.usage);
  return {
    content: ofType("message")
      .flatMap(({ content }) => asArray(content))
      .map((part) => asText(asObject(part).text))
      .join(""),
    reasoning: ofType("reasoning")
      .map(({ summary }) =>
        asArray(summary)
          .map((part) => asText(asObject(part).text))
          .join("\n\n"),
      )
      .join(""),
    encrypted: encryptedIn(items),
    calls: ofType("function_call").map((call) => ({
      name: asText(call.name),
      arguments: asText(call.arguments),
    })),
    tokens: {
      input: asCount(usage.input_tokens),
      cached: asCount(asObject(usage.input_tokens_details).cached_tokens),
      output: asCount(usage.output_tokens),
      reasoning: asCount(asObject(usage.output_tokens_details).reasoning_tokens),
    },
  };
}
