import { type FilesGateway, uploaded } from "./files-gateway.ts";
import { until } from "./until.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
export type Json = Record<string, any>;

/** Calls of /v1/vector_stores; the gateway is asked for when they are made. */
export function vectorStoreCalls(gateway: () => FilesGateway) {
  const send = (method: string, path: string, body?: unknown, key = gateway().secretKey) =>
    gateway().request(method, `/v1/vector_stores${path}`, body, { key });

  async function call(
    method: string,
    path: string,
    body?: unknown,
    init: { key?: string } = {},
  ): Promise<Json> {
    const response = await send(method, path, body, init.key);
    const json = (await response.json()) as Json;
    if (response.status !== 200) throw new Error(JSON.stringify(json));
    return json;
  }

  const indexed = (id: string, init: { key?: string } = {}) =>
    until(
      "the files are indexed",
      async () => (await call("GET", `/${id}`, undefined, init)).file_counts.in_progress === 0,
    );

  /** A store with files of these texts, indexed. */
  async function storeOf(
    texts: Readonly<Record<string, string | Uint8Array>>,
    options: Json = {},
    init: { key?: string } = {},
  ): Promise<{ id: string; files: Record<string, string> }> {
    const files: Record<string, string> = {};
    for (const [filename, text] of Object.entries(texts)) {
      files[filename] = (await uploaded(gateway(), "assistants", text, { filename, ...init })).id;
    }
    const store = await call("POST", "", { ...options, file_ids: Object.values(files) }, init);
    await indexed(store.id, init);
    return { id: store.id as string, files };
  }

  const search = async (id: string, body: Json, init: { key?: string } = {}): Promise<string[]> =>
    (await call("POST", `/${id}/search`, body, init)).data.map((one: Json) => one.filename);

  return { send, call, indexed, storeOf, search };
}
