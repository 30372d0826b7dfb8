import { MODELS, requestBody } from "./wire.ts";

/** What a soak calls with. */
export interface SoakTarget {
  readonly secretKey: string;
  readonly managementKey: string;
  /** A gateway's address; another one with each call. */
  baseUrl(): string;
}

/** A call that was not answered as it should have been. */
class WrongAnswer extends Error {}

interface Sent {
  readonly method?: string;
  readonly body?: unknown;
  readonly form?: FormData;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** The status that the answer should have; 200 if not stated. */
  readonly status?: number;
}

const RUN_TIMEOUT_MS = 60_000;
const POLL_MS = 500;
const ABORT_AFTER_MS = 1_000;
const FILE_BYTES = 64 * 1024;
const CACHED_PROMPTS = 50;
const BATCH_LINES = 20;
const LESSONS = 10;
const TUNED_BASE = "sandbox/chat-2026-01-01";

async function send(target: SoakTarget, path: string, sent: Sent = {}): Promise<Response> {
  const { body, form, key = target.secretKey, status = 200 } = sent;
  const response = await fetch(`${target.baseUrl()}/v1/${path}`, {
    method: sent.method ?? (body === undefined && form === undefined ? "GET" : "POST"),
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...sent.headers,
    },
    body: form ?? (typeof body === "object" ? JSON.stringify(body) : (body as string | undefined)),
    signal: sent.signal ?? null,
  });
  if (response.status !== status) {
    const text = (await response.text()).slice(0, 300);
    throw new WrongAnswer(`${path} answered ${response.status}, expected ${status}: ${text}`);
  }
  return response;
}

async function ask<Answer>(target: SoakTarget, path: string, sent?: Sent): Promise<Answer> {
  return (await (await send(target, path, sent)).json()) as Answer;
}

async function read(target: SoakTarget, path: string, sent?: Sent): Promise<string> {
  return await (await send(target, path, sent)).text();
}

/** Asks again until the state is none of those that pass. */
async function settled(target: SoakTarget, path: string, states: readonly string[]) {
  const untilMs = performance.now() + RUN_TIMEOUT_MS;
  while (performance.now() < untilMs) {
    const found = await ask<{ status: string; output_file_id?: string }>(target, path);
    if (!states.includes(found.status)) return found;
    await Bun.sleep(POLL_MS);
  }
  throw new WrongAnswer(`${path} did not end`);
}

async function upload(
  target: SoakTarget,
  purpose: string,
  name: string,
  data: BlobPart,
): Promise<string> {
  const form = new FormData();
  form.set("purpose", purpose);
  form.set("file", new Blob([data]), name);
  return (await ask<{ id: string }>(target, "files", { form })).id;
}

const remove = (target: SoakTarget, path: string, key?: string) =>
  read(target, path, { method: "DELETE", ...(key === undefined ? {} : { key }) });

const chatOf = (content: string) => ({
  model: "sandbox/chat",
  messages: [{ role: "user", content }],
});

async function chat(target: SoakTarget): Promise<void> {
  await read(target, "chat/completions", { body: requestBody("delayed", false) });
}

async function stream(target: SoakTarget): Promise<void> {
  const text = await read(target, "chat/completions", { body: requestBody("live", true) });
  if (!text.endsWith("data: [DONE]\n\n")) throw new WrongAnswer("a stream had no end");
}

