import { afterAll, beforeAll, expect, test } from "bun:test";
import { removeOldIdempotencyRecords } from "../../db/queries/idempotency.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { type FilesGateway, startFilesGateway, uploaded } from "../support/files-gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";
import { vectorStoreCalls } from "../support/vector-stores.ts";

let gateway: FilesGateway;
beforeAll(async () => {
  const environment = { GATEWAY_VECTOR_STORE_MODEL: "sandbox/embed" };
  gateway = await startFilesGateway("disk", { environment });
});
afterAll(() => gateway.stop());

const { send, call, indexed, storeOf, search } = vectorStoreCalls(() => gateway);
const SMALL_CHUNKS = {
  type: "static",
  static: { max_chunk_size_tokens: 100, chunk_overlap_tokens: 0 },
};
/** 70 chunks of 100 tokens: three calls. */
const LONG = Array.from({ length: 400 }, (_, n) => `Sentence ${n} speaks of matter ${n}.`).join(
  " ",
);

const byEmbedding = {
  ranking_options: { hybrid_search: { embedding_weight: 1, text_weight: 0 } },
};
const byWords = { ranking_options: { hybrid_search: { embedding_weight: 0, text_weight: 1 } } };

async function keyId(secret: string): Promise<string> {
  const response = await gateway.request("GET", "/v1/key", undefined, { key: secret });
  return ((await response.json()) as { id: string }).id;
}

/** Charges of a key, the oldest first. */
async function chargesOf(secret: string) {
  return gateway.sql<{ request_id: string; model: string; amount_nano: bigint }[]>`
    SELECT request_id, model, amount_nano FROM transactions
    WHERE type = 'usage' AND key_id = ${await keyId(secret)} ORDER BY sequence`;
}

async function vectorsIn(store: string): Promise<number> {
  const [row] = await gateway.sql`SELECT count(*)::int AS n FROM vector_store_vectors v
    JOIN vector_store_files f ON f.number = v.file WHERE f.vector_store_id = ${store}`;
  return row!.n;
}

test("a passage is found by its embedding where it shares no word with the question", async () => {
  const { id, files } = await storeOf({
    "plants.txt": "Photosynthesis in leaves.",
    "ships.txt": "Rigging of sailing ships.",
    "roads.txt": "Paving of old roads.",
  });
  const file = await call("GET", `/${id}/files/${files["plants.txt"]}`);
  expect(file).toMatchObject({ status: "completed", embedding_model: "sandbox/embed" });
  const question = { query: "photosynthetically" };
  expect(await search(id, { ...question, ...byWords })).toEqual([]);
  expect((await search(id, question))[0]).toBe("plants.txt");
  const { data } = await call("POST", `/${id}/search`, { ...question, ...byEmbedding });
  expect(data[0]).toMatchObject({ filename: "plants.txt", score: 1 });
  expect(data.map((one: { filename: string }) => one.filename).sort()).toEqual(
    Object.keys(files).sort(),
  );
});

test("each batch of chunks is one charge to the key that added the file, each search one to its own", async () => {
  const [adder, searcher] = [await addSecretKey(gateway), await addSecretKey(gateway)];
  const { id } = await storeOf(
    { "long.txt": LONG },
    { chunking_strategy: SMALL_CHUNKS },
    { key: adder },
  );
  const chunks = await vectorsIn(id);
  expect(chunks).toBeGreaterThan(32);
  const charges = await chargesOf(adder);
  expect(charges).toHaveLength(Math.ceil(chunks / 32));
  for (const { model, amount_nano } of charges) {
    expect(model).toBe("sandbox/embed");
    expect(amount_nano).toBeLessThan(0n);
  }
  expect(await chargesOf(searcher)).toHaveLength(0);
  const found = await send(
    "POST",
    `/${id}/search`,
    { query: ["matter 7", "sentence 9"] },
    searcher,
  );
  const [charge, ...others] = await chargesOf(searcher);
  expect(others).toEqual([]);
  expect(charge!.request_id).toBe(found.headers.get("x-gateway-request-id")!);
  await send("POST", `/${id}/search`, { query: "matter 8", ...byWords }, searcher);
  expect(await chargesOf(searcher)).toHaveLength(1);
  const [left] = await gateway.sql`SELECT count(*)::int AS n FROM idempotency_records`;
  expect(left!.n).toBe(0);
});

test.each([
  ["a gateway", 0],
  ["a gateway that stood still for a day", 25],
])("a batch that %s was charged for and did not write is not charged again", async (_, hours) => {
  const key = await addSecretKey(gateway);
  await gateway.sql.unsafe(`CREATE FUNCTION refuse_vectors() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN IF NEW.position >= 32 THEN RAISE EXCEPTION 'refused by the test'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse_vectors BEFORE INSERT ON vector_store_vectors
    FOR EACH ROW EXECUTE FUNCTION refuse_vectors()`);
  const { id: file_id } = await uploaded(gateway, "assistants", LONG, { filename: "long.txt" });
  const { id } = await call(
    "POST",
    "",
    { file_ids: [file_id], chunking_strategy: SMALL_CHUNKS },
    { key },
  );
  const postponed = () => gateway.sql`SELECT 1 FROM vector_store_files
    WHERE vector_store_id = ${id} AND status = 'in_progress' AND attempts = 1`;
  await until("the second batch is refused", async () => (await postponed()).length === 1);
  expect(await chargesOf(key)).toHaveLength(2);
  expect(await vectorsIn(id)).toBe(32);
  await gateway.sql`UPDATE idempotency_records
      SET created_at = created_at - make_interval(hours => ${hours})`;
  await removeOldIdempotencyRecords(gateway.sql);
  await gateway.sql.unsafe("DROP FUNCTION refuse_vectors CASCADE");
  await gateway.sql`UPDATE vector_store_files SET due_at = clock_timestamp() WHERE vector_store_id = ${id}`;
  await indexed(id);
  const chunks = await vectorsIn(id);
  expect(await call("GET", `/${id}/files/${file_id}`)).toMatchObject({ status: "completed" });
  expect(await chargesOf(key)).toHaveLength(Math.ceil(chunks / 32));
  expect(await gateway.sql`SELECT 1 FROM idempotency_records`).toHaveLength(0);
});

