import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  type StoredFile,
  startFilesGateway,
  uploaded,
} from "../support/files-gateway.ts";

interface FileList {
  readonly object: string;
  readonly data: StoredFile[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
}

let gateway: FilesGateway;
const made: StoredFile[] = [];
beforeAll(async () => {
  gateway = await startFilesGateway();
  for (let n = 0; n < 9; n++) {
    made.push(await uploaded(gateway, n % 3 === 0 ? "assistants" : "user_data", String(n)));
  }
});
afterAll(() => gateway.stop());

const list = async (query: string): Promise<FileList> => {
  const response = await gateway.request("GET", `/v1/files${query}`);
  expect(response.status).toBe(200);
  return (await response.json()) as FileList;
};
const ids = (files: readonly StoredFile[]): string[] => files.map(({ id }) => id);

test("without a query it is the newest hundred, newest first", async () => {
  expect(await list("")).toEqual({
    object: "list",
    data: [...made].reverse(),
    first_id: made.at(-1)!.id,
    last_id: made[0]!.id,
    has_more: false,
  });
});

test.each(["asc", "desc"])("pages in order %s hold each file once", async (order) => {
  const seen: string[] = [];
  let after = "";
  for (;;) {
    const page = await list(`?limit=4&order=${order}${after}`);
    seen.push(...ids(page.data));
    expect(page.last_id).toBe(page.data.at(-1)!.id);
    if (!page.has_more) break;
    after = `&after=${page.last_id}`;
  }
  expect(seen).toEqual(ids(order === "asc" ? made : [...made].reverse()));
});

test("a page may begin behind a file that was deleted since", async () => {
  const page = await list("?limit=3");
  await gateway.request("DELETE", `/v1/files/${page.last_id}`);
  const next = await list(`?limit=3&after=${page.last_id}`);
  expect(ids(next.data)).toEqual(ids(made.slice(3, 6).reverse()));
  made.splice(6, 1);
});

test("a purpose picks its files, and one that nobody used none", async () => {
  const { data } = await list("?purpose=assistants");
  expect(ids(data)).toEqual(ids(made.filter(({ purpose }) => purpose === "assistants").reverse()));
  expect(await list("?purpose=batch")).toEqual({
    object: "list",
    data: [],
    first_id: null,
    last_id: null,
    has_more: false,
  });
});

test("a page that is full to the last file says that there is no more", async () => {
  expect((await list(`?limit=${made.length}`)).has_more).toBe(false);
  expect((await list(`?limit=${made.length - 1}`)).has_more).toBe(true);
});

test("whoever follows the list finds a file that came into it late behind those that were faster", async () => {
  const stored = await startFilesGateway("s3");
  const asked = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<undefined>();
  stored.s3!.faults.push({
    matches: (method) => method === "PUT",
    answer() {
      stored.s3!.faults.splice(0);
      asked.resolve();
      return gate.promise;
    },
  });
  const late = uploaded(stored, "user_data", "late");
  await asked.promise;
  const fast = await uploaded(stored, "user_data", "fast");
  gate.resolve(undefined);
  const { id } = await late;
  const query = `?order=asc&after=${fast.id}`;
  const behind = (await (await stored.request("GET", `/v1/files${query}`)).json()) as FileList;
  expect(ids(behind.data)).toEqual([id]);
  await stored.stop();
});

describe("a query is refused that", () => {
  test.each([
    ["asks for no file", "?limit=0", "limit"],
    ["asks for too many", "?limit=10001", "limit"],
    ["has a limit that is no integer", "?limit=1e2", "limit"],
    ["names no order", "?order=up", "order"],
    ["names no purpose", "?purpose=evals", "purpose"],
    ["begins behind what is no file", "?after=key_1", "after"],
    ["begins behind what never was one", `?after=file_${"0".repeat(32)}`, "after"],
    ["begins behind an id of another kind", `?after=ftjob_${crypto.randomUUID()}`, "after"],
    ["has a parameter twice", "?limit=1&limit=2", "limit"],
    ["has an unknown parameter", "?offset=1", "offset"],
  ])("%s", async (_, query, param) => {
    const response = await gateway.request("GET", `/v1/files${query}`);
    expect((await expectError(response, 400, "invalid_query")).error.param).toBe(param);
  });

  test("but 10000 are not too many", async () => {
    expect((await list("?limit=10000")).data).toHaveLength(made.length);
  });
});