async function abortedStream(target: SoakTarget): Promise<void> {
  const body = requestBody("endless", true);
  const signal = AbortSignal.timeout(ABORT_AFTER_MS);
  try {
    await read(target, "chat/completions", { body, signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function messages(target: SoakTarget): Promise<void> {
  const body = {
    model: MODELS.messages,
    max_tokens: 64,
    messages: [{ role: "user", content: "Say hello." }],
  };
  await read(target, "messages", { body });
}

async function cachedChat(target: SoakTarget): Promise<void> {
  const body = chatOf(`Prompt ${Math.floor(Math.random() * CACHED_PROMPTS)} of those that repeat`);
  await read(target, "chat/completions", { body, headers: { "x-gateway-cache": "on" } });
}

async function guardedChat(target: SoakTarget): Promise<void> {
  const body = {
    ...chatOf(`Write to ${crypto.randomUUID()}@example.com`),
    guardrail: "soak",
    user: `user ${Math.floor(Math.random() * 20)}`,
    metadata: { tags: ["soak"] },
  };
  const text = await read(target, "chat/completions", { body });
  if (text.includes("@example.com")) throw new WrongAnswer("a guardrail let an address pass");
}

async function failedChat(target: SoakTarget): Promise<void> {
  await read(target, "chat/completions", {
    body: { ...chatOf("Hello"), model: "sandbox/none" },
    status: 404,
  });
}

async function idempotentChat(target: SoakTarget): Promise<void> {
  const headers = { "idempotency-key": crypto.randomUUID() };
  const body = chatOf("Once");
  const answers = [];
  for (let time = 0; time < 2; time++) {
    answers.push(await read(target, "chat/completions", { body, headers }));
  }
  if (answers[0] !== answers[1]) throw new WrongAnswer("a repeated request was answered otherwise");
}

async function storedResponse(target: SoakTarget): Promise<void> {
  const body = { model: "sandbox/chat", input: "Remember this." };
  const { id } = await ask<{ id: string }>(target, "responses", { body });
  const next = await ask<{ id: string }>(target, "responses", {
    body: { model: "sandbox/chat", input: "And this.", previous_response_id: id },
  });
  await read(target, `responses/${id}`);
  await remove(target, `responses/${next.id}`);
  await remove(target, `responses/${id}`);
}

async function backgroundResponse(target: SoakTarget): Promise<void> {
  const body = { model: "sandbox/chat", input: "In the background.", background: true };
  const { id } = await ask<{ id: string }>(target, "responses", { body });
  const { status } = await settled(target, `responses/${id}`, ["queued", "in_progress"]);
  if (status !== "completed") throw new WrongAnswer(`a background response was ${status}`);
  await remove(target, `responses/${id}`);
}

async function conversation(target: SoakTarget): Promise<void> {
  const { id } = await ask<{ id: string }>(target, "conversations", { body: {} });
  for (const input of ["First.", "Second."]) {
    const body = { model: "sandbox/chat", input, conversation: id };
    const response = await ask<{ id: string }>(target, "responses", { body });
    await remove(target, `responses/${response.id}`);
  }
  await remove(target, `conversations/${id}`);
}

async function embedding(target: SoakTarget): Promise<void> {
  await read(target, "embeddings", { body: { model: "sandbox/embed", input: "Some text" } });
}

async function image(target: SoakTarget): Promise<void> {
  const body = { model: "sandbox/image", prompt: "Soak", size: "256x256" };
  await read(target, "images/generations", { body });
}

async function speechAndBack(target: SoakTarget): Promise<void> {
  const said = await send(target, "audio/speech", {
    body: { model: "sandbox/tts", voice: "alloy", input: "Hello there.", response_format: "mp3" },
  });
  const form = new FormData();
  form.set("model", "sandbox/stt");
  form.set("file", await said.blob(), "speech.mp3");
  await read(target, "audio/transcriptions", { form });
}

async function ranking(target: SoakTarget): Promise<void> {
  const body = { model: "sandbox/rerank", query: "fruit", documents: ["apple", "bolt", "pear"] };
  await read(target, "rerank", { body });
  await read(target, "moderations", { body: { model: "sandbox/moderation", input: "violence" } });
}

async function file(target: SoakTarget): Promise<void> {
  const data = crypto.getRandomValues(new Uint8Array(FILE_BYTES));
  const id = await upload(target, "user_data", "soak.bin", data);
  const content = await (await send(target, `files/${id}/content`)).bytes();
  if (!Buffer.from(content).equals(data)) throw new WrongAnswer("a file came back changed");
  await remove(target, `files/${id}`);
}

async function vectorStore(target: SoakTarget): Promise<void> {
  const fileId = await upload(target, "assistants", "soak.txt", "The soak runs for an hour.");
  const { id } = await ask<{ id: string }>(target, "vector_stores", { body: { name: "Soak" } });
  await read(target, `vector_stores/${id}/files`, { body: { file_id: fileId } });
  await settled(target, `vector_stores/${id}/files/${fileId}`, ["in_progress"]);
  await read(target, `vector_stores/${id}/search`, { body: { query: "How long?" } });
  await remove(target, `vector_stores/${id}`);
  await remove(target, `files/${fileId}`);
}

async function byokKey(target: SoakTarget): Promise<void> {
  const { managementKey } = target;
  const body = { name: `Soak ${crypto.randomUUID()}`, rate_limit_rpm: 100, daily_budget_usd: 1 };
  const { id, key } = await ask<{ id: string; key: string }>(target, "keys", {
    body,
    key: managementKey,
    status: 201,
  });
  await read(target, "chat/completions", { body: chatOf("With a key of its own"), key });
  await remove(target, `keys/${id}`, managementKey);
}

async function reads(target: SoakTarget): Promise<void> {
  const key = target.managementKey;
  for (const path of [
    "credits",
    "credits/transactions?limit=50",
    "requests?limit=50",
    "usage?group_by=model",
    "models",
    "keys",
  ]) {
    await read(target, path, { key });
  }
}

async function batch(target: SoakTarget): Promise<void> {
  const lines = Array.from({ length: BATCH_LINES }, (_, line) =>
    JSON.stringify({
      custom_id: `line ${line}`,
      method: "POST",
      url: "/v1/chat/completions",
      body: chatOf(`Line ${line}`),
    }),
  );
  const input = await upload(target, "batch", "lines.jsonl", lines.join("\n"));
  const { id } = await ask<{ id: string }>(target, "batches", {
    body: { input_file_id: input, endpoint: "/v1/chat/completions", completion_window: "24h" },
  });
  const going = ["validating", "in_progress", "finalizing"];
  const ended = await settled(target, `batches/${id}`, going);
  if (ended.status !== "completed") throw new WrongAnswer(`a batch was ${ended.status}`);
  const output = await read(target, `files/${ended.output_file_id}/content`);
  if (output.trim().split("\n").length !== BATCH_LINES) throw new WrongAnswer("a batch lost lines");
  await remove(target, `files/${ended.output_file_id}`);
  await remove(target, `files/${input}`);
}

async function fineTuning(target: SoakTarget): Promise<void> {
  const lesson = {
    messages: [
      { role: "user", content: "Question" },
      { role: "assistant", content: "Answer" },
    ],
  };
  const lines = Array.from({ length: LESSONS }, () => JSON.stringify(lesson));
  const lessons = await upload(target, "fine-tune", "lessons.jsonl", lines.join("\n"));
  const { id } = await ask<{ id: string }>(target, "fine_tuning/jobs", {
    body: { model: TUNED_BASE, training_file: lessons },
  });
  const going = ["validating_files", "queued", "running"];
  const ended = await settled(target, `fine_tuning/jobs/${id}`, going);
  if (ended.status !== "succeeded") throw new WrongAnswer(`a fine-tuning job was ${ended.status}`);
  await remove(target, `files/${lessons}`);
}

export interface SoakCall {
  readonly name: string;
  /** How often it is made, against the others. */
  readonly weight: number;
  run(target: SoakTarget): Promise<void>;
}

/** Everything that a gateway is asked for in an hour, by how often. */
export const SOAK_CALLS: readonly SoakCall[] = [
  { name: "chat", weight: 40, run: chat },
  { name: "stream", weight: 15, run: stream },
  { name: "aborted stream", weight: 5, run: abortedStream },
  { name: "messages", weight: 8, run: messages },
  { name: "cached chat", weight: 10, run: cachedChat },
  { name: "guarded chat", weight: 4, run: guardedChat },
  { name: "failed chat", weight: 2, run: failedChat },
  { name: "idempotent chat", weight: 3, run: idempotentChat },
  { name: "stored response", weight: 3, run: storedResponse },
  { name: "background response", weight: 1, run: backgroundResponse },
  { name: "conversation", weight: 1, run: conversation },
  { name: "embedding", weight: 4, run: embedding },
  { name: "image", weight: 0.5, run: image },
  { name: "speech and transcript", weight: 0.5, run: speechAndBack },
  { name: "ranking and moderation", weight: 1, run: ranking },
  { name: "file", weight: 2, run: file },
  { name: "vector store", weight: 0.3, run: vectorStore },
  { name: "key of its own", weight: 1, run: byokKey },
  { name: "reads", weight: 1, run: reads },
  { name: "batch", weight: 0.1, run: batch },
  { name: "fine-tuning", weight: 0.05, run: fineTuning },
];
