import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { type FilesGateway, startFilesGateway, uploaded } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";
import { type Json, vectorStoreCalls } from "../support/vector-stores.ts";

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

const { send: refused, call, indexed, storeOf, search } = vectorStoreCalls(() => gateway);

test("a file without readable text fails with its reason, and the others are found", async () => {
  const { id, files } = await storeOf({
    "good.txt": "The harbour opens at six.",
    "image.png": new Uint8Array([0x89, 0x50, 0, 0]),
    "broken.pdf": "%PDF-1.7 nothing",
  });
  expect((await call("GET", `/${id}`)).file_counts).toEqual({
    in_progress: 0,
    completed: 1,
    failed: 2,
    cancelled: 0,
    total: 3,
  });
  const image = await call("GET", `/${id}/files/${files["image.png"]}`);
  expect(image).toMatchObject({
    status: "failed",
    last_error: { code: "unsupported_file" },
    usage_bytes: 0,
  });
  const broken = await call("GET", `/${id}/files/${files["broken.pdf"]}`);
  expect(broken.last_error).toEqual({ code: "invalid_file", message: "The PDF is damaged." });
  expect(await search(id, { query: "When does the harbour open?" })).toEqual(["good.txt"]);
});

test("attributes filter a search as OpenAI's filters say", async () => {
  const { id, files } = await storeOf({
    "a.txt": "Boats.",
    "b.txt": "Boats.",
    "c.txt": "Boats.",
  });
  await call("POST", `/${id}/files/${files["a.txt"]}`, {
    attributes: { year: 2024, region: "north", draft: true },
  });
  await call("POST", `/${id}/files/${files["b.txt"]}`, {
    attributes: { year: 2026, region: "south" },
  });
  const [year, region] = [
    (type: string, value: unknown) => ({ type, key: "year", value }),
    (type: string, value: unknown) => ({ type, key: "region", value }),
  ];
  const cases: [filters: unknown, names: string[]][] = [
    [year("eq", 2024), ["a"]],
    [year("ne", 2024), ["b", "c"]],
    [year("gt", 2024), ["b"]],
    [year("gte", 2024), ["a", "b"]],
    [year("lt", 2026), ["a"]],
    [year("lte", 2026), ["a", "b"]],
    [year("gt", "2024"), []],
    [region("in", ["north", "west"]), ["a"]],
    [region("nin", ["north"]), ["b", "c"]],
    [{ type: "eq", key: "draft", value: true }, ["a"]],
    [{ type: "or", filters: [region("eq", "north"), year("eq", 2026)] }, ["a", "b"]],
    [
      {
        type: "and",
        filters: [year("gt", 0), { type: "or", filters: [region("eq", "south"), year("lt", 0)] }],
      },
      ["b"],
    ],
  ];
  for (const [filters, names] of cases) {
    const found = await search(id, { query: "boats", filters });
    expect({ filters, found: found.sort() }).toEqual({
      filters,
      found: names.map((name) => `${name}.txt`),
    });
  }
});

test("results are bounded in number and score, and stop words find nothing", async () => {
  const { id } = await storeOf({ "a.txt": "Red sails.", "b.txt": "Red sails, blue water." });
  expect(await search(id, { query: "red sails", max_num_results: 1 })).toEqual(["a.txt"]);
  const strict = { ranking_options: { score_threshold: 1 } };
  expect(await search(id, { query: "red sails", ...strict })).toEqual(["a.txt"]);
  expect(await search(id, { query: "what is the" })).toEqual([]);
  expect(await search(id, { query: "':* & | !( \\ \u202e" })).toEqual([]);
});

test("words are found without their accents, endings and punctuation, and where none are spaced", async () => {
  const { id } = await storeOf({
    "cafe.txt": "Das Café liegt am Fluß.",
    "code.ts": "export function readConfig_file() {}",
    "ja.txt": "東京の図書館は日曜日に休みます。",
  });
  expect(await search(id, { query: "cafe" })).toEqual(["cafe.txt"]);
  expect(await search(id, { query: "exported functions" })).toEqual(["code.ts"]);
  expect(await search(id, { query: "図書館" })).toEqual(["ja.txt"]);
});

