import { dataOfUrl } from "../../../lib/data-url.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import { SharedBytesWriter } from "../../../lib/shared-bytes.ts";
import { type AnswerReading, readAnswerText } from "../../../providers/thread-work.ts";
import type { IncomingCall, LoadedBody, Prepare } from "../paid-route.ts";
import { documentsOfText } from "./file-parser-documents.ts";
import { textWithDocuments } from "./file-parser-texts.ts";
import { type ChatRequest, OFFLOADED_BODY } from "./request.ts";

/**
 * The plugin "file-parser": the gateway extracts the text of documents that a chat contains as base64 parts
 * of type `file`, and the model receives that text. Models without document support can answer questions
 * about them this way.
 */

export const FILE_PARSER = "file-parser";
const MEMBERS: ReadonlySet<string> = new Set(["id", "enabled", "pdf"]);
/**
 * OpenRouter's engines, except the one for text recognition (`mistral-ocr`). OpenRouter reads `pdf-text` with
 * `cloudflare-ai`; here both are the same engine.
 */
const ENGINES: ReadonlySet<unknown> = new Set([
  ...["pdf-text", "cloudflare-ai", "native"],
  ...[undefined, null],
]);
const MAX_DOCUMENTS = 10;

/** A document in a request. */
export interface SentDocument {
  /** The path of its part, such as "messages.0.content.1". */
  readonly path: string;
  readonly bytes: Uint8Array;
}

export interface DocumentTexts {
  /**
   * Returns the texts of the documents. Rejects with 400 if a document cannot be read, and with the signal's
   * reason if it aborts.
   */
  read(
    owner: string,
    documents: readonly SentDocument[],
    signal: AbortSignal,
  ): Promise<readonly string[]>;
}

/**
 * Returns true if the gateway must read the documents of a request. Throws 400 for unknown options of the
 * plugin.
 */
export function parsesFiles({ plugins }: Pick<ChatRequest, "plugins">): boolean {
  const at = plugins?.findIndex(({ id }) => id === FILE_PARSER) ?? -1;
  if (at < 0) return false;
  const plugin = plugins![at]!;
  const { pdf = {}, enabled } = plugin;
  for (const name in plugin) if (!MEMBERS.has(name)) throw unsupported(`plugins.${at}.${name}`);
  if (!isFields(pdf)) throw unsupported(`plugins.${at}.pdf`);
  for (const name in pdf) if (name !== "engine") throw unsupported(`plugins.${at}.pdf.${name}`);
  if (!ENGINES.has(pdf.engine)) throw unsupported(`plugins.${at}.pdf.engine`);
  return enabled !== false && pdf.engine !== "native";
}

function unsupported(param: string): GatewayError {
  const named = param.slice(0, 100);
  return new GatewayError("unsupported_parameter", `${named} is not supported.`, { param: named });
}

/** Returns the documents of a request that the gateway must read, in order. Throws 400 if there are too many. */
export function documentsIn(request: ChatRequest): SentDocument[] {
  if (!parsesFiles(request)) return [];
  const documents: SentDocument[] = [];
  for (const [path, file] of filesIn(request)) {
    const data = dataOfUrl(file.file_data);
    if (data !== undefined) documents.push({ path, bytes: Buffer.from(data.base64, "base64") });
  }
  if (documents.length <= MAX_DOCUMENTS) return documents;
  const { path: param } = documents[MAX_DOCUMENTS]!;
  throw new GatewayError("invalid_body", `At most ${MAX_DOCUMENTS} documents are read.`, { param });
}

interface FileOfPart {
  readonly file_data: string;
  readonly filename?: unknown;
}

function* filesIn({ messages }: ChatRequest): Generator<[path: string, file: FileOfPart]> {
  for (const [at, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [position, part] of content.entries()) {
      const file = fileOf(part);
      if (file !== undefined) yield [`messages.${at}.content.${position}`, file];
    }
  }
}

function fileOf(part: unknown): FileOfPart | undefined {
  if (!isFields(part) || part.type !== "file" || !isFields(part.file)) return undefined;
  const { file_data: data } = part.file;
  if (typeof data !== "string" || dataOfUrl(data) === undefined) return undefined;
  return part.file as unknown as FileOfPart;
}

/** Returns the request with each document replaced by its text. */
export function withTexts(request: ChatRequest, texts: readonly string[]): ChatRequest {
  let next = 0;
  const messages = request.messages.map((message) => {
    if (!Array.isArray(message.content)) return message;
    const content = message.content.map((part) => {
      const file = fileOf(part);
      if (file === undefined) return part;
      const name = JSON.stringify(typeof file.filename === "string" ? file.filename : "document");
      return { type: "text", text: `<file name=${name}>\n${texts[next++]}\n</file>` };
    });
    return { ...message, content };
  });
  return { ...request, messages };
}

/** Reads the documents of bodies that the event loop has parsed, after `before` has filled them. */
export function prepareDocuments(texts: DocumentTexts | undefined, before: Prepare): Prepare {
  return (context, admit) => {
    const filling = before(context, admit);
    const request = context.body as ChatRequest;
    if (texts === undefined || request[OFFLOADED_BODY] !== undefined || !request.plugins) {
      return filling;
    }
    // A line that needs document texts is never part of a provider batch. Reading its documents here would
    // use up the key's rate for nothing.
    if (context.isForProviderBatch === true) return filling;
    return withDocuments(texts, filling, context, admit);
  };
}

/** Returns the filled body with the texts of its documents. Reads them only if rate, budget and credit are left. */
async function withDocuments(
  texts: DocumentTexts,
  filling: ReturnType<Prepare>,
  context: IncomingCall,
  admit: Parameters<Prepare>[1],
): Promise<LoadedBody> {
  const filled = (await filling) ?? context;
  const body = filled.body as ChatRequest;
  const documents = documentsIn(body);
  if (documents.length === 0) return filled;
  const admittedRateHeaders = filled.admittedRateHeaders ?? (await admit());
  const { organizationId } = context.caller.key;
  const read = await texts.read(organizationId, documents, context.request.signal);
  return { body: withTexts(body, read), admittedRateHeaders };
}

/**
 * Returns a long body with the texts of its documents inserted, or the same bytes if it has none to read.
 * Rejects like `DocumentTexts`.
 */
export async function longBodyWithTexts(
  texts: DocumentTexts | undefined,
  reading: AnswerReading,
  bytes: SharedBytes,
  signal: AbortSignal,
): Promise<SharedBytes> {
  if (texts === undefined || !mentions(bytes, FILE_PARSER)) return bytes;
  const { documents } = await readAnswerText(reading, documentsOfText, bytes, null, signal);
  if (documents.length === 0) return bytes;
  const read = await texts.read(reading.owner, documents, signal);
  const { body } = await readAnswerText(reading, textWithDocuments, bytes, { texts: read }, signal);
  const written = new SharedBytesWriter();
  written.push(typeof body === "string" ? new TextEncoder().encode(body) : body);
  return written.end();
}

/** Returns true if the bytes contain the name. The name can span two segments, so their ends are joined. */
function mentions({ segments }: SharedBytes, name: string): boolean {
  let end = "";
  for (const segment of segments) {
    const bytes = Buffer.from(segment.buffer, segment.byteOffset, segment.byteLength);
    if (bytes.includes(name)) return true;
    if ((end + bytes.toString("latin1", 0, name.length)).includes(name)) return true;
    end = bytes.toString("latin1", Math.max(0, bytes.length - name.length));
  }
  return false;
}
