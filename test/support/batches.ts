import { getContent, uploaded } from "./files-gateway.ts";
import type { TestGateway } from "./gateway.ts";
import { until } from "./until.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
export type Json = Record<string, any>;

export const CHATS = "/v1/chat/completions";

/** A line of an input file: a chat, unless told otherwise. */
export function requestLine(customId: string, body: Json, url = CHATS): string {
  return `${JSON.stringify({ custom_id: customId, method: "POST", url, body })}\n`;
}

export function chatLine(customId: string, more: Json = {}): string {
  const messages = [{ role: "user", content: `hello ${customId}` }];
  return requestLine(customId, { model: "sandbox/chat", messages, ...more });
}

/** A batch of these lines, as its creation answers. */
export async function createBatch(
  gateway: TestGateway,
  lines: string,
  { endpoint = CHATS, key = gateway.secretKey, ...more }: Json = {},
): Promise<Json> {
  const { id } = await uploaded(gateway, "batch", lines);
  const body = { input_file_id: id, endpoint, completion_window: "24h", ...more };
  const response = await gateway.request("POST", "/v1/batches", body, { key });
  const batch = (await response.json()) as Json;
  if (response.status !== 200) throw new Error(JSON.stringify(batch));
  return batch;
}

export async function readBatch(gateway: TestGateway, id: string): Promise<Json> {
  return (await gateway.request("GET", `/v1/batches/${id}`)).json() as Promise<Json>;
}

/** How it stands once it has ended. */
export function endedBatch(gateway: TestGateway, id: string, timeoutMs = 40_000): Promise<Json> {
  return until(
    `${id} has ended`,
    async () => {
      const batch = await readBatch(gateway, id);
      const { status } = batch;
      return ["completed", "failed", "expired", "cancelled"].includes(status) ? batch : undefined;
    },
    timeoutMs,
  );
}

/** The lines of a file of a batch, in their order; none where there is no file. */
export async function linesOf(gateway: TestGateway, fileId: string | null): Promise<Json[]> {
  if (fileId === null) return [];
  const text = await (await getContent(gateway, fileId)).text();
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Json);
}
