import { completionTokensOf } from "./expected.ts";
import { asCount, asObject, asText, type JsonObject } from "./json.ts";

export interface ContentMark {
  characters: number;
  atMs: number;
}

/** Between two marks of a stream. */
const MARK_MS = 5;

/** What became of one request, kept up to date while it is answered. */
export interface Served {
  id: number;
  path: string;
  model: string;
  behaviour: string;
  stream: boolean;
  /** Null where the body was no JSON object. */
  requestBody: JsonObject | null;
  headers: Record<string, string>;
  /** Null while, or because, nothing was answered. */
  status: number | null;
  /** Chunks whose last byte was handed to the connection; `[DONE]`, comments and garbage are none. */
  eventsSent: number;
  /** UTF-16 units of content in them, or in the whole answer; reasoning and tool calls are not content. */
  contentCharactersSent: number;
  /** Of a stream: when what follows so many characters began to be handed over, by the steady clock. */
  contentMarks: ContentMark[];
  /** The last usage sent, as it was sent; undefined where none was. */
  usageReported: unknown;
  startedAtMs: number;
  endedAtMs: number | null;
  /** The client went away before the end. */
  aborted: boolean;
  /** Handed over to the regular end; a cut, a refusal and a stall are not. */
  finished: boolean;
  /** It stood in a batch. */
  batchId?: string;
}

/** Sums over all requests of one model, those no longer listed included. */
interface Totals {
  requests: number;
  finished: number;
  aborted: number;
  eventsSent: number;
  contentCharactersSent: number;
  /** Of reported usage, where it is a count. */
  promptTokens: number;
  completionTokens: number;
  statuses: Record<string, number>;
}

/** All requests an upstream has served, in order of arrival, of which the newest stay listed. */
export interface Ledger {
  list: Served[];
  add(served: Served): void;
  totals(): Record<string, Totals>;
  /** Tells those who wait that a record has changed. */
  changed(): void;
  /** Resolves once the condition holds for the list; rejects after the timeout. */
  until(condition: (list: Served[]) => boolean, timeoutMs?: number): Promise<void>;
  clear(): void;
}

const WAIT_TIMEOUT_MS = 5000;

/** `keep` bounds how many records stay listed. */
export function createLedger(keep: number): Ledger {
  const list: Served[] = [];
  let evicted: Record<string, Totals> = {};
  const watchers = new Set<() => void>();
  return {
    list,
    add(served) {
      list.push(served);
      const oldest = list.length > keep ? list.shift() : undefined;
      if (oldest !== undefined) addTo(evicted, oldest);
    },
    totals() {
      const sums = structuredClone(evicted);
      for (const served of list) addTo(sums, served);
      return sums;
    },
    changed() {
      for (const watcher of watchers) watcher();
    },
    until(condition, timeoutMs = WAIT_TIMEOUT_MS) {
      return new Promise((resolve, reject) => {
        const watcher = () => {
          if (!condition(list)) return;
          watchers.delete(watcher);
          clearTimeout(timer);
          resolve();
        };
        const timer = setTimeout(() => {
          watchers.delete(watcher);
          reject(new Error(`the upstream did not see what was awaited within ${timeoutMs} ms`));
        }, timeoutMs);
        watchers.add(watcher);
        watcher();
      });
    },
    clear() {
      list.length = 0;
      evicted = {};
    },
  };
}

function addTo(sums: Record<string, Totals>, served: Served): void {
  sums[served.model] ??= {
    requests: 0,
    finished: 0,
    aborted: 0,
    eventsSent: 0,
    contentCharactersSent: 0,
    promptTokens: 0,
    completionTokens: 0,
    statuses: {},
  };
  const sum = sums[served.model]!;
  const usage = asObject(served.usageReported);
  const status = String(served.status ?? "none");
  sum.requests += 1;
  sum.finished += served.finished ? 1 : 0;
  sum.aborted += served.aborted ? 1 : 0;
  sum.eventsSent += served.eventsSent;
  sum.contentCharactersSent += served.contentCharactersSent;
  sum.promptTokens += asCount(usage.prompt_tokens);
  sum.completionTokens += completionTokensOf(usage);
  sum.statuses[status] = (sum.statuses[status] ?? 0) + 1;
}

/** A record of a request that has just arrived. */
export function recordOf(
  id: number,
  path: string,
  headers: Headers,
  body: string,
  startedAtMs: number,
): Served {
  const requestBody = parseObject(body);
  return {
    id,
    path,
    model: asText(requestBody?.model),
    behaviour: "",
    stream: requestBody?.stream === true,
    requestBody,
    headers: Object.fromEntries(headers),
    status: null,
    eventsSent: 0,
    contentCharactersSent: 0,
    contentMarks: [],
    usageReported: undefined,
    startedAtMs,
    endedAtMs: null,
    aborted: false,
    finished: false,
  };
}

/** Counts content that is handed over now. */
export function noteContent(served: Served, characters: number, atMs: number): void {
  const { contentMarks, contentCharactersSent } = served;
  const last = contentMarks.at(-1);
  const isDue = last === undefined || atMs - last.atMs >= MARK_MS;
  if (characters > 0 && isDue) contentMarks.push({ characters: contentCharactersSent, atMs });
  served.contentCharactersSent += characters;
}

function parseObject(body: string): JsonObject | null {
  try {
    const parsed: unknown = JSON.parse(body);
    return asObject(parsed) === parsed ? asObject(parsed) : null;
  } catch {
    return null;
  }
}