test("a file that is added twice is indexed once; with another chunking it is indexed anew", async () => {
  const { id, files } = await storeOf({ "a.txt": "Anchors aweigh. ".repeat(200) });
  const file_id = files["a.txt"];
  const [before] = await gateway.sql`SELECT id, chunks FROM vector_store_files
    WHERE vector_store_id = ${id}`;
  const again = await call("POST", `/${id}/files`, { file_id, attributes: { n: 1 } });
  expect(again).toMatchObject({ status: "completed", attributes: { n: 1 } });
  const chunking_strategy = {
    type: "static",
    static: { max_chunk_size_tokens: 100, chunk_overlap_tokens: 50 },
  };
  await call("POST", `/${id}/files`, { file_id, chunking_strategy });
  await indexed(id);
  const file = await call("GET", `/${id}/files/${file_id}`);
  expect(file).toMatchObject({ status: "completed", chunking_strategy });
  await until("the former chunks are gone", async () => {
    const rows = await gateway.sql`SELECT id, chunks FROM vector_store_files
      WHERE vector_store_id = ${id}`;
    return rows.length === 1 && rows[0]!.id !== before!.id && rows[0]!.chunks > before!.chunks;
  });
});

test("what an owner that died has written is written anew, once", async () => {
  const { id, files } = await storeOf({ "a.txt": "One keel." });
  await gateway.sql`INSERT INTO vector_store_chunks (file, position, text, words, length)
    SELECT number, 7, 'half of it', '', 0 FROM vector_store_files WHERE vector_store_id = ${id}`;
  await gateway.sql`UPDATE vector_store_files SET status = 'in_progress', chunks = 0,
    due_at = clock_timestamp() WHERE vector_store_id = ${id}`;
  await indexed(id);
  const content = await call("GET", `/${id}/files/${files["a.txt"]}/content`);
  expect(content.data).toEqual([{ type: "text", text: "One keel." }]);
});

test("searches, however many and slow, leave connections to other requests", async () => {
  const { id } = await storeOf({ "a.txt": "Slow water." });
  const { running, outcome } = await gateway.sql.begin(async (sql) => {
    await sql`LOCK TABLE vector_store_chunks IN ACCESS EXCLUSIVE MODE`;
    const running = Array.from({ length: 40 }, () =>
      call("POST", `/${id}/search`, { query: "water" }),
    );
    await until("searches wait for the table", async () => {
      const [row] = await sql`SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted`;
      return row!.n >= 2;
    });
    const others = async (): Promise<string> => {
      for (let i = 0; i < 20; i++) await call("GET", `/${id}`);
      return "answered";
    };
    return { running, outcome: await Promise.race([others(), Bun.sleep(3_000)]) };
  });
  expect(outcome).toBe("answered");
  for (const { data } of await Promise.all(running)) expect(data).toHaveLength(1);
});

test("a page of content beyond all chunks is empty, and one beyond all numbers is refused", async () => {
  const { id, files } = await storeOf({ "a.txt": "One." });
  const page = `/${id}/files/${files["a.txt"]}/content?page=`;
  expect((await call("GET", `${page}1000000`)).data).toEqual([]);
  for (const number of ["2147483648", "9007199254740991"]) {
    const refused = await gateway.request("GET", `/v1/vector_stores${page}${number}`);
    expect(refused.status).toBe(400);
  }
});

test("chunks go with the file, with its place in the store, and with the store", async () => {
  const { id, files } = await storeOf({ "a.txt": "Mast.", "b.txt": "Mast.", "c.txt": "Mast." });
  const numbers = await gateway.sql<{ number: bigint }[]>`
    SELECT number FROM vector_store_files WHERE vector_store_id = ${id}`;
  const left = async (): Promise<number> => {
    const [row] = await gateway.sql`SELECT count(*)::int AS n FROM vector_store_chunks
      WHERE file = ANY (${gateway.sql.array(numbers.map(({ number }) => number.toString()))}::bigint[])`;
    return row!.n;
  };
  expect(await left()).toBe(3);
  await gateway.request("DELETE", `/v1/files/${files["a.txt"]}`);
  expect((await search(id, { query: "mast" })).sort()).toEqual(["b.txt", "c.txt"]);
  await call("DELETE", `/${id}/files/${files["b.txt"]}`);
  expect(await search(id, { query: "mast" })).toEqual(["c.txt"]);
  expect((await call("GET", `/${id}`)).file_counts.total).toBe(1);
  await call("DELETE", `/${id}`);
  await expectError(await refused("GET", `/${id}`), 404, "vector_store_not_found");
  await until("the chunks are gone", async () => (await left()) === 0);
});

