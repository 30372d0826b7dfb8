import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FolderMark } from "../../src/platform/storage/folder-mark.ts";
import { StorageError } from "../../src/platform/storage/interface.ts";
import { knownFolder } from "../support/known-folder.ts";

const ground = mkdtempSync(join(tmpdir(), "gateway-mark-"));
let folder: string;
beforeEach(() => {
  folder = join(mkdtempSync(join(ground, "case-")), "files");
});
afterAll(() => rmSync(ground, { recursive: true }));

const idIn = (root: string): string => readFileSync(join(root, ".storage-id"), "utf8").trim();

/** How many of these say that the folder is the database's, and what the others say. */
async function outcomes(claims: readonly Promise<void>[]) {
  const settled = await Promise.allSettled(claims);
  const refused = settled.filter((one) => one.status === "rejected");
  return { ours: claims.length - refused.length, reasons: refused.map(({ reason }) => reason) };
}

test("instances that begin at once in a shared folder all take it for theirs", async () => {
  for (let round = 0; round < 30; round++) {
    const shared = `${folder}-${round}`;
    const database = knownFolder();
    const marks = Array.from({ length: 8 }, () => new FolderMark(shared, database));
    expect(await outcomes(marks.map((mark) => mark.claim()))).toEqual({ ours: 8, reasons: [] });
    expect(readdirSync(shared)).toEqual([".storage-id"]);
  }
});

test("of instances that begin at once in folders of their own one has the database's", async () => {
  for (let round = 0; round < 10; round++) {
    const database = knownFolder();
    const marks = Array.from({ length: 4 }, (_, n) => {
      return new FolderMark(`${folder}-${round}-${n}`, database);
    });
    // All of them can keep files.
    expect((await outcomes(marks.map((mark) => mark.claim()))).ours).toBe(4);
    const { ours, reasons } = await outcomes(marks.map((mark) => mark.assertOurs()));
    expect(ours).toBe(1);
    for (const reason of reasons) expect(reason).toBeInstanceOf(StorageError);
  }
});

test("nothing is marked before something is written", async () => {
  await new FolderMark(folder, knownFolder()).assertOurs();
  expect(readdirSync(join(folder, ".."))).toEqual([]);
});

test("a folder that bears an id already is taken as it is by a database that knows none", async () => {
  await new FolderMark(folder, knownFolder()).claim();
  const id = idIn(folder);
  const restored = knownFolder();
  await new FolderMark(folder, restored).claim();
  expect(await restored.read()).toBe(id);
  expect(idIn(folder)).toBe(id);
});

describe("a folder that is lost", () => {
  const lost = async () => {
    const mark = new FolderMark(folder, knownFolder());
    await mark.claim();
    const id = idIn(folder);
    await rename(folder, `${folder}-elsewhere`);
    return { mark, id };
  };

  test("is noticed while it runs, and another one is neither made nor marked", async () => {
    const { mark, id } = await lost();
    for (const attempt of [() => mark.assertOurs(), () => mark.claim()]) {
      const reason = (await attempt().catch((error: unknown) => error)) as Error;
      expect(reason).toBeInstanceOf(StorageError);
      expect(reason.message).not.toContain("\n");
      for (const part of [folder, id, "S3_BUCKET", ".storage-id"]) {
        expect(reason.message).toContain(part);
      }
    }
    expect(await Bun.file(join(folder, ".storage-id")).exists()).toBe(false);
  });

  test("is given up for another one by the way out that is named", async () => {
    const { mark, id } = await lost();
    await Bun.write(join(folder, ".storage-id"), id);
    await mark.claim();
    await rm(folder, { recursive: true });
    await rename(`${folder}-elsewhere`, folder);
    await mark.claim();
  });
});

test("a mark that says nothing is none", async () => {
  const database = knownFolder();
  await database.claim("sto_1");
  await Bun.write(join(folder, ".storage-id"), "");
  const refusal = new FolderMark(folder, database).assertOurs();
  await expect(refusal).rejects.toThrow("has no id");
  writeFileSync(join(folder, ".storage-id"), "sto_2\n");
  const other = new FolderMark(folder, database).assertOurs();
  await expect(other).rejects.toThrow("has the id sto_2");
});
