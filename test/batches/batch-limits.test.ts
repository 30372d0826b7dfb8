import { afterAll, beforeAll, expect, test } from "bun:test";
import { countLines } from "../../db/queries/batch-lines.ts";
import { postponeBatch } from "../../db/queries/batches.ts";
import { addSecretKey } from "../support/api-keys.ts";
import {
  CHATS,
  chatLine,
  createBatch,
  endedBatch,
  type Json,
  linesOf,
  readBatch,
  requestLine,
} from "../support/batches.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/* Batches next to the calls of clients: their limits, their places at providers, their idempotency keys. */

const TIMEOUT_MS = 60_000;
const PLACES = 4;

let upstream: Upstream;
let gateway: FilesGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  // The second takes no `top_k`.
  const types = { narrow: "openai-compatible", sparse: "groq" };
  const providers = Object.entries(types).map(([id, type]) => ({
    ...{ id, type, base_url: upstream.baseUrl, api_key: "sk-upstream" },
    max_parallel_requests: PLACES,
  }));
  const models = Object.keys(types).map((id) => ({
    ...{ id: `test/${id}`, category: "chat", context_length: 8_000, max_output_tokens: 100 },
    ...{ input_cost_per_token: 1e-6, output_cost_per_token: 1e-6 },
    endpoints: [{ provider: id, model: id }],
  }));
  gateway = await startFilesGateway("disk", { configuration: { providers, models } });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (content: string, model = "test/narrow") => ({
  model,
  messages: [{ role: "user", content }],
});
const linesOfModel = (count: number, model: string) =>
  Array.from({ length: count }, (_, n) => requestLine(`${n}`, chat("line", model))).join("");
const cancel = async (id: string) => {
  await gateway.request("POST", `/v1/batches/${id}/cancel`);
  await endedBatch(gateway, id);
};

test(
  "takes half of its key's requests a minute and leaves the other half to calls of clients",
  async () => {
    const key = await addSecretKey(gateway, { rateLimitRpm: 6 });
    const batch = await createBatch(gateway, linesOfModel(6, "sandbox/chat"), { key });
    const completed = async () =>
      (await readBatch(gateway, batch.id)).request_counts.completed as number;
    await until("half of the limit is used", async () => (await completed()) === 3);
    const statuses: number[] = [];
    for (let n = 0; n < 4; n++) {
      const body = chat("live", "sandbox/chat");
      statuses.push((await gateway.request("POST", CHATS, body, { key })).status);
    }
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect(await completed()).toBe(3);
    await cancel(batch.id);
  },
  TIMEOUT_MS,
);

test(
  "takes half of a provider's places, and calls of clients get the others at once",
  async () => {
    upstream.behave("narrow", { do: "complete", firstDelayMs: 2_500 });
    const served = () => upstream.servedOf("narrow");
    const batch = await createBatch(gateway, linesOfModel(PLACES + 1, "test/narrow"));
    await until("lines run", () => served().length === PLACES / 2);
    const live = Array.from({ length: PLACES / 2 }, () =>
      gateway.request("POST", CHATS, chat("live")),
    );
    for (const { status } of await Promise.all(live)) expect(status).toBe(200);
    const contents = served().map(({ requestBody }) => {
      const [message] = requestBody!.messages as Json[];
      return message!.content as string;
    });
    expect(contents.slice(0, PLACES)).toEqual(["line", "line", "live", "live"]);
    upstream.behave("narrow", { do: "complete" });
    await cancel(batch.id);
  },
  TIMEOUT_MS,
);

test("leaves out what a provider with a limit of parallel calls does not take, as calls of clients do", async () => {
  upstream.behave("sparse", { do: "complete" });
  const body = { ...chat("line", "test/sparse"), top_k: 7, temperature: 0.5 };
  const ended = await endedBatch(gateway, (await createBatch(gateway, requestLine("a", body))).id);
  expect(ended.request_counts).toEqual({ total: 1, completed: 1, failed: 0 });
  const [call] = upstream.servedOf("sparse");
  expect(call!.requestBody).toMatchObject({ temperature: 0.5 });
  expect(call!.requestBody).not.toHaveProperty("top_k");
});

test(
  "is answered whatever its key's clients call under idempotency keys like those of its lines",
  async () => {
    upstream.behave("narrow", { do: "complete", firstDelayMs: 1_000 });
    const before = upstream.servedOf("narrow").length;
    const batch = await createBatch(gateway, requestLine("a", chat("line")));
    await until("the line is called", () => upstream.servedOf("narrow").length > before);
    upstream.behave("narrow", { do: "complete" });
    for (const name of [`${batch.id}:1`, "1", batch.id]) {
      const headers = { "idempotency-key": name };
      const response = await gateway.request("POST", CHATS, chat(`live ${name}`), { headers });
      expect(response.status).toBe(200);
    }
    const ended = await endedBatch(gateway, batch.id);
    expect(ended.request_counts).toEqual({ total: 1, completed: 1, failed: 0 });
    const [answer] = await linesOf(gateway, ended.output_file_id);
    expect(answer!.response.body.choices[0].message.content).toBe("Echo: line");
  },
  TIMEOUT_MS,
);

test(
  "is tried again soon after a failure where a line was answered since the one before",
  async () => {
    const { sql } = gateway;
    const { id } = await createBatch(gateway, chatLine("a"));
    await until("it rests", async () => {
      const resting = await sql`SELECT 1 FROM batches WHERE id = ${id} AND due_at IS NULL`;
      return resting.length === 1;
    });
    const failed = async () => {
      await sql.begin((transaction) =>
        postponeBatch(transaction, id, { firstMs: 60_000, longestMs: 600_000 }),
      );
      const [row] = await sql<{ minutes: number }[]>`
        SELECT round(extract(epoch FROM due_at - clock_timestamp()) / 60)::int AS minutes
        FROM batches WHERE id = ${id}`;
      return row!.minutes;
    };
    const delays = [];
    for (let attempt = 0; attempt < 5; attempt++) delays.push(await failed());
    expect(delays).toEqual([1, 2, 4, 8, 10]);
    const line = { line: 7, isFailed: false, requestId: undefined };
    await sql.begin((transaction) => countLines(transaction, id, [line]));
    expect(await failed()).toBe(1);
  },
  TIMEOUT_MS,
);

test("finds its failed lines among the failed requests, each once and under the id of its answer", async () => {
  upstream.behave("narrow", { do: "error", status: 400, message: "no such tone" });
  const lines = requestLine("a", { ...chat("x", "no/such"), user: "lines" });
  const rejected = requestLine("b", { ...chat("x"), user: "lines" });
  const ended = await endedBatch(gateway, (await createBatch(gateway, lines + rejected)).id);
  const errors = await linesOf(gateway, ended.error_file_id);
  const listed = await until("both are listed", async () => {
    const response = await gateway.request("GET", "/v1/requests?user=lines");
    const { data } = (await response.json()) as { data: Json[] };
    return data.length >= 2 ? data : undefined;
  });
  const facts = ({ id, status, error_code }: Json) => `${id} ${status} ${error_code}`;
  expect(listed.map(facts).sort()).toEqual(
    errors
      .map(({ response: { request_id, status_code, body } }) =>
        facts({ id: request_id, status: status_code, error_code: body.error.code }),
      )
      .sort(),
  );
});