test("an expired store says so, is searched no more and loses its files", async () => {
  const expires_after = { anchor: "last_active_at", days: 2 };
  const { id } = await storeOf({ "a.txt": "Rudder." }, { expires_after });
  const store = await call("GET", `/${id}`);
  expect(store.expires_at - store.last_active_at).toBe(2 * 86_400);
  await gateway.sql`UPDATE vector_stores SET expires_at = clock_timestamp() WHERE id = ${id}`;
  await until(
    "its files are gone",
    async () => (await call("GET", `/${id}`)).file_counts.total === 0,
  );
  expect((await call("GET", `/${id}`)).status).toBe("expired");
  const file_id = (await uploaded(gateway, "assistants", "a")).id;
  for (const [path, body] of [
    [`/${id}/search`, { query: "rudder" }],
    [`/${id}/files`, { file_id }],
    [`/${id}`, { name: "Late" }],
  ] as const) {
    await expectError(await refused("POST", path, body), 400, "vector_store_expired");
  }
});

test("another organization sees none of it", async () => {
  const { id, files } = await storeOf({ "a.txt": "Secret cove." });
  const fileId = files["a.txt"]!;
  const batch = await call("POST", `/${id}/file_batches`, { file_ids: [fileId] });
  const other = await gateway.addOrganization();
  const key = other.secretKey;
  for (const [method, path, body] of [
    ["GET", `/${id}`],
    ["POST", `/${id}`, { name: "mine" }],
    ["DELETE", `/${id}`],
    ["POST", `/${id}/search`, { query: "cove" }],
    ["GET", `/${id}/files`],
    ["POST", `/${id}/files`, { file_id: fileId }],
    ["GET", `/${id}/files/${fileId}`],
    ["POST", `/${id}/files/${fileId}`, { attributes: null }],
    ["GET", `/${id}/files/${fileId}/content`],
    ["DELETE", `/${id}/files/${fileId}`],
    ["POST", `/${id}/file_batches`, { file_ids: [fileId] }],
    ["GET", `/${id}/file_batches/${batch.id}`],
    ["POST", `/${id}/file_batches/${batch.id}/cancel`],
    ["GET", `/${id}/file_batches/${batch.id}/files`],
  ] as const) {
    const response = await refused(method, path, body, key);
    await expectError(response, 404, "vector_store_not_found");
  }
  expect((await call("GET", "", undefined, { key })).data).toEqual([]);
  const own = await call("POST", "", {}, { key });
  const foreign = await refused("POST", `/${own.id}/files`, { file_id: fileId }, key);
  await expectError(foreign, 404, "file_not_found");
  expect((await call("POST", `/${own.id}/search`, { query: "cove" }, { key })).data).toEqual([]);
});

