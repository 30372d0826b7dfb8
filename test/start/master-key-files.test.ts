import { afterAll, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { knownMasterKeys, MasterKeyFiles } from "../../src/main/start/master-key.ts";

const root = mkdtempSync(join(tmpdir(), "gateway-key-files-"));
afterAll(() => rmSync(root, { recursive: true }));
let dataDir: string;
let files: MasterKeyFiles;
beforeEach(() => {
  dataDir = join(mkdtempSync(join(root, "case-")), "data");
  files = new MasterKeyFiles(dataDir);
});

const known = () =>
  knownMasterKeys({ masterKey: undefined, previousMasterKey: undefined, dataDir });

test("a key is made once, of 32 bytes, for its owner alone, and no draft of it is left", () => {
  expect(files.current()).toBeUndefined();
  expect(known()).toBeUndefined();
  const key = files.makeCurrent();
  expect(key.byteLength).toBe(32);
  expect(Buffer.from(files.current()!)).toEqual(Buffer.from(key));
  expect(statSync(files.path).mode & 0o777).toBe(0o600);
  expect(readdirSync(dataDir)).toEqual(["master-key"]);
});

test("a draft that a crash left, readable by all and half written, harms nothing", () => {
  files.makeCurrent();
  writeFileSync(`${files.nextPath}.new`, "half", { mode: 0o644 });
  const next = files.makeNext();
  expect(Buffer.from(files.next()!)).toEqual(Buffer.from(next));
  expect(statSync(files.nextPath).mode & 0o777).toBe(0o600);
  expect(readdirSync(dataDir).sort()).toEqual(["master-key", "master-key.next"]);
});

test("a next key that is there is not made anew, and is known beside the current one", () => {
  const current = files.makeCurrent();
  const next = files.makeNext();
  expect(Buffer.from(files.makeNext())).toEqual(Buffer.from(next));
  const { main, others } = known()!;
  expect([main, ...others].map((key) => Buffer.from(key).toString("hex"))).toEqual(
    [current, next].map((key) => Buffer.from(key).toString("hex")),
  );
});

test("only the key that is meant takes the place of the current one, however often that is asked", () => {
  const current = files.makeCurrent();
  const next = files.makeNext();
  files.promoteNext(current);
  expect(Buffer.from(files.current()!)).toEqual(Buffer.from(current));
  files.promoteNext(next);
  files.promoteNext(next);
  expect(readdirSync(dataDir)).toEqual(["master-key"]);
  expect(Buffer.from(files.current()!)).toEqual(Buffer.from(next));
});

test("both files with one key are one key", () => {
  files.makeCurrent();
  writeFileSync(files.nextPath, readFileSync(files.path));
  expect(known()!.others).toEqual([]);
});

test("what is no key is told by its path, without what it holds", () => {
  files.makeCurrent();
  for (const path of [files.path, files.nextPath]) {
    const before = path === files.path ? readFileSync(path) : undefined;
    for (const text of ["", "c2hvcnQ=", "x".repeat(44), Buffer.alloc(33, 1).toString("base64")]) {
      writeFileSync(path, text);
      expect(() => known()).toThrow(
        `${path} does not hold a key of 32 bytes; restore it from a backup`,
      );
    }
    if (before !== undefined) writeFileSync(path, before);
  }
});
