import { readdirSync, readFileSync } from "node:fs";
import { join, sep } from "node:path";
import { YAML } from "bun";
import { type Expected, expectedOfStream, expectedOfWhole } from "./expected.ts";
import { asArray, asCount, asObject, asText } from "./json.ts";

const FIXTURES = join(import.meta.dir, "..", "fixtures");

/** Folders of chat completions whose files do not say which provider sent them. */
const CHAT_FOLDERS: Record<string, string> = {
  "vercel-ai/alibaba": "alibaba",
  "vercel-ai/azure": "azure",
  "vercel-ai/moonshotai": "moonshotai",
  "vercel-ai/perplexity": "perplexity",
  "vercel-ai/xai": "xai",
  "vercel-ai/openai-chat": "openai",
  "vercel-ai/groq": "groq",
  "vercel-ai/deepseek": "deepseek",
  "vercel-ai/mistral": "mistral",
  "vercel-ai/openai-compatible": "openai-compatible",
};

const PROVIDER_HOSTS: [suffix: string, provider: string][] = [
  [".openai.azure.com", "azure"],
  ["api.openai.com", "openai"],
  ["api.groq.com", "groq"],
  ["openrouter.ai", "openrouter"],
];

/** A chat completion as a provider sent it. */
export interface Recording {
  /** The file's path below test/fixtures. */
  name: string;
  provider: string;
  format: "openai-chat";
  stream: boolean;
  /** All bytes of the stream, framed; empty for a whole answer. */
  sse: Uint8Array<ArrayBuffer>;
  /** The body of a whole answer. */
  json?: unknown;
  expected: Expected;
}

/** An error as a provider sent it, on /chat/completions or /embeddings. */
export interface ErrorRecording {
  name: string;
  provider: string;
  status: number;
  json: unknown;
}

/** Names of all chat completions in test/fixtures, streams and whole answers, in order of name. */
export function listRecordings(): string[] {
  return fixtureNames().filter((name) => parse(name)?.kind === "chat");
}

/** Names of all error bodies in test/fixtures, in order of name. */
export function listErrorRecordings(): string[] {
  return fixtureNames().filter((name) => parse(name)?.kind === "error");
}

/** Throws where there is no chat completion of that name. */
export function loadRecording(name: string): Recording {
  const found = fixtureNames().includes(name) ? parse(name) : null;
  if (found?.kind !== "chat") throw new Error(`no recorded chat completion named ${name}`);
  const stream = found.sse !== null;
  return {
    name,
    provider: found.provider,
    format: "openai-chat",
    stream,
    sse: new TextEncoder().encode(found.sse ?? ""),
    json: found.json,
    expected: stream ? expectedOfStream(found.sse ?? "") : expectedOfWhole(found.json),
  };
}

/** Throws where there is no error body of that name. */
export function loadErrorRecording(name: string): ErrorRecording {
  const found = fixtureNames().includes(name) ? parse(name) : null;
  if (found?.kind !== "error") throw new Error(`no recorded error named ${name}`);
  return { name, provider: found.provider, status: found.status, json: found.json };
}

/** The parsed body of a JSON fixture, such as an embedding list. */
export function loadJsonFixture(name: string): unknown {
  if (!fixtureNames().includes(name)) throw new Error(`no fixture named ${name}`);
  return JSON.parse(readText(name));
}

interface Parsed {
  kind: "chat" | "error";
  provider: string;
  status: number;
  sse: string | null;
  json?: unknown;
}

function parse(name: string): Parsed | null {
  if (name.endsWith(".yaml")) return parseCassette(readText(name));
  const provider = CHAT_FOLDERS[name.slice(0, name.lastIndexOf("/"))];
  if (provider === undefined) return null;
  const chat = { kind: "chat", provider, status: 200 } as const;
  if (name.endsWith(".chunks.txt")) return { ...chat, sse: frameLines(readText(name)) };
  if (name.endsWith(".sse")) return { ...chat, sse: `${readText(name).trimEnd()}\n\n` };
  if (!name.endsWith(".json")) return null;
  const json: unknown = JSON.parse(readText(name));
  const body = asObject(json);
  if (body.object === "chat.completion") return { ...chat, sse: null, json };
  return body.error === undefined ? null : { ...chat, kind: "error", status: 400, sse: null, json };
}

/** One exchange of /chat/completions or /embeddings; of anything else, null. */
function parseCassette(text: string): Parsed | null {
  const interactions = asArray(asObject(YAML.parse(text)).interactions);
  const exchange = asObject(interactions[0]);
  const uri = asText(asObject(exchange.request).uri);
  if (interactions.length !== 1 || !/\/(chat\/completions|embeddings)\b/.test(uri)) return null;
  const response = asObject(exchange.response);
  const status = asCount(asObject(response.status).code);
  const json = response.parsed_body;
  const sse = asText(asObject(response.body).string);
  const provider = providerOfHost(new URL(uri).hostname);
  if (status !== 200) return { kind: "error", provider, status, sse: null, json };
  if (!uri.includes("/chat/completions")) return null;
  return { kind: "chat", provider, status, sse: sse === "" ? null : sse, json };
}

function providerOfHost(host: string): string {
  return PROVIDER_HOSTS.find(([suffix]) => host.endsWith(suffix))?.[1] ?? "openai-compatible";
}

function frameLines(text: string): string {
  const payloads = text.split("\n").filter((line) => line.trim() !== "");
  return [...payloads, "[DONE]"].map((payload) => `data: ${payload.trim()}\n\n`).join("");
}

function fixtureNames(): string[] {
  return readdirSync(FIXTURES, { recursive: true, encoding: "utf8" })
    .map((path) => path.split(sep).join("/"))
    .sort();
}

function readText(name: string): string {
  return readFileSync(join(FIXTURES, name), "utf8");
}
