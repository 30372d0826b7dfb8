import type { FilesGateway, StoredFile } from "../support/files-gateway.ts";
import { upload } from "../support/files-gateway.ts";

export interface Answered {
  readonly requestId: string;
  /** Of a stored response. */
  readonly responseId: string | undefined;
}

/** What clients of a gateway have seen. */
export interface Seen {
  readonly answered: Answered[];
  /** SHA-256 of what was uploaded, by file. */
  readonly uploaded: Map<string, string>;
  readonly deleted: Set<string>;
  failures: number;
}

const CHAT_WORKERS = 4;
const STREAM_WORKERS = 2;
const FILE_WORKERS = 2;
/** The backup needs a processor too. */
const PAUSE_MS = 20;
const MOST_FILE_BYTES = 60_000;

/** Clients that send chats, streams and responses, and upload and delete files, until they are stopped. */
export function startLoad(gateway: FilesGateway): { readonly seen: Seen; stop(): Promise<void> } {
  const seen: Seen = { answered: [], uploaded: new Map(), deleted: new Set(), failures: 0 };
  let isEnding = false;
  const repeat = async (step: (turn: number) => Promise<void>) => {
    for (let turn = 0; !isEnding; turn++) {
      await step(turn);
      await Bun.sleep(PAUSE_MS);
    }
  };
  const workers = [
    ...Array.from({ length: CHAT_WORKERS }, () => repeat((turn) => call(gateway, seen, turn))),
    ...Array.from({ length: STREAM_WORKERS }, () => repeat(() => stream(gateway, seen))),
    ...Array.from({ length: FILE_WORKERS }, () => repeat((turn) => store(gateway, seen, turn))),
  ];
  return {
    seen,
    async stop() {
      isEnding = true;
      await Promise.all(workers);
    },
  };
}

async function call(gateway: FilesGateway, seen: Seen, turn: number): Promise<void> {
  const isResponse = turn % 2 === 0;
  const answer = isResponse
    ? await gateway.request("POST", "/v1/responses", { model: "sandbox/chat", input: "Hello" })
    : await gateway.request("POST", "/v1/chat/completions", {
        model: "sandbox/chat",
        messages: [{ role: "user", content: "Hello" }],
      });
  const body = (await answer.json()) as { id: string };
  if (answer.status !== 200) {
    seen.failures++;
    return;
  }
  const requestId = answer.headers.get("x-gateway-request-id")!;
  seen.answered.push({ requestId, responseId: isResponse ? body.id : undefined });
}

async function stream(gateway: FilesGateway, seen: Seen): Promise<void> {
  const answer = await gateway.request("POST", "/v1/chat/completions", {
    model: "sandbox/chat",
    messages: [{ role: "user", content: "Tell me more" }],
    stream: true,
  });
  await answer.text();
  if (answer.status !== 200) seen.failures++;
}

async function store(gateway: FilesGateway, seen: Seen, turn: number): Promise<void> {
  const content = new Uint8Array(1 + Math.floor(Math.random() * MOST_FILE_BYTES));
  crypto.getRandomValues(content);
  const answer = await upload(gateway, "user_data", content);
  if (answer.status !== 200) {
    seen.failures++;
    return;
  }
  const { id } = (await answer.json()) as StoredFile;
  seen.uploaded.set(id, new Bun.CryptoHasher("sha256").update(content).digest("hex"));
  if (turn % 3 !== 2) return;
  seen.deleted.add(id);
  const removed = await gateway.request("DELETE", `/v1/files/${id}`);
  if (removed.status !== 200) seen.failures++;
}