test("a file whose key has no money fails and says so; its search is refused", async () => {
  const poor = await addSecretKey(gateway, { dailyBudgetNano: 0n });
  const { id, files } = await storeOf({ "a.txt": "Anchors." }, {}, { key: poor });
  const file = await call("GET", `/${id}/files/${files["a.txt"]}`);
  expect(file).toMatchObject({ status: "failed", usage_bytes: 0 });
  expect(file.last_error.code).toBe("server_error");
  expect(file.last_error.message).toMatch(/sandbox\/embed.*budget/);
  await until("its chunks are gone", async () => {
    const [row] = await gateway.sql`SELECT count(*)::int AS n FROM vector_store_chunks c
      JOIN vector_store_files f ON f.number = c.file WHERE f.vector_store_id = ${id}`;
    return row!.n === 0;
  });
  const other = await storeOf({ "b.txt": "Anchors." });
  const refused = await send("POST", `/${other.id}/search`, { query: "anchors" }, poor);
  await expectError(refused, 402, "budget_exhausted");
});

test("a file whose key is switched off or deleted meanwhile fails and says so", async () => {
  for (const [method, body, reason] of [
    ["PATCH", { is_active: false }, /inactive/],
    ["DELETE", undefined, /deleted/],
  ] as const) {
    const key = await addSecretKey(gateway);
    const { id, files } = await storeOf({ "a.txt": "Keels." }, {}, { key });
    const ended = `/v1/keys/${await keyId(key)}`;
    await gateway.request(method, ended, body, { key: gateway.managementKey });
    await gateway.sql`UPDATE vector_store_files SET status = 'in_progress', chunks = 0,
      due_at = clock_timestamp() WHERE vector_store_id = ${id}`;
    await indexed(id);
    const file = await call("GET", `/${id}/files/${files["a.txt"]}`);
    expect(file.status).toBe("failed");
    expect(file.last_error.message).toMatch(reason);
  }
});

test("a key that may not call the model adds and searches by words alone, and pays nothing", async () => {
  for (const settings of [
    { scopes: ["files:read", "files:write"] },
    { allowedModels: ["sandbox/chat"] },
  ]) {
    const key = await addSecretKey(gateway, settings);
    const { id, files } = await storeOf({ "a.txt": "Photosynthesis." }, {}, { key });
    const path = `/${id}/files/${files["a.txt"]}`;
    expect(await call("GET", path)).toMatchObject({ status: "completed", embedding_model: null });
    expect(await search(id, { query: "photosynthesis" }, { key })).toEqual(["a.txt"]);
    expect(await search(id, { query: "photosynthetically" }, { key })).toEqual([]);
    // Added again by a key that may, it is embedded.
    await call("POST", `/${id}/files`, { file_id: files["a.txt"] });
    await indexed(id);
    expect(await call("GET", path)).toMatchObject({ embedding_model: "sandbox/embed" });
    expect(await search(id, { query: "photosynthetically" })).toEqual(["a.txt"]);
    expect(await chargesOf(key)).toHaveLength(0);
  }
});

test("embeddings go with the file, and one of another length is passed over", async () => {
  const { id, files } = await storeOf({ "a.txt": "Masts.", "b.txt": "Masts." });
  await gateway.sql`UPDATE vector_store_vectors SET signs = B'101' WHERE file = (
    SELECT number FROM vector_store_files WHERE file_id = ${files["b.txt"]!})`;
  expect(await search(id, { query: "masts", ...byEmbedding })).toEqual(["a.txt"]);
  expect(await vectorsIn(id)).toBe(2);
  await call("DELETE", `/${id}/files/${files["b.txt"]}`);
  await until("its embedding is gone", async () => (await vectorsIn(id)) === 1);
});

test("the organization's guardrails look through what is embedded for it", async () => {
  const { organization, managementKey, secretKey } = await gateway.addOrganization();
  const made = await gateway.request(
    "POST",
    "/v1/guardrails",
    { name: "no-addresses", rules: [{ type: "pii", on: ["input"], entities: ["email"] }] },
    { key: managementKey },
  );
  const { id: guardrail } = (await made.json()) as { id: string };
  const path = `/v1/admin/organizations/${organization.id}`;
  const key = await addOperator(gateway);
  expect((await gateway.request("PATCH", path, { guardrail }, { key })).status).toBe(200);
  const texts = { "a.txt": "Write to ada@example.com.", "b.txt": "Write to the harbour." };
  const { id, files } = await storeOf(texts, {}, { key: secretKey });
  const states = await Promise.all(
    Object.values(files).map((file) =>
      call("GET", `/${id}/files/${file}`, undefined, { key: secretKey }),
    ),
  );
  expect(states.map(({ status }) => status)).toEqual(["failed", "completed"]);
  expect(states[0]!.last_error.message).toContain("was blocked by the guardrail");
  expect(states[0]!.last_error.message).not.toContain("ada@");
  const refused = await send("POST", `/${id}/search`, { query: "ada@example.com" }, secretKey);
  await expectError(refused, 400, "content_policy_violation");
});