describe("a request is refused:", () => {
  test("without the scope of files", async () => {
    const reader = await addSecretKey(gateway, { scopes: ["files:read"] });
    await expectError(await refused("POST", "", {}, reader), 403, "missing_scope");
    expect((await refused("GET", "", undefined, reader)).status).toBe(200);
    const chat = await addSecretKey(gateway, { scopes: ["chat:completions"] });
    await expectError(await refused("GET", "", undefined, chat), 403, "missing_scope");
  });

  test("with wrong fields", async () => {
    const { id, files } = await storeOf({ "a.txt": "Deck." });
    const file_id = files["a.txt"];
    let nested: unknown = { type: "eq", key: "a", value: 1 };
    for (let level = 0; level < 9; level++) nested = { type: "and", filters: [nested] };
    for (const [path, body] of [
      ["", { unknown: 1 }],
      ["", { expires_after: { anchor: "created_at", days: 1 } }],
      [`/${id}/search`, {}],
      [`/${id}/search`, { query: [] }],
      [`/${id}/search`, { query: "a", max_num_results: 51 }],
      [`/${id}/search`, { query: "a", ranking_options: { score_threshold: 2 } }],
      [`/${id}/search`, { query: "a", ranking_options: { hybrid_search: { text_weight: 1 } } }],
      [
        `/${id}/search`,
        {
          query: "a",
          ranking_options: { hybrid_search: { text_weight: 0, embedding_weight: 0 } },
        },
      ],
      [`/${id}/search`, { query: "a", filters: { type: "like", key: "a", value: 1 } }],
      [`/${id}/search`, { query: "a", filters: { type: "eq", key: "a", value: [1] } }],
      [`/${id}/search`, { query: "a", filters: { type: "and", filters: [] } }],
      [`/${id}/search`, { query: "a", filters: nested }],
      [`/${id}/files`, { file_id, attributes: { a: { b: 1 } } }],
      [
        `/${id}/files`,
        {
          file_id,
          chunking_strategy: {
            type: "static",
            static: { max_chunk_size_tokens: 100, chunk_overlap_tokens: 51 },
          },
        },
      ],
      [`/${id}/file_batches`, {}],
      [`/${id}/file_batches`, { file_ids: [file_id], files: [{ file_id }] }],
    ] as const) {
      await expectError(await refused("POST", path, body), 400, "invalid_body");
    }
    await expectError(await refused("GET", "?after=x"), 400, "invalid_query");
    const missing = { file_id: `file_${"0".repeat(32)}` };
    await expectError(await refused("POST", `/${id}/files`, missing), 404, "file_not_found");
    await expectError(await refused("GET", "/%00"), 404, "vector_store_not_found");
  });
});

test("a list is paged by after and before", async () => {
  const { secretKey: key } = await gateway.addOrganization();
  const ids: string[] = [];
  for (let n = 0; n < 5; n++) ids.push((await call("POST", "", { name: `${n}` }, { key })).id);
  const page = async (query: string): Promise<[string[], boolean]> => {
    const listed = await call("GET", `?${query}`, undefined, { key });
    return [listed.data.map((one: Json) => one.name), listed.has_more];
  };
  expect(await page("limit=2")).toEqual([["4", "3"], true]);
  expect(await page(`limit=2&after=${ids[3]}`)).toEqual([["2", "1"], true]);
  expect(await page(`limit=2&before=${ids[1]}`)).toEqual([["3", "2"], true]);
  expect(await page(`order=asc&limit=2&after=${ids[2]}`)).toEqual([["3", "4"], false]);
});

test("a cancelled batch leaves what was indexed, and no chunk of the rest", async () => {
  const { id, files } = await storeOf({ "a.txt": "Sextant." });
  const batch = await call("POST", `/${id}/file_batches`, { file_ids: [files["a.txt"]] });
  await gateway.sql`UPDATE vector_store_files SET status = 'in_progress' WHERE batch_id = ${batch.id}`;
  const cancelled = await call("POST", `/${id}/file_batches/${batch.id}/cancel`);
  expect(cancelled).toMatchObject({ status: "cancelled", file_counts: { cancelled: 1, total: 1 } });
  expect(await search(id, { query: "sextant" })).toEqual([]);
  await until("the chunks are gone", async () => {
    const [row] = await gateway.sql`SELECT count(*)::int AS n FROM vector_store_chunks c
      JOIN vector_store_files f ON f.number = c.file WHERE f.batch_id = ${batch.id}`;
    return row!.n === 0;
  });
});

test("a file that has expired is not found by searches, and cannot be added, before it is removed", async () => {
  const { id, files } = await storeOf({ "boat.txt": "A red boat.", "car.txt": "A red car." });
  expect((await search(id, { query: "red" })).toSorted()).toEqual(["boat.txt", "car.txt"]);
  const expired = files["boat.txt"]!;
  await gateway.sql`UPDATE files SET expires_at = clock_timestamp() WHERE id = ${expired}`;
  expect(await search(id, { query: "red" })).toEqual(["car.txt"]);
  const other = await call("POST", "", {});
  await expectError(
    await refused("POST", `/${other.id}/files`, { file_id: expired }),
    404,
    "file_not_found",
  );
});
