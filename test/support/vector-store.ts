import { until } from "./until.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

/** The id of a new vector store with files of these texts, all of them indexed. */
export async function vectorStoreOf(
  gateway: { readonly baseUrl: string; readonly secretKey: string },
  texts: Readonly<Record<string, string>>,
): Promise<string> {
  const headers = { authorization: `Bearer ${gateway.secretKey}` };
  const call = async (path: string, init: RequestInit): Promise<Json> =>
    (await (await fetch(`${gateway.baseUrl}/v1${path}`, init)).json()) as Json;
  const ids: string[] = [];
  for (const [filename, text] of Object.entries(texts)) {
    const body = new FormData();
    body.set("purpose", "assistants");
    body.set("file", new File([text], filename));
    ids.push((await call("/files", { method: "POST", headers, body })).id);
  }
  const { id } = await call("/vector_stores", {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ file_ids: ids }),
  });
  await until("the files are indexed", async () => {
    const { file_counts: counts } = await call(`/vector_stores/${id}`, { headers });
    return counts.completed === ids.length;
  });
  return id;
}
